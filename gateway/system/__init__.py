"""Helpers for the operating system: accounts, one process per folder, fsync, systemd, log lines,
and names that can be folders. Imports nothing of ours but `errors.py`.
"""
