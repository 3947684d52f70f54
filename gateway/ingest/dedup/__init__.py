"""Deduplication: finds the publications that the table already has.

In: ranges of sequences. Out: the new ones among them. A cache of the table's commit log, and its
snapshots.
"""
