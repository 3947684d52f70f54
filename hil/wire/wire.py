"""The loop of a wire: bytes from port to port over two lines, and orders while it runs.

In: two ports, two lines, orders as JSON Lines on standard input:

- `{"do": "strike"}` with the fields of a `Command` (strike.py);
- `{"do": "unplug", "fault", "seconds"}`: the gateway's port goes away for this time;
- `{"do": "reset", "fault"}`: an edge of DTR at the board;
- `{"do": "forge", "fault"}`: another program greets as the board (forger.py);
- `{"do": "replug", "fault", "port", "seconds"}`: the gateway's port goes away, and after this time
  appears at another place;
- `{"do": "swap", "fault", "board", "flash"}`: another board's port and image; the gateway's port
  goes away for a moment.

An order with a `publication` waits until that many publications have left the board. Out: JSON
Lines on standard output with the events (hil/HISTORY.md). When the gateway opens its port, the wire
reopens the board's port, so the board sees the DTR edge that resets an Uno.
"""

import contextlib
import json
import os
import re
import select
import sys
import time
from pathlib import Path
from typing import Any

from gateway.errors import OncewayError
from hil.formats.frames import Hello
from hil.formats.keys import NO_KEY, UNO_PAGE, key_on_board
from hil.wire.forger import forge
from hil.wire.line import Line
from hil.wire.ports import Port, open_board
from hil.wire.strike import Command
from hil.wire.tap import Tap

TICK = 0.002  # s between releases of bytes that wait for the line
# s between looks at a closed port: the kernel reports its hang-up without end
CLOSED_POLL = 0.01
DTR_LOW = 0.05  # s for which the board's port stays closed when the gateway opens its own
SWAP = 0.5  # s for which the gateway's port is away while a board is swapped
REPORT_EVERY = 0.5  # s between counts
FORGED_WATCH = 6.0  # s after a forgery, in which the board must not greet again
SEEK_EVERY = 0.1  # s between looks for a board's port that has gone away


