"""One run, many runs, and their display."""
