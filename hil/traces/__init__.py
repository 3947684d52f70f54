"""Recorded links: the frames of a radio or a line that arrived, and when. This package reads,
describes, draws and replays them.
"""
