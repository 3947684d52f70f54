"""Run a year of a gateway in a day (`python -m tests.service.year --days 365`).

`make soak` runs it. On each day, ten clients reconnect several times and send 1,000 readings at QoS
1 and 2. A subscriber is disconnected for a part of the day. Retained messages are set and cleared.
A page stays open, a person and a monitor read the status, the configuration is reloaded, and
batches land.

A sample at the end of each day has memory, file descriptors and threads of gateway and uplink. It
also has the number of files, the rows of every table, the size and free pages of the store, and the
lines of the log. The run fits a slope to each quantity, and fails if one grows faster than the
guide allows: the table "What grows in a year" in gateway/docs/card.md.

Ctrl-C ends the run after the present day, with a report of the days so far. `--real [HOURS]`
instead sends one reading a second in real time, with a sample every ten minutes. Each release has a
day of that. `--plant memory` (or another quantity) makes the gateway leak, so that the run must
fail.
"""

import argparse
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from threading import Thread

from gateway.access.users import Users
from gateway.mqtt.packets import Publish, Side, Version
from gateway.mqtt.stream import PacketStream
from tests.benchmarks.bench_kept import PASSWORD, USER, Page
from tests.benchmarks.bench_writes import uplink
from tests.benchmarks.brokers import free_port, onceway
from tests.benchmarks.load import Peer, publish_packet

GUIDE = Path(__file__).parents[2] / "gateway/docs/card.md"
DAYS = 365
CLIENTS = 10
READINGS = 1000
"""Number of readings in a day."""
TURNS = 10
"""Number of times that each client reconnects in a day."""
REAL_READINGS = 600
"""Number of readings between two samples in real time, at one reading a second."""
KEPT_BATCHES = 50_000
SETTLED_S = 120
"""Longest time, in seconds, until all readings of a day have landed."""
FLOOR = 1.0
"""Growth over a whole run that is ignored, in the unit of the quantity (threads, files, rows,
lines, MB).
"""
DEVIATIONS = 3.0
"""A slope counts as too steep if it exceeds its limit by more than this number of its standard
errors.
"""

PLANTS = {
    "memory": "kept.append(os.urandom(50_000))",
    "descriptors": "kept.append(open('/dev/null'))",
    "rows": "database.execute('INSERT INTO meta VALUES (?, ?)', (f'leak {count[0]}', ''))",
    "files": "open(f'{folder}/leak-{count[0]}', 'w').close()",
    "log": "[log.warning('the same again') for _ in range(count[0] // 500)]",
}
"""For each quantity, code that leaks. The gateway runs it at every 50th commit."""
_LEAKING = """
import logging, os, sys
from gateway.store import writer
log, kept, count, real = logging.getLogger('gateway.leak'), [], [0], writer.apply
folder = os.path.dirname(sys.argv[sys.argv.index('--config') + 1]) + '/data'
def apply(database, *rest):
    count[0] += 1
    if count[0] % 50 == 0:
        {leak}
    return real(database, *rest)
writer.apply = apply
from gateway.commands.main import main
main()
"""
_SECTIONS = """
[uplink]
landing = "file://{folder}/landing"
batch_count = 100
batch_age_s = {age}
[web]
bind = "127.0.0.1:{web}"
[page]
bind = "127.0.0.1:{page}"
"""


