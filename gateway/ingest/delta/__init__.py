"""Delta tables, whatever is in them: their logs, their files, and commits that are a
compare-and-swap.

In: a table's name and what a commit is to add. Out: a version that is on the disk, or `Conflict`.
"""
