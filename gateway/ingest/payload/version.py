"""The version of the decoding, which a table of readings stores with its progress."""

DECODING = 2
"""Version of the decoding. Increase it if the same publications give other readings. The table of
readings is then made again.
"""


def application_id(publications: str) -> str:
    """Return the id under which the table of readings stores its progress. publications: id of the
    table of publications.
    """
    return f"onceway/readings-{DECODING}/{publications}"
