"""Exit codes of the ingest, in addition to those of every command (0, 1, 2)."""

SOMEBODY_SHOULD_LOOK = 5
"""Exit code if a report shows a problem, or if a feed is held at the end of `run
--available-now`.
"""