class Wire:
    """The wire of one board: both lines, both ports, and the loop that moves bytes between them."""

    def __init__(
        self,
        board: Path,
        link: Path,
        up: Line,
        down: Line,
        orders: int | None = None,
        *,
        baud: int = 115200,
        real: bool = False,
        flash: Path | None = None,
        page: int = UNO_PAGE,
    ) -> None:
        """Create the wire. orders: file descriptor to read orders from. real: the board's port may
        go away and come back. flash, page: file and address of the board's identity page.
        """
        self._flash, self._page = flash, page
        self._board_path = board
        self._baud = baud
        self._real = real
        self._board: int | None = open_board(board, baud)
        self._seek_at = 0.0
        self._link = link
        self._port: Port | None = Port(link)
        self._lines = {"up": up, "down": down}
        self._up, self._down = up, down
        self._orders = orders
        self._ordered = b""
        self._placed: list[dict[str, Any]] = []  # orders that wait for a publication, by place
        self._connected = False
        self._stop = False
        self._plug_at = 0.0
        self._tap = Tap(self.tapped, self._key)
        self._publications = 0
        self._reported_count = 0  # number reported to the lines
        self._forged: list[tuple[float, dict[str, Any], Hello | None, int]] = []
        self._newest: int | None = None  # packet identifier of the newest publication
        self._reported: dict[str, object] = {}
        self._report_at = 0.0

    def _key(self) -> bytes:
        return key_on_board(self._flash, self._page) if self._flash else NO_KEY

    def stop(self, *_: object) -> None:
        self._stop = True

    def run(self) -> None:
        """Carry bytes until `stop`. Raises OncewayError if a simulated board's port goes away."""
        emit({"event": "ready", "port": str(self._link)})
        try:
            while not self._stop:
                self.turn()
        finally:
            self._tap.close()
            for line in self._lines.values():
                for event in line.replayed():
                    emit(event)
            self._report(final=True)
            if self._port:
                self._port.remove()
            if self._board is not None:
                os.close(self._board)

    def turn(self) -> None:
        """Wait for events, for a short time at most, and handle them."""
        poll = select.poll()
        if self._board is not None:
            poll.register(self._board, select.POLLIN if self._up.room else 0)
        if self._port and self._connected:
            poll.register(self._port.fd, select.POLLIN if self._down.room else 0)
        if self._orders is not None:
            poll.register(self._orders, select.POLLIN)
        wait = (
            TICK
            if self._up.busy or self._down.busy
            else CLOSED_POLL
            if not self._connected or self._board is None
            else REPORT_EVERY
        )
        ready = dict(poll.poll(wait * 1000))
        now = time.monotonic()
        if self._orders in ready:
            self._read_orders(now)
        self._follow_port(ready, now)
        if self._board is None:
            self._seek_board(now)
        elif self._board in ready:
            for frame in frames(self._read_board(self._board)):
                self._tap.feed("up", frame)
                self._up.send(frame, now)
                self.obey_placed(now)
        if self._port and self._connected and self._port.fd in ready:
            data = self._port.read(self._down.room)
            self._tap.feed("down", data)
            self._down.send(data, now)
        self._deliver(self._up, self._port.fd if self._port and self._connected else None, now)
        self._deliver(self._down, self._board, now)
        self._report_forged(now)
        if now >= self._report_at:
            self._report()
            self._report_at = now + REPORT_EVERY

    def _follow_port(self, ready: dict[int, int], now: float) -> None:
        """Note whether the gateway has the port open. Plug an unplugged port in at `_plug_at`."""
        if self._port is None:
            if now >= self._plug_at:
                self._port = Port(self._link)
        elif ready.get(self._port.fd, 0) & select.POLLHUP:
            self._closed()
        elif not self._connected and self._port.is_open():
            self._opened()

    def _read_orders(self, now: float) -> None:
        assert self._orders is not None  # noqa: S101
        data = os.read(self._orders, 65536)
        if not data:
            self._orders = None
        *lines, self._ordered = (self._ordered + data).split(b"\n")
        for line in lines:
            self.take(json.loads(line), now)

    def take(self, order: dict[str, Any], now: float = 0.0) -> None:
        """Carry out an order; if it has a `publication`, once the board has sent that many."""
        if "publication" in order:
            self._placed = sorted([*self._placed, order], key=lambda one: one["publication"])
            emit({"event": "armed", "fault": order["fault"]})
        else:
            self._obey(order, now)

    def obey_placed(self, now: float) -> None:
        """Note the board's new publications, and carry out the orders that waited for them."""
        if self._publications > self._reported_count:
            self._reported_count = self._publications
            for line in self._lines.values():
                line.published(self._publications)
        while self._placed and self._placed[0]["publication"] <= self._publications:
            self._obey({**self._placed.pop(0), "publication": self._publications}, now)

    def tapped(self, event: dict[str, Any]) -> None:
        """Pass on an event of the tap, and count new publications. Their identifiers show whether
        they are new. DUP does not: a starting board sets it in all publications that it holds.
        """
        if (event["event"], event.get("direction")) == ("publish", "up") and event["id"]:
            ahead = (event["id"] - self._newest) % 0x10000 if self._newest is not None else 1
            if 0 < ahead < 0x8000:
                self._newest = event["id"]
                self._publications += 1
        emit(event)

    def _obey(self, order: dict[str, Any], now: float) -> None:
        match order.pop("do"):
            case "strike":
                command = Command(**order)
                self._lines[command.direction].strike(command)
            case "unplug":
                self._unplug(now + order.pop("seconds"))
                emit({"event": "struck", "action": "unplug", **order})
            case "replug":
                self._unplug(now + order.pop("seconds"))
                self._link = Path(order["port"])
                emit({"event": "struck", "action": "replug", **order})
            case "forge":
                self._forge(order, now)
            case "reset":
                self._edge()
                emit({"event": "struck", "fault": order["fault"], "action": "reset"})
            case "swap":
                self._unplug(now + SWAP)
                self._up.clear()
                self._newest = None
                self._board_path = Path(order["board"])
                self._flash = Path(order["flash"]) if "flash" in order else None
                self._edge()
                emit({"event": "struck", "fault": order["fault"], "action": "swap"})

    def _forge(self, order: dict[str, Any], now: float) -> None:
        """Send forged HELLOs to the gateway, between the bytes of the board. Watch the effect."""
        first, hello = self._tap.first_hello, self._tap.hello
        forged = forge(first, hello) if first and hello else []
        if self._port and self._connected:
            data = b"\0" + b"".join(forged)
            # the forged bytes may end a frame of the board on its way, and arrive as they are
            self._tap.arrived("up", data[: os.write(self._port.fd, data)])
        order_done = {**order, "frames": len(forged)}
        self._forged.append((now + FORGED_WATCH, order_done, hello, self._tap.refusals))

    def _report_forged(self, now: float) -> None:
        while self._forged and self._forged[0][0] <= now:
            _, order_done, before, refusals = self._forged.pop(0)
            hello = self._tap.hello
            # a board that has started in the meantime greets for another reason
            again = hello and before and hello.boot == before.boot and hello != before
            since = {"refusals": self._tap.refusals - refusals, "greetings": int(bool(again))}
            emit({"event": "struck", "action": "forge", **order_done, **since})

    def _unplug(self, plug_at: float) -> None:
        if self._port:
            self._port.remove()
            self._port, self._plug_at = None, plug_at
        if self._connected:
            self._closed()

    def _edge(self) -> None:
        if self._board is not None:
            os.close(self._board)
            time.sleep(DTR_LOW)
            self._board = self._opened_board()

    def _opened(self) -> None:
        self._edge()
        self._connected = True
        emit({"event": "open"})

    def _closed(self) -> None:
        self._connected = False
        self._down.clear()
        emit({"event": "close"})

    def _read_board(self, fd: int) -> bytes:
        try:
            data = os.read(fd, self._up.room)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._board_gone(
                OncewayError(
                    f"the board's port has failed ({error.strerror})", str(self._board_path)
                )
            )
            return b""
        if not data and self._up.room:
            self._board_gone(OncewayError("the board's port has gone away", str(self._board_path)))
        return data

    def _board_gone(self, error: OncewayError) -> None:
        """Raise the error for a simulated board. Close a real board's port: it may come back."""
        if not self._real:
            raise error
        if self._board is not None:
            os.close(self._board)
        self._board = None
        emit({"event": "gone"})

    def _seek_board(self, now: float) -> None:
        if now >= self._seek_at:
            self._seek_at = now + SEEK_EVERY
            with contextlib.suppress(OncewayError):
                self._board = open_board(self._board_path, self._baud)
                emit({"event": "back"})

    def _opened_board(self) -> int | None:
        try:
            return open_board(self._board_path, self._baud)
        except OncewayError as error:
            self._board = None
            self._board_gone(error)
            return None

    def _deliver(self, line: Line, fd: int | None, now: float) -> None:
        data, events = line.arrive(now)
        written = 0
        if data and fd is not None:
            try:
                written = os.write(fd, data)
            except BlockingIOError:
                pass  # the port is full: the bytes are lost, as in a UART
            except OSError as error:
                if fd != self._board:
                    raise
                self._board_gone(
                    OncewayError(
                        f"the board's port has failed ({error.strerror})", str(self._board_path)
                    )
                )
        self._tap.arrived(line.direction, data[:written])
        line.counts["arrived"] += written
        line.counts["dropped"] += len(data) - written
        for event in events:
            emit(event)

    def _report(self, final: bool = False) -> None:
        link = {direction: dict(counts) for direction, counts in self._tap.counts.items()}
        counts = {"up": dict(self._up.counts), "down": dict(self._down.counts), "link": link}
        if final or counts != self._reported:
            emit({"event": "count", "final": final, **counts})
            self._reported = counts


def frames(data: bytes) -> list[bytes]:
    """Cut `data` after each zero byte, which ends a frame (gateway/links/FORMAT.md)."""
    return [piece for piece in re.split(rb"(?<=\0)", data) if piece]


def emit(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"t": time.monotonic_ns(), **event}, separators=(",", ":")) + "\n")
    sys.stdout.flush()
