"""Observers of each hop of a run, read only, and its history."""
