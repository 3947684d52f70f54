"""The rig: programs that drive boards, wires, gateway, uplink and ingest from outside, break them
on purpose, and check what arrived.
"""
