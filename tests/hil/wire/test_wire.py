"""The wire as a process: it carries bytes at line rate, reports every harm, and follows the
gateway's opening and closing of its port.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.links.greeter import Greeter
from gateway.links.handshake import Hello
from gateway.links.keys import NO_KEY
from gateway.links.roles import DeviceLink, GatewayLink
from hil.wire.line import Line
from hil.wire.ports import open_board
from hil.wire.wire import Wire

Event = dict[str, Any]


class Rig:
    """A wire process between a pseudo-terminal that plays the board and a port that plays the
    gateway.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.link = folder / "board"
        self.board, slave = self.plug()
        self.port = folder / "port"
        argv = [
            sys.executable,
            "-m",
            "hil.wire",
            "--board",
            str(self.link),
            "--port",
            str(self.port),
            *options,
        ]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.events: list[Event] = []
        self.gateway = -1
        self.expect("ready")
        os.close(slave)

    def plug(self) -> tuple[int, int]:
        """Plug in a board. Return its side and the wire's side of a new pseudo-terminal. The wire
        finds its side under the name that it knows.
        """
        board, slave = os.openpty()
        tty.setraw(slave)
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(os.ttyname(slave))
        return board, slave

    def unplug(self) -> None:
        """Unplug the board. Its name goes first: the pseudo-terminal's number is free then, and
        another process may get it.
        """
        self.link.unlink()
        os.close(self.board)

    def expect(self, kind: str) -> Event:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == kind:
                return self.events[-1]
        raise AssertionError(
            f"the wire ended without {kind!r}:"
            f" {self.process.stderr.read() if self.process.stderr else ''}"
        )

    def open(self) -> None:
        self.gateway = os.open(self.port, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.gateway)
        self.expect("open")

    def reopen(self) -> None:
        """Open the port again, as a gateway does when its port has come back."""
        os.close(self.gateway)
        self.gateway = -1
        while not self.port.exists():
            time.sleep(0.01)
        self.open()

    def end(self) -> list[Event]:
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, err
        self.events += [json.loads(line) for line in out.splitlines()]
        return self.events


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(*options: str) -> Rig:
        made.append(Rig(tmp_path, *options))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()
        os.close(one.board)
        if one.gateway >= 0:
            os.close(one.gateway)


def read(fd: int, count: int) -> bytes:
    """Read `count` bytes, or fewer if no more come for a long time."""
    data = b""
    while len(data) < count and select.select([fd], [], [], 20.0)[0]:
        data += os.read(fd, count - len(data))
    return data


def test_carries_both_ways_at_line_rate(rig: Callable[..., Rig]) -> None:
    wire = rig("--baud", "19200")
    wire.open()
    sent = bytes(range(256)) * 4
    start = time.monotonic()
    os.write(wire.board, sent)
    os.write(wire.gateway, sent[::-1])
    assert read(wire.gateway, len(sent)) == sent
    assert read(wire.board, len(sent)) == sent[::-1]
    assert time.monotonic() - start >= len(sent) * 10 / 19200
    final = wire.end()[-1]
    assert final["final"]
    assert final["up"]["sent"] == final["up"]["arrived"] == final["down"]["arrived"] == len(sent)


def test_reports_every_harm(rig: Callable[..., Rig]) -> None:
    wire = rig("--noise", "0.02", "--seed", "7")
    wire.open()
    sent = os.urandom(3000)
    os.write(wire.board, sent)
    while (arrived := wire.expect("count")["up"]["arrived"]) < 2900:
        pass
    data = read(wire.gateway, arrived)
    events = wire.end()
    assert events[-1]["up"]["sent"] == 3000
    data += read(wire.gateway, events[-1]["up"]["arrived"] - arrived)
    harms = [event for event in events if event["event"] == "noise"]
    out = bytearray()
    by_offset = {event["offset"]: event for event in harms}
    for offset, byte in enumerate(sent):
        harm = by_offset.get(offset, {"kind": None})
        if harm["kind"] in ("corrupt", "insert"):
            out.append(harm["arrived"])
        if harm["kind"] in ("insert", None):
            out.append(byte)
    assert data == bytes(out)
    assert {event["direction"] for event in harms} == {"up"}
    assert 30 <= len(harms) <= 90
    assert sum(events[-1]["up"][kind] for kind in ("corrupt", "lose", "insert")) == len(harms)


def test_bytes_without_a_listener_are_lost(rig: Callable[..., Rig]) -> None:
    wire = rig()
    os.write(wire.board, b"before")
    while wire.expect("count")["up"]["dropped"] < 6:
        pass
    wire.open()
    os.write(wire.board, b"after")
    assert read(wire.gateway, 5) == b"after"


