"""The processes of a run: gateway, uplink and ingest, started and ended as a user would."""
