"""Run `onceway gateway run`, and measure for how long its event loop lets others wait.

A timer is due every 2 ms. If it is late, the delay is a pause: a step of the loop took that time,
for example in Python, at a lock or in a system call. The time in which the kernel ran other
processes instead of the ready loop is subtracted (`/proc/self/schedstat`, second field). That time
depends on the load of the machine, not on the gateway.

In: SIGUSR1. Out: a line of JSON on standard output: `{"pause_s": the longest pause since the last
signal}`.
"""

import asyncio
import json
import signal
import sys
import time

from gateway.config import Config
from gateway.service import cli

_EVERY_S = 0.002

_serve = cli.serve


class _Watch:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kernel = open("/proc/self/schedstat")  # noqa: SIM115 - as long as the process
        self._longest = 0.0
        self._look()
        self._loop.add_signal_handler(signal.SIGUSR1, self._tell)

    def _waited_s(self) -> float:
        self._kernel.seek(0)
        return int(self._kernel.read().split()[1]) / 1e9

    def _look(self) -> None:
        self._seen, self._waited = time.monotonic(), self._waited_s()
        self._loop.call_later(_EVERY_S, self._ring)

    def _ring(self) -> None:
        late = time.monotonic() - self._seen - _EVERY_S
        self._longest = max(self._longest, late - (self._waited_s() - self._waited))
        self._look()

    def _tell(self) -> None:
        print(json.dumps({"pause_s": self._longest}), flush=True)
        self._longest = 0.0


async def _watched(config: Config, *more: object) -> None:
    watch = _Watch()
    await _serve(config, *more)  # type: ignore[arg-type]
    del watch


if __name__ == "__main__":
    cli.serve = _watched  # type: ignore[assignment]
    from gateway.commands.main import main

    sys.exit(main())
