"""A micro-batch on its way into the tables.

In: checked batches (`landing/`). Out: data files, written where the batches were read, and the
commits that name them.
"""
