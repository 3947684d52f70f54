"""The rig: drives boards, wires, gateway, uplink and ingest from outside, breaks them on purpose,
and checks what arrived.
"""
