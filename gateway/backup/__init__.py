"""A whole gateway as one encrypted file, and another machine that goes on in its place.

In: a data directory and a configuration. Out: one file; later, on any machine, both again, by the
rules for restored stores (`gateway/store/lives.py`).
"""
