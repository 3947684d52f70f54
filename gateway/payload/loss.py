"""The report of a board about a publication that was damaged in its memory
(`firmware/README.md`).
"""

LOST = b"lost"
"""Payload of the report, on `logs/NAME`. The report has the identity of the lost publication. If
another payload with that identity exists, there is no conflict, and no publication is lost."""
