"""The broker on an event loop: turns and commits, the links of clients, the clock, clients of the
gateway's own, and systemd's watchdog. Every feature stands on this package.
"""
