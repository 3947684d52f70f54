"""Provisioning: board catalogue, flashing, device identities and the device registry."""