def test_the_port_of_a_real_board_may_go_away_and_come_back(rig: Callable[..., Rig]) -> None:
    wire = rig("--real")
    wire.open()
    wire.unplug()
    wire.expect("gone")
    os.write(wire.gateway, b"nobody hears this")
    while wire.expect("count")["down"]["dropped"] < 17:
        pass
    wire.board, slave = wire.plug()
    wire.expect("back")
    os.close(slave)
    os.write(wire.board, b"here")
    assert read(wire.gateway, 4) == b"here"
    os.write(wire.gateway, b"and there")
    assert read(wire.board, 9) == b"and there"


def test_a_real_board_is_listened_to(rig: Callable[..., Rig]) -> None:
    wire = rig("--real", "--noise", "0.4")
    wire.open()
    os.write(wire.board, Hello(3, 0, 7, 9, 56, 2, "real-1", True).to_bytes())
    told = wire.expect("hello")  # reported as it left the board, although the wire may harm it
    del told["t"]
    assert told == {
        "event": "hello",
        "name": "real-1",
        "boot": 3,
        "incarnation": 7,
        "next_sequence": 9,
        "power_on": True,
    }


def test_each_opening_by_the_gateway_is_an_edge_of_dtr_for_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, slave = os.openpty()
    opened: list[Path] = []
    monkeypatch.setattr(
        "hil.wire.wire.open_board", lambda path, baud: opened.append(path) or open_board(path, baud)
    )
    lines = (Line(direction, 115200) for direction in ("up", "down"))
    wire = Wire(Path(os.ttyname(slave)), tmp_path / "port", *lines)
    assert len(opened) == 1
    for opening in (2, 3):
        gateway = os.open(tmp_path / "port", os.O_RDWR | os.O_NOCTTY)
        wire.turn()
        assert len(opened) == opening
        os.write(gateway, b"hello")
        wire.turn()
        assert len(opened) == opening
        os.close(gateway)
        wire.turn()
    os.close(board)
    os.close(slave)


def order(wire: Rig, **order: object) -> None:
    assert wire.process.stdin is not None
    wire.process.stdin.write(json.dumps({"fault": "uno-1/x-1", **order}) + "\n")
    wire.process.stdin.flush()


def test_an_ordered_strike_is_carried_out_and_reported(rig: Callable[..., Rig]) -> None:
    wire = rig()
    wire.open()
    order(wire, do="strike", action="lose", direction="down", after=10, length=5)
    order(wire, do="strike", action="duplicate", direction="up", after=0, length=2)
    # The wire reads its orders before the bytes of a turn, so these are in force.
    os.write(wire.gateway, b"0123456789abcdefghij")
    os.write(wire.board, b"xyz")
    assert read(wire.board, 15) == b"0123456789fghij"
    assert read(wire.gateway, 5) == b"xyxyz"
    told = {
        event["direction"]: (event["offset"], event["bytes"])
        for event in wire.end()
        if event["event"] == "struck"
    }
    assert told == {"down": (10, 5), "up": (0, 2)}


