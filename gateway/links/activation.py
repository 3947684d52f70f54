"""Sockets that systemd has opened for the service (sd_listen_fds(3)).

In: the environment variables LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES. Out: listening sockets by
the name that their unit gives them.
"""

import os
import socket
from collections import defaultdict
from collections.abc import MutableMapping

_FIRST_DESCRIPTOR = 3


def activated_sockets(
    environment: MutableMapping[str, str] = os.environ,
) -> dict[str, list[socket.socket]]:
    """Return the sockets that systemd has passed to this process, by name. Works only once:
    systemd's environment variables are removed, so that child processes do not use them. A socket's
    name is FileDescriptorName= of its unit, by default the unit's own name; several sockets may
    share a name.
    """
    process = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "0")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    found: dict[str, list[socket.socket]] = defaultdict(list)
    if process != str(os.getpid()):
        return found
    for index in range(int(count)):
        inherited = socket.socket(fileno=_FIRST_DESCRIPTOR + index)
        inherited.setblocking(False)
        inherited.set_inheritable(False)
        found[names[index] if index < len(names) else ""].append(inherited)
    return found
