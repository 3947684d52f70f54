"""Systemd's watchdog (sd_watchdog_enabled(3)), fed only while every part makes progress.

In: for each part, the seconds since its last progress. Out: `WATCHDOG=1` four times per watchdog
interval, sent from the event loop, so that a hanging loop sends nothing. The messages also stop if
a part hangs for half the interval. Without messages, systemd ends the process (SIGABRT, which
writes the stack of each thread to the log) and starts it again.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from gateway.system.notify import notify

log = logging.getLogger(__name__)

_LOOKS = 4
_PATIENCE = 0.5
"""Share of the watchdog's interval. A part without progress for a longer time is hanging. (An SD
card's internal garbage collection may take seconds.)
"""


def interval_s() -> float | None:
    """Return the seconds within which systemd expects a message from this process, or None if
    systemd does not watch it.
    """
    try:
        if int(os.environ.get("WATCHDOG_PID", os.getpid())) != os.getpid():
            return None
        return int(os.environ["WATCHDOG_USEC"]) / 1_000_000 or None
    except (KeyError, ValueError):
        return None


class Watchdog:
    """The watchdog, from creation until `close`. parts: for each part's name, a function that
    returns the seconds since its last progress.
    """

    def __init__(self, parts: Mapping[str, Callable[[], float]]) -> None:
        self._parts = parts
        self._interval = interval_s()
        self._reported: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        if self._interval is not None:
            self._look(self._interval)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, interval: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(interval / _LOOKS, self._look, interval)
        stalled = {name: found() for name, found in self._parts.items()}
        hanging = {name for name, since in stalled.items() if since > _PATIENCE * interval}
        for name in hanging - self._reported:
            log.error(
                "%s: no progress for %.0f s; if this continues, systemd restarts the gateway",
                name,
                stalled[name],
            )
        self._reported = hanging
        if not hanging:
            notify("WATCHDOG=1")
