"""Recorded links: the frames of a radio or a line that arrived, and when. This package reads,
describes, draws and replays them.
"""

LONGEST_OUTAGE = 20.0
"""Seconds, or frames, to which longer outages are shortened by default."""