@dataclass
class Series:
    """The samples of one quantity. The first quarter is a warm-up and does not count."""

    values: list[float] = field(default_factory=list)

    @property
    def counted(self) -> list[float]:
        """Return the samples after the warm-up."""
        return self.values[len(self.values) // 4 :]

    def slope(self) -> tuple[float, float]:
        """Return the growth per sample by least squares, and its standard error."""
        values = self.counted
        count = len(values)
        middle, mean = (count - 1) / 2, fmean(values)
        spread = sum((at - middle) ** 2 for at in range(count))
        slope = sum((at - middle) * (value - mean) for at, value in enumerate(values)) / spread
        rest = sum((value - mean - slope * (at - middle)) ** 2 for at, value in enumerate(values))
        return slope, (rest / max(1, count - 2) / spread) ** 0.5


def limits(guide: Path = GUIDE) -> dict[str, float]:
    """Return the growth in a year that the guide allows, by quantity."""
    _, _, text = guide.read_text().partition("## What grows in a year")
    table = text.partition("\n## ")[0]
    rows = re.findall(r"^\| (\S[^|]*?) \| ([\d.]+) \|", table, re.MULTILINE)
    return {name.replace("`", ""): float(most) for name, most in rows}


def too_steep(samples: dict[str, Series], granted: dict[str, float]) -> list[str]:
    """Return a line for each quantity that grows faster than `granted` allows, as growth in a year.
    A quantity that `granted` does not name may not grow.
    """
    found = []
    for name, series in sorted(samples.items()):
        slope, error = series.slope()
        most = granted.get(name, 0.0)
        if slope - DEVIATIONS * error > most / DAYS + FLOOR / len(series.counted):
            growth = f"{DAYS * slope:.3g} in a year (± {DAYS * error:.2g})"
            found.append(f"{name}: grows by {growth}, granted {most:.3g}")
    return found


def sample(data: Path, pids: dict[str, int], lines: int) -> dict[str, float]:
    """Return a sample of the processes and the data directory. lines: number of log lines since the
    last sample.
    """
    found: dict[str, float] = {"log lines a day": lines}
    for name, pid in pids.items():
        status = Path(f"/proc/{pid}/status").read_text()
        found[f"memory of the {name} in MB"] = (
            int(status.partition("RssAnon:")[2].split()[0]) / 1024
        )
        found[f"descriptors of the {name}"] = len(os.listdir(f"/proc/{pid}/fd"))
        found[f"threads of the {name}"] = int(status.partition("Threads:")[2].split()[0])
    sizes = dict(sizes_under(data))
    found["files"] = len(sizes)
    found["files beside the store in MB"] = (
        sum(size for path, size in sizes.items() if not path.name.startswith("gateway.db")) / 1e6
    )
    with closing(sqlite3.connect(f"file:{data}/gateway.db?mode=ro", uri=True)) as database:
        pages, free, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        found["store in MB"] = pages * size / 1e6
        found["free pages of the store in MB"] = free * size / 1e6
        (cut,) = database.execute("SELECT coalesce(max(number), 0) FROM batch").fetchone()
        for (table,) in database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        ).fetchall():
            query = f"SELECT count(*) FROM {table}"
            (rows,) = database.execute(query).fetchone()
            one_each = table in ("batch", "batch_content", "twin")
            found[f"rows of {table}"] = rows - min(cut, KEPT_BATCHES) * one_each
    return found


