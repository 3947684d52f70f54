"""Exit codes of the ingest, in addition to those of every command (0, 1, 2)."""

SOMEBODY_SHOULD_LOOK = 5
"""Exit code for a problem that a report shows, or that remains at the end of one pass."""
