"""The report of a publication that was damaged in a board's memory (`firmware/README.md`)."""

LOST = b"lost"
"""Payload of the report, on `logs/NAME`. The report has the identity of the lost publication, so it
contradicts no other payload of that identity: where there is one, nothing is lost.
"""
