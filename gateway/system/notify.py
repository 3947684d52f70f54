"""Reports of a service's state to systemd (sd_notify(3)): a datagram to the socket in
NOTIFY_SOCKET.
"""

import logging
import os
import socket

log = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Report a state to systemd: `READY=1`, `STOPPING=1`, `STATUS=…`. Do nothing if systemd has not
    started this process.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto(state.encode(), address)
        except OSError as error:
            log.warning(
                "%s: cannot report the state of the service to systemd (%s)",
                os.environ["NOTIFY_SOCKET"],
                error.strerror,
            )
