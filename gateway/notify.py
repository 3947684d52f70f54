"""Tell systemd how this service is (sd_notify protocol, `man 3 sd_notify`): a no-op outside systemd."""

import os
import socket


def notify(state: str) -> None:
    """state: for example `READY=1` or `STATUS=waiting for the landing place`."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.sendall(state.encode())
