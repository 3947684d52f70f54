"""Delta tables with any contents: their logs, their files, and commits as a compare-and-swap.

In: a table's name, and the rows or files to add. Out: the new version of the table, which is on
disk; or `Conflict`.
"""
