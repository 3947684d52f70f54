"""The sink, which writes micro-batches into the tables.

In: checked batches (`landing/`). Out: data files, written by the tasks that read the batches, and
the commits that name the files.
"""
