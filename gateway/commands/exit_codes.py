"""Exit codes of all commands except the ingest's, one for each cause. The man page lists them."""

from typing import Any

FAILED = 1
"""The command failed; the error says why. `status` and `doctor`: something is wrong."""
USAGE = 2
"""The command line or the configuration file is wrong."""
PROBLEM = 3
"""A board of the registry does not send as expected; or the store cannot be used; or another store
uses the gateway's name at the landing place.
"""
LOCKED = 4
"""Another process uses the data directory."""
UNKNOWN = 5
"""The session, device or user does not exist. `uplink status`: the landing place has not been
reached for too long.
"""
NOT_ALLOWED = 6
"""Your account has no permission: use sudo, or join the group onceway-admin."""
NEEDS_RESTART = 7
"""The reload is done, but a part of the new configuration takes effect at the next start only."""
NO_UPLINK = 8
"""The configuration has no [uplink], so there is nothing to land. systemd does not start the uplink
again.
"""
INTERNAL = 70
"""An internal error has ended the gateway. systemd starts it again."""


def of_status(found: dict[str, Any]) -> int:
    """Return the exit code for a gateway's status: missing boards come before all else."""
    if found["missing"]:
        return PROBLEM
    return FAILED if found["problems"] else 0
