"""Exit codes of the ingest beside those of every command (0, 1, 2)."""

SOMEBODY_SHOULD_LOOK = 5
"""Exit code for a problem: of a report, or at the end of one pass."""
