"""Readiness of a service, as systemd sees it (man 3 sd_notify). In: the name of a service. Out: the
environment in which to start the service, and a wait for its READY=1.
"""

import asyncio
import os
import socket
import time

from gateway.errors import OncewayError
from hil.programs.process import Child

LOOK_EVERY = 0.02  # s


class Readiness:
    """A NOTIFY_SOCKET for one start of one service. Keep the object while the service runs. The
    socket has no path, and is closed with the object.
    """

    def __init__(self, name: str) -> None:
        self._address = f"onceway-hil-{os.getpid()}-{name}-{time.monotonic_ns()}"
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._socket.bind("\0" + self._address)

    @property
    def env(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": "@" + self._address}

    async def wait(self, child: Child, within: float) -> None:
        """Return at READY=1. Raises OncewayError if the service ends before, or takes longer than
        `within` seconds.
        """
        deadline = time.monotonic() + within
        while not self._is_ready():
            if not child.running:
                raise child.failure()
            if time.monotonic() > deadline:
                raise OncewayError(
                    f"{child.name} was not ready within {within:.0f} s", str(child.log)
                )
            await asyncio.sleep(LOOK_EVERY)

    def _is_ready(self) -> bool:
        try:
            return "READY=1" in self._socket.recv(4096).decode().splitlines()
        except BlockingIOError:
            return False
