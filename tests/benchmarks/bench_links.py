"""The reliable link at 115200 baud: goodput, QoS 2 exchanges, and the CPU time that a gateway needs
for 32 boards.

A real gateway process serves pseudo-terminals. This process plays the boards (`DeviceLink`, with a
board's buffers and a key), and carries bytes only as fast as the line would. Goodput counts bytes
of MQTT, headers included, as a share of the line's 11,520 bytes a second.
"""

import array
import asyncio
import fcntl
import os
import signal
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from gateway.boards.admission import FILE
from gateway.links.reliable import Received, SessionStarted
from gateway.links.roles import DeviceLink
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.benchmarks.load import PUBCOMP, PUBREC, connect_packet
from tests.benchmarks.report import Figure, report
from tests.links.board import Pty
from tests.service import process

BAUD = 115_200
BYTES_PER_SECOND = BAUD / 10
MTU, WINDOW = 64, 2
"""Largest payload of a frame of the board, in bytes, and the board's window, in frames, as in
firmware/src/ow_link.c.
"""
KEY = bytes(range(16))
OVERHEAD = 7
"""Bytes of a keyed frame that are not payload."""
SECONDS = 6.0
BOARDS = 32
CATCH_UP = 256
"""If this process was scheduled late, a busy line may carry the missed bytes at once, but at most
this number.
"""
_FULL_FRAME = MTU + OVERHEAD
_PUBACK = 0x40


class Wire:
    """One direction of a line. `carry` returns how many of the waiting bytes the line has carried
    by now.
    """

    def __init__(self) -> None:
        self._free_at = 0.0

    def carry(self, waiting: int, now: float) -> int:
        if not waiting:
            self._free_at = now
            return 0
        self._free_at = max(self._free_at, now - CATCH_UP / BYTES_PER_SECOND)
        count = min(int((now - self._free_at) * BYTES_PER_SECOND), waiting)
        self._free_at += count / BYTES_PER_SECOND
        return count


class PacedBoard:
    """A board at a line with the bit rate `BAUD`. lost: share of its full frames that are damaged.
    clean: whether its session ends with its connection, by Clean Start and no Session Expiry
    Interval.
    """

    clean = True

    def __init__(self, line: Pty, name: str, lost: float = 0.0) -> None:
        self.link = DeviceLink(name, boot=1, mtu=MTU, window=WINDOW, baud=BAUD, key=KEY)
        self.received = bytearray()
        self.up = False
        self._line = line
        self._outgoing = bytearray()
        self._to_gateway = Wire()
        self._from_gateway = Wire()
        self._damage = lost / _FULL_FRAME
        self._random = Random(name)

    def step(self, now: float) -> None:
        """Let the line carry bytes until `now`."""
        events = self.link.tick(now)
        if data := self._read(now):
            events += self.link.receive(data, now)
        for event in events:
            if isinstance(event, SessionStarted):
                self.write(connect_packet(self.link.name, clean=self.clean), now)
            elif isinstance(event, Received):
                self.received += event.data
        self._outgoing += self.link.take()
        count = self._to_gateway.carry(len(self._outgoing), now)
        if count:
            os.write(
                self._line.master,
                bytes(
                    byte ^ (self._random.random() < self._damage) for byte in self._outgoing[:count]
                ),
            )
            del self._outgoing[:count]

    def write(self, data: bytes, now: float) -> None:
        assert self.link.session is not None
        self.link.write(self.link.session, data, now)

    def take_packet(self) -> bytes | None:
        """Return the next whole packet from the gateway, or None. Packets must be shorter than 128
        bytes.
        """
        if len(self.received) < 2 or len(self.received) < 2 + self.received[1]:
            return None
        size = 2 + self.received[1]
        packet = bytes(self.received[:size])
        del self.received[:size]
        return packet

    def _read(self, now: float) -> bytes:
        waiting = array.array("i", [0])
        try:
            fcntl.ioctl(self._line.master, termios.FIONREAD, waiting)
            count = self._from_gateway.carry(waiting[0], now)
            return os.read(self._line.master, count) if count else b""
        except OSError:  # the gateway has not opened the port
            return b""


