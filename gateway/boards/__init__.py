"""Boards at a gateway: which ones may greet, what they report, log and are told to do, conflicting
payloads, and the firmware that comes with this installation.
"""
