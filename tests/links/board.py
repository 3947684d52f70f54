"""A device on a pseudo-terminal, in the test's own event loop: the Python twin, which reads and
writes the master side.
"""

import asyncio
import os
import pty
import shutil
import tempfile
import tty
import weakref
from collections.abc import Callable

from gateway.links.reliable import Event, Received, Refused, SessionEnded, SessionStarted
from gateway.links.roles import DeviceLink
from gateway.links.transport import Transport

PATIENCE = 20.0
"""Seconds that a test waits for something that takes milliseconds on an idle machine."""


async def until(condition: Callable[[], object], *, patience: float = PATIENCE) -> None:
    """Wait until a condition holds, at most `patience` seconds."""
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.002)


class Pty:
    """A serial line whose far end the test holds. The line has a path of its own, because the
    kernel uses the number of a closed pseudo-terminal again. With the kernel's path, a gateway that
    still looks for a closed line could open another test's line.
    """

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        tty.setraw(slave)
        folder = tempfile.mkdtemp(prefix="line-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = f"{folder}/line"
        os.symlink(os.ttyname(slave), self.path)
        os.close(slave)
        os.set_blocking(self.master, False)

    def unplug(self) -> None:
        if self.master >= 0:
            os.unlink(self.path)
            asyncio.get_running_loop().remove_reader(self.master)
            os.close(self.master)
            self.master = -1


class Board:
    """A device at a line. streams: received bytes, for each session."""

    def __init__(
        self,
        line: Pty,
        name: str = "sensor-1",
        *,
        boot: int = 1,
        incarnation: int = 0,
        mtu: int = 56,
        window: int = 2,
        key: bytes | None = None,
        next_sequence: int = 1,
        power_on: bool = False,
    ) -> None:
        self.link = DeviceLink(
            name,
            boot=boot,
            incarnation=incarnation,
            mtu=mtu,
            window=window,
            key=key,
            next_sequence=next_sequence,
            power_on=power_on,
        )
        self.started: list[SessionStarted] = []
        self.ended: list[str] = []
        self.refused = False
        self.streams: list[bytearray] = []
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(line.master, self._on_readable)
        self._tick()

    @property
    def received(self) -> bytearray:
        """Bytes received in the present session."""
        return self.streams[-1]

    def write(self, data: bytes) -> None:
        assert self.link.session is not None
        self.link.write(self.link.session, data, self._loop.time())
        self._flush()

    def power_off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._line.master >= 0:
            self._loop.remove_reader(self._line.master)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._line.master, 4096)
        except BlockingIOError:
            return
        except OSError:  # no program has the port open: try again a little later
            self._loop.remove_reader(self._line.master)
            self._loop.call_later(0.02, self._listen)
            return
        self._handle(self.link.receive(data, self._loop.time()))

    def _listen(self) -> None:
        if self._line.master >= 0:
            self._loop.add_reader(self._line.master, self._on_readable)

    def _tick(self) -> None:
        self._timer = None
        self._handle(self.link.tick(self._loop.time()))

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case SessionStarted():
                    self.started.append(event)
                    self.streams.append(bytearray())
                case Received(_, data):
                    self.streams[-1] += data
                case Refused():
                    self.refused = True
                case SessionEnded(_, reason):
                    self.ended.append(reason)
        self._flush()

    def _flush(self) -> None:
        data = self.link.take()
        if data and self._line.master >= 0:
            os.write(self._line.master, data)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.link.deadline
        if deadline is not None:
            self._timer = self._loop.call_at(deadline + 0.001, self._tick)


class Broker:
    """A stand-in for the broker that a listener gets. connections: all accepted connections."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    def accept(self, transport: Transport) -> "Connection":
        self.connections.append(Connection(transport))
        return self.connections[-1]

    @property
    def last(self) -> "Connection":
        return self.connections[-1]


class Connection:
    """The receiver of one connection, which records the calls."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.received = bytearray()
        self.reason: str | None = None
        self.writable_calls = 0

    def receive(self, data: bytes) -> None:
        assert self.reason is None
        self.received += data

    def lost(self, reason: str) -> None:
        assert self.reason is None
        self.reason = reason

    def writable(self) -> None:
        self.writable_calls += 1
