"""Exit codes of all commands except the ingest's, one for each cause. The man page lists them."""

from typing import Any

FAILED = 1
USAGE = 2
PROBLEM = 3
LOCKED = 4
UNKNOWN = 5
NOT_ALLOWED = 6
NEEDS_RESTART = 7
NO_UPLINK = 8
OUTAGE = 9
STORE = 10
NAME_TAKEN = 11
NO_GATEWAY = 12
INTERNAL = 70
KEPT = 75

MEANINGS = {
    0: "Success.",
    FAILED: "The command failed, or found a fault; its output says why.",
    USAGE: "The command line or the configuration file is wrong.",
    PROBLEM: "A board of the registry is silent, unplugged or refused.",
    LOCKED: "Another process uses the data directory.",
    UNKNOWN: "There is no such session, board or user.",
    NOT_ALLOWED: "This account has no permission: use sudo, or join the group onceway-admin.",
    NEEDS_RESTART: "The reload is done, but a part of the new configuration takes effect at the"
    " next start.",
    NO_UPLINK: "There is no [uplink], so nothing is landed; systemd does not start the uplink"
    " again.",
    OUTAGE: "The landing place has been out of reach for too long.",
    STORE: "A store or its backup cannot be used: it is missing, damaged or of another version.",
    NAME_TAKEN: "Another store uses the gateway's name at the landing place.",
    NO_GATEWAY: "No gateway runs with this data directory; this command needs a running one.",
    INTERNAL: "An internal error has ended the gateway; systemd starts it again.",
    KEPT: "Messages of `onceway publish` wait in its journal: the next call sends them.",
}
"""The meaning of each exit code, as shown in the man page."""


def of_status(found: dict[str, Any]) -> int:
    """Return the exit code for a gateway's status: PROBLEM if a board does not send as expected,
    else FAILED if there is another problem, else 0.
    """
    if found["missing"]:
        return PROBLEM
    return FAILED if found["problems"] else 0
