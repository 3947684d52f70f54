"""Helpers for the operating system: accounts, one process per folder, fsync, systemd, log lines,
and names that can be folders. Of this product's modules, the package imports only `errors.py`.
"""
