"""Observers, which only read the hops of a run, and the history that they write."""