def sizes_under(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield each file in a folder, with its size in bytes. Files that vanish meanwhile are left
    out.
    """
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                yield path, path.stat().st_size


class Machine:
    """A running gateway with its uplink, and the clients and people that use it."""

    def __init__(self, folder: Path, port: int, pids: dict[str, int], page: Page) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._port = port
        self._pids = pids
        self._page = page
        self._sent = 0
        self._lines = 0

    def day(self, readings: int = READINGS, wait_s: float = 0.0) -> dict[str, float]:
        """Run one simulated day. Return the sample at its end. wait_s: pause between two readings,
        in seconds.
        """
        away = Peer(self._port, clean=False, client="reader")
        away.subscribe([b"year/#"], 1)
        away.socket.close()
        for turn in range(TURNS):
            for client in range(CLIENTS):
                count = readings // CLIENTS // TURNS
                self._publish(f"sensor-{client}", count, turn % 2 + 1, wait_s)
            if turn == 5:
                self._ask()
        self._retain()
        os.kill(self._pids["gateway"], signal.SIGHUP)
        self._read_all()
        self._settle()
        lines = sum(file.read_bytes().count(b"\n") for file in self._folder.glob("log-*"))
        before, self._lines = self._lines, lines
        return sample(self._data, self._pids, lines - before)

    def _publish(self, client: str, count: int, qos: int, wait_s: float) -> None:
        peer = Peer(self._port, clean=False, client=client)
        for number in range(1, count + 1):
            self._sent += 1
            payload = b'[{"n":"t","u":"Cel","v":%d}]' % self._sent
            topic = b"year/%s" % client.encode()
            peer.socket.sendall(publish_packet(qos, number, payload, topic))
            if qos == 1:
                peer.expect(0x40)
            else:
                peer.expect(0x50)
                peer.socket.sendall(b"\x62\2" + number.to_bytes(2, "big"))
                peer.expect(0x70)
            time.sleep(wait_s)
        peer.socket.close()

    def _retain(self) -> None:
        """Publish 20 retained messages, and clear all but one."""
        peer = Peer(self._port)
        for number in range(20):
            for payload in (b"kept", b"") if number else (b"kept",):
                packet = bytearray(publish_packet(1, 1, payload, b"state/%d" % number))
                packet[0] |= 1
                peer.socket.sendall(packet)
                peer.expect(0x40)
        peer.leave()

    def _read_all(self) -> None:
        """Reconnect the subscriber, read the messages that wait for it, and end its session."""
        peer, last = Peer(self._port, clean=False, client="reader"), 0
        stream = PacketStream(1 << 20, Version.V5, Side.SERVER)
        stream.feed(peer.unread)
        peer.socket.settimeout(SETTLED_S)
        while True:
            for packet in stream:
                assert isinstance(packet, Publish)
                last = max(last, json.loads(packet.payload)[0]["v"])
                peer.socket.sendall(b"\x40\2" + (packet.packet_id or 0).to_bytes(2, "big"))
            if last >= self._sent:
                break
            data = peer.socket.recv(1 << 20)
            assert data, "the gateway closed the connection of the subscriber"
            stream.feed(data)
        peer.leave()

    def _ask(self) -> None:
        self._page.look()
        for words in (["status"], ["uplink", "status"], ["session", "list"]):
            command = [sys.executable, "-m", "gateway", *words, "--config"]
            done = subprocess.run(
                [*command, str(self._folder / "gateway.toml")], capture_output=True, check=False
            )
            assert done.stdout, done.stderr

    def _settle(self) -> None:
        """Wait until all readings have landed and the subscriber's session is gone."""
        end = time.monotonic() + SETTLED_S
        while True:
            with closing(sqlite3.connect(f"file:{self._data}/gateway.db?mode=ro", uri=True)) as it:
                waiting = sum(
                    it.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                    for table in ("spool", "queue", "message")
                )
                (flying,) = it.execute("SELECT count(*) FROM batch WHERE landed IS NULL").fetchone()
            if not waiting and not flying:
                return
            assert time.monotonic() < end, f"{waiting} rows wait"
            time.sleep(0.2)


@contextmanager
def machine(folder: Path, plant: str = "", age_s: int = 2) -> Iterator[Machine]:
    """Run a gateway, an uplink, and a page that stays open. plant: quantity that leaks; empty:
    none. age_s: age of a batch when it is cut, in seconds.
    """
    ports = {name: free_port() for name in ("web", "page")}
    data = folder / "data"
    data.mkdir(parents=True)
    Users(data / "users").add(USER, PASSWORD)
    sections = _SECTIONS.format(folder=folder, age=age_s, **ports)
    program = ("-c", _LEAKING.format(leak=PLANTS[plant])) if plant else ("-m", "gateway")
    with (
        (folder / "log-gateway").open("wb") as log,
        (folder / "log-uplink").open("wb") as other,
        onceway(folder, sections, spooled="year/#", program=program, log=log) as broker,
        uplink(folder / "gateway.toml", other) as process,
    ):
        page = Page(ports["page"], ports["web"])
        Thread(target=_watch, args=(page,), daemon=True).start()
        yield Machine(folder, broker.port, {"gateway": broker.process.pid, "uplink": process}, page)


def _watch(page: Page) -> None:
    """Read the events of the page until the gateway ends."""
    with suppress(OSError, urllib.error.URLError), page.events() as events:
        while events.readline():
            pass


def live(folder: Path, days: int, plant: str = "") -> dict[str, Series]:
    """Run some days, each as fast as possible. Return the samples."""
    with machine(folder, plant) as it:
        return collect(it.day() for _ in range(days))


def real(folder: Path, hours: float) -> dict[str, Series]:
    """Send a reading a second for some hours. Return the samples."""
    rounds = round(hours * 3600 / REAL_READINGS)
    with machine(folder, age_s=60) as it:
        return collect(it.day(REAL_READINGS, 1.0) for _ in range(rounds))


def collect(days: Iterator[dict[str, float]]) -> dict[str, Series]:
    """Collect the samples of all days, or until Ctrl-C. Print the memory in each sample. Return the
    samples by quantity.
    """
    samples: dict[str, Series] = {}
    began = time.monotonic()
    ending: list[int] = []
    before = signal.signal(signal.SIGINT, lambda *_: ending.append(1))
    for number, found in enumerate(days):
        for name, value in found.items():
            samples.setdefault(name, Series([0.0] * number)).values.append(value)
        told = ", ".join(f"{name} {value:.3g}" for name, value in found.items() if " in MB" in name)
        print(f"sample {number + 1} after {time.monotonic() - began:.0f} s: {told}", flush=True)
        if ending:
            break
    signal.signal(signal.SIGINT, before)
    return samples


def report(samples: dict[str, Series]) -> None:
    """Print the last value of each quantity, and its growth in a year."""
    for name, series in sorted(samples.items()):
        slope, error = series.slope()
        growth = f"{DAYS * slope:+.3g} in a year (± {DAYS * error:.2g})"
        print(f"{name}: {series.values[-1]:.4g}, {growth}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--days", type=int, default=DAYS, help="at least 8")
    parser.add_argument("--real", type=float, nargs="?", const=24.0, metavar="HOURS")
    parser.add_argument("--plant", choices=PLANTS, default="")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="year-") as folder:
        if wanted.real:
            samples = real(Path(folder), max(2.0, wanted.real))
        else:
            samples = live(Path(folder), max(8, wanted.days), wanted.plant)
    report(samples)
    found = too_steep(samples, limits())
    for line in found:
        print(f"error: {line}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
