"""Child processes for the programs of a run. All are stopped at its end, each by its id. In: an
argument list. Out: a process group of its own, so that a launcher's children (spark-submit's Java)
end with it, and a log file; a wait for the READY=1 of a service; free ports.
"""

import asyncio
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gateway.errors import OncewayError

LOOK_EVERY = 0.02  # s between looks for READY=1
STOP_TIMEOUT = 20.0  # s from SIGTERM to SIGKILL
LOG_TAIL = 12  # lines of a log that an error quotes
LONGEST_LINE = 1_000_000  # bytes on a pipe; a client's line has a whole message, in hex
_FIRST, _COUNT = 20_000, 12_000  # ports


class EndedError(OncewayError):
    """A program ended by itself. how: exit code or signal. last_words: its last log lines."""

    def __init__(
        self, name: str, code: int | None, log: Path, text: str = "ended by itself"
    ) -> None:
        self.name = name
        self.how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
        lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL:] if log.exists() else []
        # XML allows no colours
        self.last_words = ["".join(filter(str.isprintable, line)) for line in lines]
        super().__init__(
            f"{name} {text} ({self.how})",
            str(log),
            "\n".join(["Its last log lines:", *self.last_words]),
        )


class Child:
    """One running program. Created by `Children.start`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self.log = log
        self.process = process
        self.ended_by_us = False

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    def check(self) -> None:
        """Raise EndedError if the program ended by itself."""
        if not self.running and not self.ended_by_us:
            raise self.failure()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the program's standard output, if it was started with a pipe. Raises ValueError for
        a line longer than LONGEST_LINE.
        """
        if self.process.stdout is not None:
            try:
                async for line in self.process.stdout:
                    yield line
            except ValueError as error:
                raise ValueError(f"it is longer than {LONGEST_LINE:,} bytes") from error

    def order(self, line: bytes) -> None:
        """Write a line to the program's standard input, if that is a pipe."""
        if self.process.stdin is not None:
            self.process.stdin.write(line + b"\n")

    def pause(self) -> None:
        """Send SIGSTOP: the program stops, and keeps all its resources."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def reload(self) -> None:
        """Send SIGHUP: the program reads its configuration again."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGHUP)

    @property
    def paused(self) -> bool:
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    async def kill(self) -> None:
        """Kill the program and its descendants, as a power cut would. Wait for the program."""
        if not self.running:
            return
        self.ended_by_us = True
        # at once, so that all are stopped during the search for descendants
        self._signal(signal.SIGSTOP)
        # even those in another process group, such as Spark's Python workers
        for pid in descendants(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._signal(signal.SIGKILL)
        await self.process.wait()

    async def finish(self, script: str, within: float) -> int | None:
        """Send SIGTERM to the Python program that runs `script`: this process, or a descendant of
        it. Return the exit code of this process. If this process has not ended after `within`
        seconds, or if no process runs `script`, kill this process and return None.
        """
        asked = [pid for pid in (self.pid, *descendants(self.pid)) if runs(pid, script)]
        self.ended_by_us = self.running
        for pid in asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.process.wait(), within if asked else 0)
        except TimeoutError:
            await self.kill()
            return None

    async def stop(self) -> int:
        """Ask the program to end; kill it after STOP_TIMEOUT. Return its exit code."""
        if self.running:
            self.ended_by_us = True
            self._signal(signal.SIGTERM)
            self.resume()  # a paused program would not get the signal
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), STOP_TIMEOUT)
        await self.kill()
        return await self.process.wait()

    def failure(self) -> EndedError:
        """Return an error with the program's exit code and the end of its log."""
        return EndedError(self.name, self.process.returncode, self.log)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def runs(pid: int, script: str) -> bool:
    """Whether the first argument of a process is a script of this file name."""
    with suppress(OSError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return Path(os.fsdecode(b"".join(arguments[1:2]))).name == script
    return False


def descendants(pid: int) -> list[int]:
    """Return the present descendants of `pid`, in any process group."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return found


class Children:
    """All programs of a run. env: variables that are added to their environment."""

    def __init__(self, logs: Path, env: Mapping[str, str] | None = None) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._env = {**os.environ, **(env or {})}
        self._all: list[Child] = []

    async def start(
        self,
        name: str,
        argv: list[str],
        pipe: bool = False,
        env: Mapping[str, str] | None = None,
        orders: bool = False,
    ) -> Child:
        """Start a program. Append its output to `name`.log. pipe: leave out its standard output,
        which the caller reads. orders: leave its standard input open for `Child.order`.
        """
        log = self._logs / f"{name}.log"
        with log.open("ab") as out:
            stdout = asyncio.subprocess.PIPE if pipe else out
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.PIPE if orders else asyncio.subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=out,
                    env={**self._env, **(env or {})},
                    start_new_session=True,
                    limit=LONGEST_LINE,
                )
            except OSError as error:
                raise OncewayError(f"cannot start {name} ({error.strerror})", argv[0]) from error
        child = Child(name, process, log)
        self._all.append(child)
        return child

    async def run(self, name: str, argv: list[str], within: float) -> str:
        """Run a program to its end and return its standard output. Raises OncewayError if it fails
        or takes more than `within` seconds.
        """
        child = await self.start(name, argv, pipe=True)
        try:
            out, _ = await asyncio.wait_for(child.process.communicate(), within)
        except TimeoutError:
            raise OncewayError(
                f"{name} did not end within {within:.0f} s", str(child.log)
            ) from None
        finally:
            await child.stop()
        if child.process.returncode:
            raise EndedError(name, child.process.returncode, child.log, "failed")
        return out.decode()

    async def stop(self) -> None:
        """End all running programs, the newest first."""
        for child in reversed(self._all):
            await child.stop()


@asynccontextmanager
async def children(logs: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[Children]:
    """Context for programs; at the end of the block, every program is stopped."""
    made = Children(logs, env)
    try:
        yield made
    finally:
        await asyncio.shield(made.stop())


class Readiness:
    """A NOTIFY_SOCKET for one start of one service, as systemd's (man 3 sd_notify). Keep the object
    while the service runs. The socket has no path, and is closed with the object.
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


def own_address() -> str:
    """Return ADDRESS:PORT on a loopback address that no other run uses."""
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))]) + ":9464"


def free_port() -> int:
    """Return a free port below 32,000. The system gives ports from 32,768 on to any connection, so
    a parallel run might get such a port first.
    """
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
