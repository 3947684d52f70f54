"""The broker on an event loop: turns and commits, the links of clients, the clock, internal
clients, and systemd's watchdog. Every feature builds on this package.
"""
