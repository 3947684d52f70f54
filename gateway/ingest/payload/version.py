"""The version of the decoding, which a table of readings stores beside how far it goes."""

DECODING = 2
"""Raised whenever the same publications have other readings than before: the table is then made
again from them.
"""


def application_id(publications: str) -> str:
    """Under which the table of readings stores how far it goes. publications: that table's id."""
    return f"onceway/readings-{DECODING}/{publications}"
