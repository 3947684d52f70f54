"""Deduplication: finds publications that the table already has.

In: ranges of sequences. Out: the sequences that the table does not have yet. The sequences of the
table are cached in memory and saved in snapshots.
"""
