"""Delta tables with any contents: their logs, their files, and commits as a compare-and-swap.

In: a table's name and the additions of a commit. Out: a version that is on disk, or `Conflict`.
"""
