"""The exit codes of all commands but those of the ingest, one for each cause. The man page lists
them.
"""

from typing import Any

FAILED = 1
"""The command could not do what was asked; the error says why. `status` and `doctor`: something is
wrong.
"""
USAGE = 2
"""The command line or the configuration file is wrong."""
PROBLEM = 3
"""A board of the registry does not speak as it ought to; or the store cannot be used."""
LOCKED = 4
"""Another process has the data directory."""
UNKNOWN = 5
"""There is no such session or device."""
NOT_ALLOWED = 6
"""This account may not do that: use sudo, or join the group onceway-admin."""
NEEDS_RESTART = 7
"""The reload is done, and a part of the new configuration counts from the next start only."""
NO_UPLINK = 8
"""The configuration has no [uplink], so that there is nothing to land. systemd does not start the
uplink again.
"""
INTERNAL = 70
"""An internal error has ended the gateway. systemd starts it again."""


def of_status(found: dict[str, Any]) -> int:
    """The exit code for what a gateway says of itself: missing boards count before all else."""
    if found["missing"]:
        return PROBLEM
    return FAILED if found["problems"] else 0
