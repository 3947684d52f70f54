"""A whole gateway as one encrypted file, to be restored on any machine.

In: a data directory and a configuration. Out: one file; later, on any machine, both again, by the
rules for restored stores (`gateway/store/generation.py`).
"""
