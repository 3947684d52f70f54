"""Run `onceway gateway run` as a process, for tests."""

import asyncio
import os
import re
import secrets
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

_LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
START_S = 120

_FIRST, _END, _COUNT = 10_000, 20_000, 500
"""Range of ports for all tests, and number of ports for one process of tests. The rig uses ports
from 20,000 on. From 32,768 on, the system assigns ports to outgoing connections. A client that
retries a closed port of that range may get it as its own port, and connect to itself.
"""
_claim = socket.socket(socket.AF_UNIX)
_given = deque[int](maxlen=_COUNT // 2)


@cache
def _ours() -> int:
    """Return the first port of this process's range. Two groups of tests run at the same time and
    must not use the same ports. A socket with an abstract name marks the range as taken until the
    process ends.
    """
    for first in range(_FIRST, _END, _COUNT):
        with suppress(OSError):
            _claim.bind(f"\0onceway tests: ports from {first} on")
            return first
    raise AssertionError("too many processes of tests at a time")


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port that was not among the last ones returned."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        port = _ours() + secrets.randbelow(_COUNT)
        if port in _given:
            continue
        with suppress(OSError), socket.create_server((host, port), family=family):
            _given.append(port)
            return port


class GatewayProcess:
    """A running gateway. port: port of its first listener. log: lines of standard error so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.port = 0
        self.log: list[str] = []
        self._reader: asyncio.Task[None] | None = None
        self._more = asyncio.Condition()

    async def ready(self) -> None:
        """Wait until the gateway accepts clients."""
        assert self.process.stderr is not None
        async with asyncio.timeout(START_S):
            while line := (await self.process.stderr.readline()).decode():
                self.log.append(line)
                if found := _LISTENING.search(line):
                    self.port = int(found[1])
                if " start " in line:
                    self._reader = asyncio.create_task(self._read_on())
                    return
        raise AssertionError(f"the gateway did not start: {self.log}")

    async def _read_on(self) -> None:
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            async with self._more:
                self.log.append(line)
                self._more.notify_all()

    async def logged(self, text: str) -> None:
        """Wait at most 30 s until the log has a line with this text."""
        async with asyncio.timeout(30), self._more:
            await self._more.wait_for(lambda: any(text in line for line in self.log))

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end. Return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        code = await asyncio.wait_for(self.process.wait(), 30)
        if self._reader is not None:
            await self._reader
        return code


async def start(
    *arguments: str,
    env: dict[str, str] | None = None,
    program: tuple[str, ...] = ("-m", "gateway"),
    before: tuple[str, ...] = (),
) -> GatewayProcess:
    """Start a gateway. before: words in front of the gateway's command line, such as a program that
    starts it.
    """
    process = await asyncio.create_subprocess_exec(
        *(*before, sys.executable, *program, "gateway", "run", *arguments),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | (env or {}),
    )
    return GatewayProcess(process)


def spooling(data: Path) -> tuple[str, str]:
    """Write a configuration with anonymous clients and an uplink, which spools everything. Return
    the gateway's arguments.
    """
    file = data.with_name(f"{data.name}.toml")
    file.write_text(
        f'[gateway]\ndata = "{data}"\n[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n'
        f'[uplink]\nlanding = "file://{data}/landing"\n'
    )
    return "--config", str(file)


@asynccontextmanager
async def gateway(
    data: Path, *arguments: str, env: dict[str, str] | None = None
) -> AsyncIterator[GatewayProcess]:
    """Run a gateway until the block ends. Without arguments, it accepts anonymous clients and
    spools everything.
    """
    running = await start(*(arguments or spooling(data)), env=env)
    try:
        await running.ready()
        yield running
    finally:
        if running.process.returncode is None:
            if "COVERAGE_RUN" in os.environ:  # a killed process loses its counts
                with suppress(TimeoutError):
                    await running.end()
            await running.end(signal.SIGKILL)
