"""The report of a board about a publication that was damaged in its memory
(`firmware/README.md`).
"""

LOST = b"lost"
"""Payload of the report that a publication is lost, on `logs/NAME`. The report has the identity of
the publication. If the gateway already has the publication, nothing is lost, and the report does
not conflict with it.
"""
