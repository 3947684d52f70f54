"""Disk writes and CPU time for readings of ten sensors, one a second each: the life of an SD card.

First ten boards on serial lines, then ten clients on TCP, each with a persistent session and one
QoS 2 reading a second. Nothing is delivered to subscribers. Bytes are from /proc/PID/io, for the
gateway and for the uplink, which cuts, lands and deletes the readings. They include the log, the
checkpoints (the last one is made at the end, so that none is missing), and the files that land. CPU
time is the gateway's alone. The peer is Debian's mosquitto with `autosave_on_changes`, which writes
everything it keeps after each change. It has no spool, so a subscriber receives each reading from
it.
"""

import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Protocol

from tests.benchmarks.bench_links import PacedBoard, provision
from tests.benchmarks.bench_writes import uplink
from tests.benchmarks.brokers import BrokerProcess, has_peer, mosquitto, onceway, written_by
from tests.benchmarks.load import (
    PUBCOMP,
    PUBREC,
    connect_packet,
    publish_packet,
    subscribe_packet,
)
from tests.benchmarks.report import Figure, main
from tests.links.board import Pty

SENSORS = 10
SECONDS = 60.0
_WARM_UP_S = 5.0
_PAUSE_S = 0.002
_PUBREL = b"\x62\2"
_PAYLOAD = bytes(range(26))
_UPLINK = """
[uplink]
landing = "file://{folder}/landing"
batch_count = 500
batch_age_s = 20
"""
_AUTOSAVE = """
persistence true
persistence_location {folder}/
autosave_on_changes true
autosave_interval 1
"""

CARD_BYTES = 32e9
CARD_CYCLES = 500
"""Smallest number of erasures that a cell of a consumer card endures."""
CARD_AMPLIFICATION = 4
"""Bytes that such a card writes for each byte of a small write, as a rule of thumb."""


class Sensor(Protocol):
    """A board or a client, as `drive` needs it. up: whether it is connected."""

    up: bool

    def step(self, now: float) -> None: ...

    def write(self, data: bytes, now: float) -> None: ...

    def take_packet(self) -> bytes | None: ...


class KeptBoard(PacedBoard):
    """A board with a persistent session."""

    clean = False


class Client:
    """A sensor that publishes over TCP."""

    def __init__(self, port: int, name: str) -> None:
        self.up = False
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._received = bytearray()
        self.write(connect_packet(name, clean=False), 0.0)

    def step(self, now: float) -> None:
        with suppress(BlockingIOError):
            self._received += self._socket.recv(65536)

    def write(self, data: bytes, now: float) -> None:
        self._socket.sendall(data)

    def take_packet(self) -> bytes | None:
        """Return the next whole packet, or None. Packets must be shorter than 128 bytes."""
        if len(self._received) < 2 or len(self._received) < 2 + self._received[1]:
            return None
        size = 2 + self._received[1]
        packet = bytes(self._received[:size])
        del self._received[:size]
        return packet

    def close(self) -> None:
        self._socket.close()


class Readings:
    """The application of the sensors. Each sensor sends a reading a second, at moments of its own.
    done: completed readings.
    """

    def __init__(self) -> None:
        self.done = 0
        self._due: dict[Sensor, float] = {}
        self._number: dict[Sensor, int] = {}

    def __call__(self, sensor: Sensor, now: float) -> None:
        while (packet := sensor.take_packet()) is not None:
            if packet[0] == PUBREC:
                assert len(packet) == 4, f"refused: {packet.hex()}"
                sensor.write(_PUBREL + packet[2:4], now)
            elif packet[0] == PUBCOMP:
                self.done += 1
        if now >= self._due.setdefault(sensor, now + Random(len(self._due)).random()):
            self._due[sensor] += 1.0
            number = self._number[sensor] = self._number.get(sensor, 0) + 1
            packet = publish_packet(2, number, _PAYLOAD, b"sensors/roof/temperature")
            sensor.write(packet, now)


def drive(sensors: list[Sensor], seconds: float, each: Callable[[Sensor, float], None]) -> None:
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        for sensor in sensors:
            sensor.step(now)
            if sensor.up:
                each(sensor, now)
            elif (packet := sensor.take_packet()) is not None:
                assert (packet[0], packet[3]) == (0x20, 0), packet.hex()
                sensor.up = True
        time.sleep(_PAUSE_S)


def run(
    sensors: list[Sensor], seconds: float, written: Callable[[], int], broker: BrokerProcess
) -> tuple[float, float]:
    """Return the bytes written to disk and the seconds of CPU time per reading. written: returns
    the number of bytes written so far.
    """
    readings = Readings()
    drive(sensors, _WARM_UP_S, readings)
    assert all(sensor.up for sensor in sensors), "not all sensors are connected"
    done, bytes_before, cpu_before = readings.done, written(), broker.cpu_s
    drive(sensors, seconds, readings)
    count = readings.done - done
    assert count > 0.9 * seconds * len(sensors), "readings were not acknowledged in time"
    cpu = broker.cpu_s - cpu_before
    return (written() - bytes_before) / count, cpu / count


