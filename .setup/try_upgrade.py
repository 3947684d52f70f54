"""Upgrade from the last release, rollback, and upgrade again, each under load. The load: sessions
with waiting messages; QoS 2 exchanges stopped halfway on both sides; a full spool; batches that are
cut and cannot land; a board with a full journal. Nothing may be lost or duplicated.

In: a booted userland with the last release and a board. Out: figures of the load at each change.
Raises Wrong if a message or a reading is missing, or is there twice.
"""

import asyncio
import ctypes
import sqlite3
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
from userland import PATIENCE_S, Userland, Wrong, wait_for

from gateway.mqtt.packets import Packet, Publish, Pubrec, Pubrel, Version
from hil.boards import ledger as eeprom

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.durability.clients import Client, Publisher, Subscriber, label
from tests.durability.ledger import Faults, Ledger

PORT = 1883
CONFIG = """
[gateway]
name = "site-1"
trust_clock = true

[[listener]]
bind = "127.0.0.1:1883"
anonymous = true

[[serial]]
port = "/run/board/tty"

[spool]
topics = ["load/#", "sensors/#"]
max_bytes = 300_000

[uplink]
landing = "file:///srv/onceway/landing"
batch_count = 200
batch_age_s = 1
"""
_CLONE_NEWNET = 0x4000_0000
_TRY_S = 10
"""Seconds after which clients connect again if an exchange or a message is still missing."""


class HalfPublisher(Publisher):
    """A publisher that stops in the middle of QoS 2 while `halts`: it sends no PUBREL."""

    halts = False

    def take(self, packet: Packet) -> list[Packet]:
        answers = super().take(packet)
        return [] if self.halts and isinstance(packet, Pubrec) else answers


class HalfSubscriber(Subscriber):
    """A subscriber that stops in the middle of QoS 2 while `halts`: it sends no PUBREC for one half
    of the messages, and no PUBCOMP for the other half.
    """

    halts = False

    def take(self, packet: Packet) -> list[Packet]:
        answers = super().take(packet)
        stops = isinstance(packet, Pubrel) or (isinstance(packet, Publish) and packet.packet_id % 2)
        return [] if self.halts and stops else answers


