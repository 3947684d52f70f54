"""The paths of three packets through the gateway: the files on each path, and the number of calls.

`python -m tests.walks` prints each step of each path. `python -m tests.house` compares the numbers
with their limits. New developers can follow a packet through these files, in this order.
"""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast
from unittest.mock import patch

from gateway.links.greeter import Greeter
from gateway.links.reliable import Received
from gateway.links.roles import DeviceLink
from gateway.links.serial_port import SerialPort
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connect, Publish, Pubrec, Version
from tests.broker.harness import FOREVER, Client, World
from tests.site.wiring.test_local_member import Sites

PRODUCT = str(Path(__file__).parents[1] / "gateway")


@dataclass
class Walk:
    """The calls on a packet's path. steps: for each call, its depth and "FILE:FUNCTION", in
    order.
    """

    steps: list[tuple[int, str]] = field(default_factory=list)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of calls from one file of the product to another."""

    @property
    def files(self) -> list[str]:
        """Return the files on the path, in order of their first call."""
        return list(dict.fromkeys(step.partition(":")[0] for _, step in self.steps))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of files that call each other in both directions."""
        return [(a, b) for a, b in self.calls if a < b and (b, a) in self.calls]


_PARTS = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")
"""Parts of functions that have their own frames in some versions of Python."""


def _file(code: CodeType) -> str | None:
    """Return the file of a function of the product. Return None for other functions, and for parts
    of functions.
    """
    path = code.co_filename
    if code.co_name in _PARTS:
        return None
    return path[len(PRODUCT) + 1 :] if path.startswith(PRODUCT) else None


@contextmanager
def walking() -> Iterator[Walk]:
    """Yield a walk. Record in it all calls of the product's functions that the block makes."""
    walk = Walk()
    depth = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        if event not in ("call", "return") or (file := _file(frame.f_code)) is None:
            return
        if event == "return":
            depth -= 1
            return
        walk.steps.append((depth, f"{file}: {frame.f_code.co_qualname}"))
        depth += 1
        caller = frame.f_back
        while caller is not None and caller.f_code.co_name in _PARTS:
            caller = caller.f_back
        if caller is not None and (other := _file(caller.f_code)) not in (None, file):
            walk.calls[cast(str, other), file] += 1

    before = sys.getprofile()
    gc.disable()  # garbage collection would call callbacks of other code
    sys.setprofile(look)
    try:
        yield walk
    finally:
        sys.setprofile(before)
        gc.enable()


@cache
def publish() -> Walk:
    """Follow a QoS 2 PUBLISH for the spool and a subscriber, to PUBREC and the delivery."""
    world = World()
    writer, reader = world.durable("writer"), world.durable("reader")
    reader.subscribe("spool/t")
    for number in (1, 2, 3):
        writer.publish("spool/t", "m", 2, packet_id=number)
        writer.take(Pubrec)
        reader.take(Publish)
    packet = encode(Publish("spool/t", b"m", 2, 4), Version.V5)
    with walking() as walk, _deaf(writer, reader):
        writer.send_bytes(packet)
    assert writer.raw.endswith(b"\x50\x02\x00\x04")
    assert reader.raw.endswith(b"spool/t\x00\x04\x00m")
    return walk


@contextmanager
def _deaf(*clients: Client) -> Iterator[None]:
    """Stop these clients from parsing their input, because they use the product's parser."""
    for client in clients:
        client.deaf = True
    yield


@cache
def connect_elsewhere() -> Walk:
    """Follow the CONNECT of a client whose session is at another gateway, to CONNACK."""
    sites = Sites("a", "b")
    for name in ("d", "c"):  # the steps of d fill caches
        client = sites.connect("a", name)
        client.subscribe("t")
        client.break_line()
        sites.pass_time(1)
    sites.connect("b", "d", wait=2).break_line()
    sites.pass_time(1)
    client = sites["b"].open()
    packet = encode(Connect("c", Version.V5, False, properties=FOREVER), Version.V5)
    with walking() as walk, _deaf(client):
        client.bring(packet)
        while not client.raw:
            if not sites.step():
                sites.tick()
    assert client.raw[2] == 1, "Session Present"
    return walk


class _Tty:
    """The gateway's end of a serial line in memory."""

    fd = 7

    def __init__(self, path: str, baud: int) -> None:
        self.came = b""
        self.written: list[bytes] = []

    def read(self, length: int) -> bytes:
        data, self.came = self.came[:length], self.came[length:]
        return data

    def write(self, data: bytes) -> int:
        self.written.append(data)
        return len(data)

    def close(self) -> None: ...


class _Board:
    """A board and the gateway's serial port, connected by a `_Tty`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._read: Callable[[], None] = lambda: None
        loop = cast(Any, world.loop)
        loop.add_reader = lambda fd, *call: setattr(self, "_read", partial(*call))
        loop.remove_reader = lambda fd: None
        loop.call_at = lambda when, call, *args: loop.call_later(when - loop.now, call, *args)
        self.tty = _Tty("", 0)
        self.link = DeviceLink("b", boot=1, incarnation=7)
        self.received = b""
        with (
            patch("asyncio.get_running_loop", lambda: cast(asyncio.AbstractEventLoop, loop)),
            patch("gateway.links.serial_port.Tty", lambda path, baud: self.tty),
        ):
            accept = world.engine.accept(world.policy)
            self.port = SerialPort("line", 115_200, "serial", accept, Greeter(1))
            self.port.open()
        while self.link.session is None:
            loop.pass_time(1.0)
            self.link.tick(loop.now)
            self.exchange()

    def say(self, packet: bytes) -> None:
        assert self.link.session is not None
        self.link.write(self.link.session, packet, self.world.loop.now)

    def exchange(self) -> None:
        """Carry bytes in both directions until none are left."""
        while True:
            self.tty.came = self.link.take()
            if self.tty.came:
                self._read()
            self.world.turn()
            written, self.tty.written = b"".join(self.tty.written), []
            for event in self.link.receive(written, self.world.loop.now):
                if isinstance(event, Received):
                    self.received += event.data
            if not written:
                return

    def bring(self, frames: bytes) -> None:
        """Let the gateway read these frames from the board's serial line, and run until no work
        remains.
        """
        self.tty.came = frames
        self._read()
        self.world.turn()


@cache
def serial_publish() -> Walk:
    """Follow a QoS 2 PUBLISH over a serial line, to the frame with PUBREC."""
    board = _Board(World())
    board.say(encode(Connect("b", Version.V5, clean_start=False, properties=FOREVER), Version.V5))
    board.exchange()
    for number in (1, 2, 3):
        board.say(encode(Publish("spool/b", b"m", 2, number), Version.V5))
        board.exchange()
    board.received = b""
    board.say(encode(Publish("spool/b", b"m", 2, 4), Version.V5))
    frames = board.link.take()
    with walking() as walk:
        board.bring(frames)
    board.exchange()
    assert board.received == b"\x50\x02\x00\x04", board.received
    return walk


WALKS = {
    "QoS 2 PUBLISH": publish,
    "serial PUBLISH": serial_publish,
    "CONNECT elsewhere": connect_elsewhere,
}


def main() -> None:
    for name, walk in WALKS.items():
        found = walk()
        print(f"{name}: {walk.__doc__}")
        for depth, step in found.steps:
            print("  " * depth, step)
        print(f"{len(found.files)} files, {len(found.steps)} calls; both ways: {found.pairs}\n")


if __name__ == "__main__":
    main()