def publish_packet(qos: int, packet_id: int, payload: bytes) -> bytes:
    body = b"\0\3t/1" + (packet_id.to_bytes(2, "big") if qos else b"") + b"\0" + payload
    length = (
        bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 0x7F | 0x80, len(body) >> 7))
    )
    return bytes((0x30 | qos << 1,)) + length + body


def provision(data: Path, names: list[str]) -> None:
    """Register boards with a key at a gateway."""
    data.mkdir(mode=0o750)
    registry = Registry(data / FILE)
    for name in names:
        registry.finish(registry.begin(Identity(name, KEY), "uno", ""), "")


@contextmanager
def gateway(names: list[str]) -> Iterator[tuple[int, list[Pty]]]:
    """Run a gateway with a pseudo-terminal for each of these boards. Yield its process id and the
    lines.
    """
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as folder:
        provision(Path(folder, "data"), names)
        lines = [Pty() for _ in names]
        for number, line in enumerate(lines):
            (Path(folder) / f"usb-{number}").symlink_to(line.path)
        config = Path(folder) / "gateway.toml"
        config.write_text(
            f'[gateway]\nname = "bench"\ndata = "{folder}/data"\n'
            f'[uplink]\nlanding = "file://{folder}/landing"\n[spool]\ntopics ='
            ' ["spool/#"]\n[[listener]]\nbind = "127.0.0.1:0"\n[[serial]]\nport ='
            f' "{folder}/usb-*"\nreceive_maximum = 8\n'
        )
        loop = asyncio.new_event_loop()
        running = loop.run_until_complete(process.start("--config", str(config)))
        try:
            loop.run_until_complete(running.ready())
            yield running.process.pid, lines
        finally:
            loop.run_until_complete(running.end(signal.SIGKILL))
            loop.close()
            for line in lines:
                os.close(line.master)


def drive(
    boards: list[PacedBoard],
    seconds: float,
    each: Callable[[PacedBoard, float], None],
    pause: float = 0.0003,
) -> float:
    """Run the boards for some seconds; `each` is called for each connected board. Return the
    seconds that have passed.
    """
    start = now = time.monotonic()
    while now < start + seconds:
        for board in boards:
            board.step(now)
            if board.up:
                each(board, now)
            elif (packet := board.take_packet()) is not None:
                assert (packet[0], packet[3]) == (0x20, 0), packet.hex()
                board.up = True
        time.sleep(pause)
        now = time.monotonic()
    return now - start


def connect(boards: list[PacedBoard]) -> None:
    deadline = time.monotonic() + 20
    while not all(board.up for board in boards):
        assert time.monotonic() < deadline, "boards do not connect"
        drive(boards, 0.05, lambda board, now: None)


def goodput(qos: int, size: int, lost: float = 0.0) -> float:
    """Return the goodput from board to gateway: the share of the line's bytes that are acknowledged
    bytes of MQTT. size: size of the payloads, in bytes. lost: share of damaged frames.
    """
    packet_ids = iter(range(1, 65536))

    def publish(board: PacedBoard, now: float) -> None:
        while (packet := board.take_packet()) is not None:
            assert packet[0] == _PUBACK, packet.hex()
            flight.discard(packet[2:4])
        assert board.link.session is not None
        while board.link.session.sending.unsent < 400 and len(flight) < 8:
            number = next(packet_ids) if qos else 0
            if qos:
                flight.add(number.to_bytes(2, "big"))
            board.write(publish_packet(qos, number, bytes(size)), now)

    flight: set[bytes] = set()
    with gateway(["bench"]) as (_, lines):
        board = PacedBoard(lines[0], "bench", lost)
        connect([board])
        before = board.link.statistics.payload_bytes_acknowledged
        seconds = drive([board], SECONDS, publish)
        assert board.link.statistics.sessions == 1
        return (
            (board.link.statistics.payload_bytes_acknowledged - before) / seconds / BYTES_PER_SECOND
        )