def test_a_strike_for_a_publication_falls_after_it_however_the_bytes_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only new publications count, by their packet identifier: a retransmission does not count. DUP
    does not matter, because a publication that the board stored before a power cut is new and has
    DUP.
    """
    said: list[Event] = []
    monkeypatch.setattr("hil.wire.wire.emit", said.append)
    board, slave = os.openpty()
    tty.setraw(slave)
    up = Line("up", 115200)
    wire = Wire(Path(os.ttyname(slave)), tmp_path / "port", up, Line("down", 115200))
    for publication, name in ((2, "uno-1/x-1"), (3, "uno-1/x-2")):
        strike = {"action": "lose", "direction": "up", "after": 3, "length": 2}
        wire.take({"do": "strike", "fault": name, "publication": publication, **strike})
    assert [event["event"] for event in said] == ["armed", "armed"]
    for identifier in (9, 9, 10):
        wire.tapped({"event": "publish", "direction": "up", "id": identifier})
    up.send(b"0123456789", 0.0)
    wire.obey_placed(0.0)
    up.send(b"abcdefghij", 0.0)
    wire.tapped({"event": "publish", "direction": "down", "id": 40})
    wire.obey_placed(0.0)
    out, events = up.arrive(60.0)
    assert out == b"0123456789abcfghij"
    [told] = events
    assert (told["fault"], told["publication"], told["offset"]) == ("uno-1/x-1", 2, 13)
    os.close(board)
    os.close(slave)


def test_a_forger_may_end_a_frame_of_the_board(rig: Callable[..., Rig]) -> None:
    """The board has sent a frame except for its last byte. The first bytes of the forged frame end
    this frame, so the gateway receives the board's frame whole.
    """
    wire = rig("--baud", "1000000")
    wire.open()
    device = DeviceLink("sensor-1", boot=5, key=NO_KEY)
    gateway = GatewayLink(Greeter(1))

    def carry(last: int | None = None) -> None:
        """Carry the device's bytes to the gateway, without those from index `last` on, if given.
        Then carry the gateway's answer to the device.
        """
        device.tick(0.0)
        said = device.take()[:last]
        os.write(wire.board, said)
        gateway.receive(read(wire.gateway, len(said)), 0.0)
        answer = gateway.take()
        os.write(wire.gateway, answer)
        device.receive(read(wire.board, len(answer)), 0.0)

    gateway.open(0.0)
    for _ in range(3):
        carry()
    assert device.session is not None
    device.write(device.session, b"\x10", 0.0)
    carry(last=-1)
    assert gateway.session is not None
    order(wire, do="forge")
    while not gateway.session.receiving.expected:
        gateway.receive(read(wire.gateway, 1), 0.0)
    answer = gateway.take()
    os.write(wire.gateway, answer)
    assert read(wire.board, len(answer)) == answer
    assert "unarrived" not in [event["event"] for event in wire.end()]


def test_an_unplugged_port_hangs_up_and_comes_back(rig: Callable[..., Rig]) -> None:
    wire = rig()
    wire.open()
    order(wire, do="unplug", seconds=0.1)
    assert wire.expect("struck")["action"] == "unplug"
    assert os.read(wire.gateway, 1) == b""
    with pytest.raises(OSError, match="Input/output error"):
        os.write(wire.gateway, b"x")
    wire.reopen()
    os.write(wire.board, b"again")
    assert read(wire.gateway, 5) == b"again"


def test_board_at_another_port_is_heard_at_that_port(
    rig: Callable[..., Rig], tmp_path: Path
) -> None:
    wire, elsewhere = rig(), tmp_path / "elsewhere"
    wire.open()
    order(wire, do="replug", port=str(elsewhere), seconds=0.1)
    assert wire.expect("struck")["action"] == "replug"
    assert os.read(wire.gateway, 1) == b""
    deadline = time.monotonic() + 10
    while not elsewhere.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    other = os.open(elsewhere, os.O_RDWR | os.O_NOCTTY)
    assert wire.expect("open")
    os.write(wire.board, b"again")
    assert read(other, 5) == b"again"
    os.close(other)


def test_a_reset_is_an_edge_of_dtr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board, slave = os.openpty()
    opened: list[Path] = []
    monkeypatch.setattr(
        "hil.wire.wire.open_board", lambda path, baud: opened.append(path) or open_board(path, baud)
    )
    orders, ordering = os.pipe()
    wire = Wire(
        Path(os.ttyname(slave)), tmp_path / "port", Line("up", 115200), Line("down", 115200), orders
    )
    os.write(ordering, b'{"do":"reset",')
    wire.turn()
    os.write(ordering, b'"fault":"uno-1/board-reset-1"}\n')
    wire.turn()
    assert len(opened) == 2
    os.close(ordering)
    wire.turn()  # no more orders come
    for fd in (board, slave, orders):
        os.close(fd)


def test_another_board_takes_the_place_of_a_dead_one(rig: Callable[..., Rig]) -> None:
    wire = rig()
    wire.open()
    new, slave = os.openpty()
    tty.setraw(slave)
    order(wire, do="swap", board=os.ttyname(slave))
    assert wire.expect("struck")["action"] == "swap"
    os.close(slave)
    assert os.read(wire.gateway, 1) == b""  # the gateway's port disappears
    wire.reopen()
    os.write(wire.board, b"old")
    os.write(new, b"new")
    os.write(wire.gateway, b"welcome")
    assert read(wire.gateway, 3) == b"new"
    assert read(new, 7) == b"welcome"
    wire.end()
    os.close(new)


def test_a_board_that_goes_away(rig: Callable[..., Rig], tmp_path: Path) -> None:
    wire = rig()
    os.close(wire.board)
    _, err = wire.process.communicate(timeout=30)
    wire.board = os.open(tmp_path, os.O_RDONLY)
    assert wire.process.returncode == 1
    assert "the board's port has gone away" in err
    assert not wire.port.is_symlink()


def test_missing_board_is_reported(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "hil.wire",
        "--board",
        str(tmp_path / "none"),
        "--port",
        str(tmp_path / "port"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"error: {tmp_path}/none: cannot open the board's port (No such file or directory)\n"
    )
