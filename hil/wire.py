"""The wire between a board's serial port and the gateway's: a process of its own, `python -m hil.wire`.

In: the board's port, and a path at which to offer the gateway a port. Out: bytes at line rate in both directions, harmed by line noise,
and JSON Lines on standard output that say what happened: `{"t": ns, "event": "open" | "close" | "noise" | "count", …}` (hil/README.md).
When the gateway opens its port the board's is opened anew, so the board sees the DTR edge that resets an Uno. SIGTERM ends it.
"""

import contextlib
import errno
import json
import os
import select
import signal
import sys
import time
import tty
from pathlib import Path
from typing import Annotated

import typer

from gateway.errors import OncewayError
from hil.noise import KINDS, Noise

TICK = 0.002  # s between releases of bytes that wait for the line
CLOSED_POLL = 0.01  # s between looks at a port that nobody has open: the kernel reports its hang-up without end
DTR_LOW = 0.05  # s for which the board's port stays closed when the gateway opens its own
REPORT_EVERY = 0.5  # s between counts
BITS_PER_BYTE = 10  # 8N1
BUFFER = 4096  # bytes that wait for the line; more are left to the sender's port


class Line:
    """One direction: bytes wait for the line, cross it at its rate, and are harmed on the way. Time is given in seconds."""

    def __init__(self, direction: str, baud: int, noise: Noise) -> None:
        self.direction = direction
        self.counts = {"sent": 0, "arrived": 0, "dropped": 0, **dict.fromkeys(KINDS, 0)}
        self._rate = baud / BITS_PER_BYTE
        self._noise = noise
        self._waiting = bytearray()
        self._free_at = 0.0

    @property
    def room(self) -> int:
        return BUFFER - len(self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def send(self, data: bytes, now: float) -> None:
        if not self._waiting:
            self._free_at = max(self._free_at, now)
        self._waiting += data

    def arrive(self, now: float) -> tuple[bytes, list[dict[str, object]]]:
        """Bytes that have crossed the line by `now`, and an event for each that was harmed."""
        crossed = min(len(self._waiting), int((now - self._free_at) * self._rate))
        if crossed <= 0:
            return b"", []
        self._free_at += crossed / self._rate
        data, harms = self._noise.feed(bytes(self._waiting[:crossed]))
        del self._waiting[:crossed]
        self.counts["sent"] += crossed
        for harm in harms:
            self.counts[harm.kind] += 1
        return data, [
            {"event": "noise", "direction": self.direction, "kind": h.kind, "offset": h.offset, "sent": h.sent, "arrived": h.arrived}
            for h in harms
        ]

    def clear(self) -> None:
        """Bytes that had not crossed when an end was unplugged are gone."""
        self.counts["dropped"] += len(self._waiting)
        self._waiting.clear()


class Port:
    """The gateway's port: a pseudo-terminal whose slave side is offered at `link`."""

    def __init__(self, link: Path) -> None:
        self.fd, slave = os.openpty()
        tty.setraw(slave)
        self._slave = os.ttyname(slave)
        os.close(slave)  # from here on the master hangs up whenever nobody has the port open
        os.set_blocking(self.fd, False)
        self.link = link
        link.unlink(missing_ok=True)
        link.symlink_to(self._slave)

    def is_open(self) -> bool:
        poll = select.poll()
        poll.register(self.fd, 0)
        return not any(event & select.POLLHUP for _, event in poll.poll(0))

    def read(self, limit: int) -> bytes:
        try:
            return os.read(self.fd, limit) if limit else b""
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EIO:  # closed a moment ago; the next turn sees the hang-up
                return b""
            raise

    def remove(self) -> None:
        self.link.unlink(missing_ok=True)
        os.close(self.fd)


def open_board(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(fd)
    except OSError as error:
        raise OncewayError(f"cannot open the board's port ({error.strerror})", str(path)) from error
    return fd


class Wire:
    """Both lines, both ports, and the loop that moves bytes between them."""

    def __init__(self, board: Path, link: Path, up: Line, down: Line) -> None:
        self._board_path = board
        self._board = open_board(board)
        self._port = Port(link)
        self._up, self._down = up, down
        self._connected = False
        self._stop = False
        self._reported: dict[str, dict[str, int]] = {}
        self._report_at = 0.0

    def stop(self, *_: object) -> None:
        self._stop = True

    def run(self) -> None:
        """Carry bytes until `stop`. Raises OncewayError when the board's port goes away."""
        emit({"event": "ready", "port": str(self._port.link)})
        try:
            while not self._stop:
                self.turn()
        finally:
            self._report(final=True)
            self._port.remove()
            os.close(self._board)

    def turn(self) -> None:
        """Wait a moment for something to do, and do it."""
        poll = select.poll()
        poll.register(self._board, select.POLLIN if self._up.room else 0)
        if self._connected:
            poll.register(self._port.fd, select.POLLIN if self._down.room else 0)
        wait = TICK if self._up.busy or self._down.busy else CLOSED_POLL if not self._connected else REPORT_EVERY
        ready = dict(poll.poll(wait * 1000))
        if ready.get(self._port.fd, 0) & select.POLLHUP:
            self._closed()
        elif not self._connected and self._port.is_open():
            self._opened()
        now = time.monotonic()
        if self._board in ready:
            self._up.send(self._read_board(), now)
        if self._connected and self._port.fd in ready:
            self._down.send(self._port.read(self._down.room), now)
        self._deliver(self._up, self._port.fd if self._connected else None, now)
        self._deliver(self._down, self._board, now)
        if now >= self._report_at:
            self._report()
            self._report_at = now + REPORT_EVERY

    def _opened(self) -> None:
        os.close(self._board)
        time.sleep(DTR_LOW)
        self._board = open_board(self._board_path)
        self._connected = True
        emit({"event": "open"})

    def _closed(self) -> None:
        self._connected = False
        self._down.clear()
        emit({"event": "close"})

    def _read_board(self) -> bytes:
        try:
            data = os.read(self._board, self._up.room)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise OncewayError(f"the board's port has failed ({error.strerror})", str(self._board_path)) from error
        if not data and self._up.room:
            raise OncewayError("the board's port has gone away", str(self._board_path))
        return data

    def _deliver(self, line: Line, fd: int | None, now: float) -> None:
        data, events = line.arrive(now)
        written = 0
        if data and fd is not None:
            with contextlib.suppress(BlockingIOError):  # a full port overruns, as a UART does
                written = os.write(fd, data)
        line.counts["arrived"] += written
        line.counts["dropped"] += len(data) - written
        for event in events:
            emit(event)

    def _report(self, final: bool = False) -> None:
        counts = {"up": dict(self._up.counts), "down": dict(self._down.counts)}
        if final or counts != self._reported:
            emit({"event": "count", "final": final, **counts})
            self._reported = counts


def emit(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"t": time.monotonic_ns(), **event}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    board: Annotated[Path, typer.Option(help="The board's port.")],
    port: Annotated[Path, typer.Option(help="Where to offer the gateway a port (a symbolic link is made here).")],
    seed: Annotated[str, typer.Option(help="The same seed harms the same bytes.")] = "1",
    noise: Annotated[float, typer.Option(help="Share of bytes harmed, in each direction.", min=0, max=0.5)] = 0.0,
    baud: Annotated[int, typer.Option(help="Bits per second on the line.", min=300)] = 115200,
) -> None:
    """Carry bytes between a board's port and the gateway's, and harm some of them."""
    up = Line("up", baud, Noise(noise, f"{seed}/up"))
    down = Line("down", baud, Noise(noise, f"{seed}/down"))
    wire = Wire(board, port, up, down)
    signal.signal(signal.SIGTERM, wire.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for the rig, which ends this process by SIGTERM
    wire.run()


if __name__ == "__main__":
    try:
        app()
    except OncewayError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
