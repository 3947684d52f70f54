"""The cost of 50,000 batches and 2 million waiting readings.

Two gateways run with their uplinks, which cannot reach their landing zone. One store has this
content, the other one is empty. Figures: the CPU time of each pair without any request, and the
longest pause of the event loop. A client that pings without a break measures this pause, while the
page, the metrics, `onceway status` and `onceway uplink status` are requested. The pause of the pair
with the empty store shows the machine's share.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from threading import Event, Thread
from typing import IO

from gateway.access.users import Users
from gateway.store.recovery import recover
from gateway.store.schema import make_folder, open_store
from tests.benchmarks.bench_writes import uplink
from tests.benchmarks.brokers import START_S, BrokerProcess, free_port, onceway
from tests.benchmarks.load import Peer
from tests.benchmarks.report import Figure, main

BATCHES, ROWS = 50_000, 2_000_000
SECONDS = 20.0
TURNS = 3
ASKS = 5
"""Rounds of requests to each gateway."""
_AT = 1_790_000_000_000_000
"""Time of the oldest reading, in µs since 1970."""
_SECTIONS = """
[uplink]
landing = "sftp://nobody@127.0.0.1:{closed}/landing"
[web]
bind = "127.0.0.1:{web}"
[page]
bind = "127.0.0.1:{page}"
"""
USER, PASSWORD = "lena", "correct horse"


def fill(folder: Path, batches: int, rows: int) -> float:
    """Fill a store like that of a gateway with years of landed batches and a week of rows that have
    not landed. Return the seconds that a start with this store takes.
    """
    make_folder(folder)
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
    with closing(open_store(folder, "gateway")) as database:
        with database:
            database.execute("BEGIN")
            database.execute(
                f"{count} INSERT INTO batch SELECT i, i * 100 - 99, i * 100, 100, 4000,"
                f" '{'0' * 64}', {_AT} + i, {_AT} + i FROM n",
                (batches,),
            )
            database.execute(
                f"{count} INSERT INTO batch_content SELECT i, 9000, x'' FROM n",
                (batches,),
            )
            database.execute(
                f"{count} INSERT INTO spool SELECT {batches * 100} + i, 'barn-' || (i % 20), 7, i,"
                " 'barn-' || (i % 20), 'barn/air', CAST('[{\"n\":\"t\",\"v\":' || i || '}]' AS"
                f" BLOB), 1, i, {_AT} + i FROM n WHERE i > 0",
                (rows,),
            )
        began = time.monotonic()
        recover(database, None, 16)
        return time.monotonic() - began


class Page:
    """A person at the web page, and a monitoring system. Both ports are on loopback.

    Raises urllib.error.URLError if the page does not open within `START_S`.
    """

    def __init__(self, page: int, web: int) -> None:
        self._url = f"http://127.0.0.1:{page}"
        self._metrics = f"http://127.0.0.1:{web}/metrics"
        policy = DefaultCookiePolicy(rfc2965=False, strict_ns_domain=0)
        cookies = urllib.request.HTTPCookieProcessor(CookieJar(policy))
        self._browser = urllib.request.build_opener(cookies)
        self._log_in()

    def look(self) -> None:
        """Request the metrics, three parts of the page, and the state with its figures."""
        urllib.request.urlopen(self._metrics).read()
        for path in ("/", "/api/clients", "/api/board?name=barn-1"):
            with suppress(urllib.error.HTTPError):
                self._browser.open(self._url + path).read()
        with self.events() as events:
            while b"spool" not in (line := events.readline()):
                assert line, "the page's stream has ended"

    def events(self) -> IO[bytes]:
        """Open the page's stream of events."""
        events: IO[bytes] = self._browser.open(f"{self._url}/api/events")
        return events

    def _log_in(self) -> None:
        body = json.dumps({"user": USER, "password": PASSWORD}).encode()
        headers = {"Content-Type": "application/json", "Origin": self._url}
        request = urllib.request.Request(f"{self._url}/api/login", body, headers)
        end = time.monotonic() + START_S
        while True:
            try:
                self._browser.open(request).read()
                return
            except urllib.error.URLError:  # the page's port opens after the listener
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


