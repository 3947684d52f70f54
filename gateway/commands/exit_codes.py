"""The exit codes of all commands but those of the ingest, one for each cause. The man page lists
them.
"""

FAILED = 1
"""The command could not do what was asked; the error says why. `doctor`: something is wrong."""
USAGE = 2
"""The command line or the configuration file is wrong."""
PROBLEM = 3
"""The gateway runs, and something is wrong with it, its boards or its store."""
LOCKED = 4
"""Another process has the data directory."""
UNKNOWN = 5
"""There is no such session or device."""
NOT_ALLOWED = 6
"""This account may not do that: use sudo, or join the group onceway-admin."""
NEEDS_RESTART = 7
"""The reload is done, and a part of the new configuration counts from the next start only."""
INTERNAL = 70
"""An internal error has ended the gateway. systemd starts it again."""