def ours(folder: Path, seconds: float, boards: bool) -> tuple[float, float]:
    lines = [Pty() for _ in range(SENSORS)] if boards else []
    folder.mkdir(parents=True)
    for number, line in enumerate(lines):
        (folder / f"usb-{number}").symlink_to(line.path)
    sections = _UPLINK.format(folder=folder)
    if boards:
        sections += f'[[serial]]\nport = "{folder}/usb-*"\n'
        provision(folder / "data", [f"board-{number}" for number in range(SENSORS)])
    try:
        with onceway(folder, sections) as broker, uplink(folder / "gateway.toml") as pid:
            sensors: list[Sensor] = [
                KeptBoard(line, f"board-{number}") for number, line in enumerate(lines)
            ] or [Client(broker.port, f"client-{number}") for number in range(SENSORS)]
            with closing(sqlite3.connect(folder / "data" / "gateway.db")) as database:

                def written() -> int:
                    database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                    os.sync()
                    return broker.written + written_by(pid) + written_by(os.getpid())

                return run(sensors, seconds, written, broker)
    finally:
        for line in lines:
            os.close(line.master)


@contextmanager
def subscriber(port: int) -> Iterator[Client]:
    """Yield a subscriber to all readings, at QoS 2, with a persistent session."""
    taker = Client(port, "taker")
    taker.write(subscribe_packet([b"sensors/#"], 2), 0.0)
    try:
        yield taker
    finally:
        taker.close()


def theirs(folder: Path, seconds: float) -> tuple[float, float]:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with mosquitto(folder, _AUTOSAVE.format(folder=folder) + "user root\n") as broker:
        clients: list[Sensor] = [Client(broker.port, f"client-{n}") for n in range(SENSORS)]
        with subscriber(broker.port) as taker:
            readings = Readings()

            class Taker:
                """Acknowledges all messages; counts as one more sensor without readings."""

                up = True

                def step(self, now: float) -> None:
                    taker.step(now)
                    while (packet := taker.take_packet()) is not None:
                        if packet[0] & 0xF0 == 0x30:
                            length = packet[2] << 8 | packet[3]
                            identifier = packet[4 + length : 6 + length]
                            taker.write(b"\x50\2" + identifier, now)
                        elif packet[0] == 0x62:
                            taker.write(b"\x70\2" + packet[2:4], now)

                def write(self, data: bytes, now: float) -> None: ...

                def take_packet(self) -> bytes | None:
                    return None

            taking = Taker()

            def each(sensor: Sensor, now: float) -> None:
                if sensor is not taking:
                    readings(sensor, now)

            sensors: list[Sensor] = [*clients, taking]
            drive(sensors, _WARM_UP_S, each)
            before, cpu, done = broker.written, broker.cpu_s, readings.done
            drive(sensors, seconds, each)
            count = readings.done - done
            return (broker.written - before) / count, (broker.cpu_s - cpu) / count


def measure(folder: Path, seconds: float = SECONDS) -> list[Figure]:
    peer: tuple[float, float] | tuple[None, None] = (None, None)
    if has_peer():
        peer = theirs(folder / "mosquitto", seconds)
    board_bytes, board_cpu = ours(folder / "boards", seconds, boards=True)
    client_bytes, client_cpu = ours(folder / "clients", seconds, boards=False)
    words = (
        f"years of {SENSORS} boards at a reading a second, until each cell was erased"
        f" {CARD_CYCLES} times and the card wrote {CARD_AMPLIFICATION} x what it was given"
    )
    peers_life = None if peer[0] is None else _years(peer[0])
    return [
        Figure("wear: bytes per reading, 10 boards", board_bytes, "B", "≤ 7,000", peer[0]),
        Figure("wear: bytes per reading, 10 clients", client_bytes, "B", "≤ 12,000", peer[0]),
        Figure("wear: CPU per reading, 10 boards", _ms(board_cpu), "ms", "≤ 0.5", _ms(peer[1])),
        Figure("wear: CPU per reading, 10 clients", _ms(client_cpu), "ms", None, _ms(peer[1])),
        Figure("wear: life of a 32 GB card", _years(board_bytes), words, None, peers_life),
    ]


def _ms(seconds: float | None) -> float:
    return 1000 * (seconds or 0.0)


def _years(bytes_per_reading: float) -> float:
    a_year = SENSORS * 365 * 86_400 * bytes_per_reading * CARD_AMPLIFICATION
    return CARD_BYTES * CARD_CYCLES / a_year


if __name__ == "__main__":
    main(measure)