class Pair:
    """A gateway and its uplink."""

    def __init__(self, broker: BrokerProcess, uplink: int, folder: Path, page: Page) -> None:
        self.broker = broker
        self._pids = broker.process.pid, uplink
        self._config = folder / "gateway.toml"
        self._page = page

    @property
    def cpu_s(self) -> float:
        """CPU time of both processes so far, in seconds."""
        return (
            sum(
                int((task / "schedstat").read_text().split()[0])
                for pid in self._pids
                for task in Path(f"/proc/{pid}/task").iterdir()
            )
            / 1e9
        )

    def ask(self) -> None:
        """Request all that a person or a monitoring system requests."""
        for words in (["status"], ["uplink", "status"], ["uplink", "status", "--json"]):
            command = [sys.executable, "-m", "gateway", *words, "--config", str(self._config)]
            done = subprocess.run(command, capture_output=True, check=False)
            # the exit code does not matter, because the landing zone is unreachable
            assert done.stdout, done.stderr
        self._page.look()


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    ports = {name: free_port() for name in ("closed", "web", "page")}
    make_folder(folder / "data")
    Users(folder / "data" / "users").add(USER, PASSWORD)
    key = folder / "key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", str(key)], check=True)
    with (
        onceway(folder, _SECTIONS.format(**ports), PYTHONUNBUFFERED="1") as broker,
        uplink(folder / "gateway.toml") as process,
    ):
        yield Pair(broker, process, folder, Page(ports["page"], ports["web"]))


def longest_pause(port: int, during: Callable[[], None]) -> float:
    """Return the longest time that a PINGREQ waits for its answer while `during` runs, in
    seconds.
    """
    peer, done, longest = Peer(port, keep_alive=60), Event(), [0.0]

    def ping() -> None:
        while not done.is_set():
            began = time.monotonic()
            peer.socket.sendall(b"\xc0\0")
            peer.expect(0xD0)
            longest[0] = max(longest[0], time.monotonic() - began)
            time.sleep(0.001)

    thread = Thread(target=ping)
    thread.start()
    try:
        during()
    finally:
        done.set()
        thread.join()
        peer.leave()
    return longest[0]


def measure(
    folder: Path,
    batches: int = BATCHES,
    rows: int = ROWS,
    seconds: float = SECONDS,
    turns: int = TURNS,
    asks: int = ASKS,
) -> list[Figure]:
    start = fill(folder / "full" / "data", batches, rows)
    size = os.path.getsize(folder / "full" / "data" / "gateway.db")
    fill(folder / "empty" / "data", 0, 0)
    with pair(folder / "full") as full, pair(folder / "empty") as empty:
        both, used = (full, empty), [0.0, 0.0]
        for each in both:
            each.ask()
        time.sleep(min(5.0, seconds))
        for _ in range(turns):
            before = [each.cpu_s for each in both]
            time.sleep(seconds)
            used = [
                total + each.cpu_s - was
                for total, each, was in zip(used, both, before, strict=True)
            ]
        pauses = [
            longest_pause(each.broker.port, lambda each=each: [each.ask() for _ in range(asks)])  # type: ignore[misc]
            for each in both
        ]
    kept = f"{batches:,} batches and {rows:,} waiting readings"
    share = [100 * total / (turns * seconds) for total in used]
    return [
        Figure(f"idle CPU with {kept}, × empty", used[0] / max(used[1], 1e-6), "×", "≤ 1.2"),
        Figure(f"idle CPU with {kept}", share[0], "% of a core", None, share[1]),
        Figure(
            f"longest pause while asked, {kept}", pauses[0] * 1e3, "ms", "≤ 100", pauses[1] * 1e3
        ),
        Figure(f"first start of this version, {kept}", start, "s"),
        Figure(f"size of the store, {kept}", size / 1e6, "MB"),
    ]


if __name__ == "__main__":
    main(measure)
