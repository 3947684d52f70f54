"""Which publications the table has already.

In: ranges of sequences. Out: which of them are new. A cache of the table's commit log, and its
snapshots.
"""
