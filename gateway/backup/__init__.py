"""Backup of a whole gateway in one encrypted file, and its restoration on any machine.

In: a data directory and a configuration. Out: the encrypted file. A restored store follows the
rules in `gateway/store/generation.py`.
"""