def commit_time(folder: Path) -> float:
    """Return the shortest time that this folder's disk takes to write and sync 4 kB, in seconds. A
    QoS 2 exchange waits for two commits, before PUBREC and before PUBCOMP.
    """
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(100):
            start = time.monotonic()
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
            times.append(time.monotonic() - start)
    return min(times)


def exchanges() -> tuple[float, float, float]:
    """Return QoS 2 exchanges a second with one in flight, and two upper limits. The first is the
    line's time for the four packets in their frames; the second includes two commits.
    """
    done = 0
    payload = bytes(20)
    waiting_for = 0

    def exchange(board: PacedBoard, now: float) -> None:
        nonlocal done, waiting_for
        packet = board.take_packet()
        if packet is not None:
            assert packet[0] == waiting_for, packet.hex()
            if packet[0] == PUBREC:
                board.write(b"\x62\2\0\1", now)
                waiting_for = PUBCOMP
                return
            done += 1
            waiting_for = 0
        if not waiting_for:
            board.write(publish_packet(2, 1, payload), now)
            waiting_for = PUBREC

    with gateway(["bench"]) as (_, lines):
        board = PacedBoard(lines[0], "bench")
        connect([board])
        seconds = drive([board], SECONDS, exchange)
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as folder:
        commits = 2 * commit_time(Path(folder))
    line = (len(publish_packet(2, 1, payload)) + 3 * 4 + 4 * OVERHEAD) / BYTES_PER_SECOND
    return done / seconds, 1 / line, 1 / (line + commits)


def cpu_of(pid: int) -> float:
    """Return the processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fleet() -> float:
    """Return the share of a core that a gateway needs for 32 boards, each with one QoS 2 reading a
    second.
    """
    due: dict[str, float] = {}

    def read_sensor(board: PacedBoard, now: float) -> None:
        while (packet := board.take_packet()) is not None:
            if packet[0] == PUBREC:
                board.write(b"\x62\2\0\1", now)
        if now >= due.setdefault(board.link.name, now + Random(board.link.name).random()):
            due[board.link.name] += 1.0
            board.write(publish_packet(2, 1, bytes(20)), now)

    names = [f"board-{number}" for number in range(BOARDS)]
    with gateway(names) as (pid, lines):
        boards = [PacedBoard(line, name) for line, name in zip(lines, names, strict=True)]
        connect(boards)
        drive(boards, 1.0, read_sensor, pause=0.004)
        before = cpu_of(pid)
        seconds = drive(boards, 2 * SECONDS, read_sensor, pause=0.004)
        return (cpu_of(pid) - before) / seconds


def main() -> bool:
    rate, line, limit = exchanges()
    return report(
        [
            Figure(
                "serial goodput, 32-byte payloads at QoS 0",
                goodput(0, 32),
                "of the line rate",
                "≥ 0.88",
            ),
            Figure(
                "serial goodput, 400-byte payloads at QoS 1",
                goodput(1, 400),
                "of the line rate",
                "≥ 0.88",
            ),
            Figure(
                "serial goodput, 1 % of frames lost",
                goodput(0, 32, lost=0.01),
                "of the line rate",
                "≥ 0.6",
            ),
            Figure(
                "serial QoS 2 exchanges, one in flight",
                rate,
                f"/s (at most {line:.0f} by the line, {limit:.0f} with its commits)",
                "≥ 120",
            ),
            Figure("gateway CPU, 32 boards at a reading a second", fleet(), "of a core", "≤ 0.25"),
        ]
    )


if __name__ == "__main__":
    sys.exit(not main())
