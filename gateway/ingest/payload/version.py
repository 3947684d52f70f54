"""The version of the decoding, which a table of readings stores with its progress."""

DECODING = 2
"""Increased whenever the same publications give other readings: the table of readings is then made
again.
"""


def application_id(publications: str) -> str:
    """Return the id under which the table of readings stores its progress. publications: that
    table's id.
    """
    return f"onceway/readings-{DECODING}/{publications}"