class Visitors:
    """Clients in the userland's network, in a separate thread. faults: violations that they
    found.
    """

    def __init__(self, userland: Userland) -> None:
        self.faults: Faults = []
        self._landing = userland.path / "srv/onceway/landing"
        self._read: set[Path] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = ThreadPoolExecutor(
            1, initializer=_enter_network, initargs=(userland.leader,)
        )
        v5, v4 = Version.V5, Version.V3_1_1
        self._half = HalfPublisher("half", v5, self.faults, 2)
        self._publishers = [
            Publisher("p5-2", v5, self.faults, 2),
            Publisher("p4-2", v4, self.faults, 2, size=300),
            Publisher("p5-1", v5, self.faults, 1),
            self._half,
        ]
        self._half_taker = HalfSubscriber("half-taker", v5, self.faults)
        self._present = [Subscriber("s4", v4, self.faults), self._half_taker]
        self._away = Subscriber("away", v5, self.faults)
        self._landed = Ledger("the landing place", self.faults)

    @property
    def broken(self) -> list[str]:
        """The observed faults, except messages in the wrong order. A wrong order is allowed here: a
        refused message is sent again after later messages.
        """
        return [fault for fault in self.faults if " came after " not in fault]

    @property
    def _subscribers(self) -> list[Subscriber]:
        return [*self._present, self._away]

    @property
    def _clients(self) -> list[Client]:
        return [*self._publishers, *self._subscribers]

    def run(self, method: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a coroutine method of this class in the userland's network."""
        self._thread.submit(lambda: self._loop.run_until_complete(method())).result()

    async def subscribe(self) -> None:
        for subscriber in self._subscribers:
            await subscriber.connect(PORT)
            await subscriber.subscribe()
            subscriber.drop()

    async def load(self) -> None:
        """Publish until the gateway refuses more. One subscriber is not connected, and another one
        stops in the middle of a QoS 2 exchange.
        """
        self._half.halts = self._half_taker.halts = True
        refused = [publisher.refused for publisher in self._publishers]
        for client in (*self._present, *self._publishers):
            await client.connect(PORT)
        for publisher in self._publishers:
            publisher.start()
        end = time.monotonic() + PATIENCE_S
        while self._publishers[0].refused == refused[0]:
            if time.monotonic() > end:
                raise Wrong("the spool does not get full")
            await asyncio.sleep(0.1)
        for publisher in self._publishers:
            publisher.going = False

    async def leave(self) -> None:
        """Drop all connections, because the gateway has ended."""
        for client in self._clients:
            client.drop()
        self._half.halts = self._half_taker.halts = False

    async def settle(self) -> None:
        """Connect all clients again and again, until every exchange is complete and every message
        has arrived, or PATIENCE_S is over. Then record missing messages in the ledgers."""
        end = time.monotonic() + PATIENCE_S
        while not await self._settled():
            if time.monotonic() > end or self.broken:
                break
            for client in self._clients:
                client.drop()
        for client in self._clients:
            client.drop()
        for publisher in self._publishers:
            for ledger in (self._landed, *(each.ledger for each in self._subscribers)):
                ledger.settle(publisher.name, publisher.published)

    async def _settled(self) -> bool:
        for client in self._clients:
            await client.connect(PORT)
        end = time.monotonic() + _TRY_S
        while time.monotonic() < end:
            self._look()
            ledgers = [self._landed, *(each.ledger for each in self._subscribers)]
            if not any(
                publisher.flying or ledger.missing(publisher.name, publisher.published)
                for publisher in self._publishers
                for ledger in ledgers
            ):
                return True
            await asyncio.sleep(0.2)
        return False

    def _look(self) -> None:
        """Read the batches that have landed since the last call."""
        exact = {publisher.name: publisher.qos == 2 for publisher in self._publishers}
        for manifest in sorted(self._landing.glob("site-1/[!.]*/*.json")):
            file = manifest.with_suffix(".parquet")
            if file in self._read:
                continue
            self._read.add(file)
            rows = pq.read_table(file, columns=["topic", "payload"]).to_pylist()
            for row in rows:
                if row["topic"].startswith("load/"):
                    name, number = label(row["payload"])
                    self._landed.arrived(name, number, exact[name])


def _enter_network(process: int) -> None:
    """Move this thread, but no other, into the network namespace of another process."""
    with open(f"/proc/{process}/ns/net") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter the userland's network")


class Upgrades:
    """The trial of an upgrade. old, new: names of the package files in the userland's /root."""

    def __init__(self, userland: Userland, old: str, new: str) -> None:
        self._userland = userland
        self._old, self._new = old, new
        self._visitors = Visitors(userland)
        self._schema = self._store("PRAGMA user_version")

    def run(self) -> list[str]:
        """Upgrade, go back to the old version, and upgrade again. Return a description of the load
        before each of these changes.
        """
        (self._userland.path / "etc/onceway/gateway.toml").write_text(CONFIG)
        self._userland.run("systemctl", "restart", "onceway-gateway", "onceway-uplink")
        self._active()
        self._visitors.run(self._visitors.subscribe)
        met = []
        for change in (self._upgrade, self._go_back, self._upgrade):
            met.append(self._fill())
            change()
            self._visitors.run(self._visitors.leave)
            self._active()
            self._land(True)
            self._visitors.run(self._visitors.settle)
            if broken := self._visitors.broken:
                raise Wrong(f"after {met[-1]}: {'; '.join(broken[:5])}")
        return met

    def _fill(self) -> str:
        """Stop the landing of batches, and load the gateway until spool and journal are full.
        Return figures of the load in words.
        """
        landed = "SELECT count(*) FROM batch WHERE landed IS NOT NULL"
        # an uplink that has never reached its landing place cuts no batch
        before = self._store(landed)
        wait_for("a batch that has landed", lambda: "yes" * (self._store(landed) > before))
        self._land(False)
        self._visitors.run(self._visitors.load)
        image = self._userland.path / "var/lib/board/eeprom"

        def waiting() -> int:
            return len(eeprom.Ledger.from_image(image.read_bytes()).waiting())

        wait_for("a full journal", lambda: "full" * (waiting() >= eeprom.SLOTS - 1))
        cut = "SELECT count(*) FROM batch WHERE landed IS NULL"
        wait_for("a batch that waits", lambda: "yes" * (self._store(cut) > 0))
        batches = self._store(cut)
        rows = self._store("SELECT count(*) FROM spool")
        flows = self._store("SELECT count(*) FROM flow")
        queued = self._store("SELECT count(*) FROM queue")
        return (
            f"{rows} rows in a full spool, {batches} batches wait, {waiting()} readings in a full"
            f" journal, {flows} sessions with QoS 2 exchanges, {queued} rows of waiting messages"
        )

    def _land(self, may: bool) -> None:
        self._userland.run("mkdir", "-p", "/srv/onceway/landing")
        owner = "onceway-uplink" if may else "root"
        self._userland.run("chown", owner, "/srv/onceway/landing")
        self._userland.run("chmod", "0750" if may else "0700", "/srv/onceway/landing")

    def _upgrade(self) -> None:
        self._userland.run("apt-get", "install", "--yes", f"/root/{self._new}")

    def _go_back(self) -> None:
        """Roll back as gateway/README.md describes it."""
        if self._store("PRAGMA user_version") != self._schema:
            self._userland.run("systemctl", "stop", "onceway-gateway", "onceway-uplink")
            self._userland.run("onceway", "store", "downgrade", "--to", str(self._schema))
        self._userland.run(
            *("apt-get", "install", "--yes", "--allow-downgrades"), f"/root/{self._old}"
        )
        self._userland.run("systemctl", "start", "onceway-gateway", "onceway-uplink")

    def _active(self) -> None:
        units = ("onceway-gateway", "onceway-uplink")
        self._userland.wait("both services", "systemctl", "is-active", *units)

    def _store(self, query: str) -> int:
        path = self._userland.path / "var/lib/onceway/gateway.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return int(database.execute(query).fetchone()[0])
