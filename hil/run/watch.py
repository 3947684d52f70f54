"""Observer of all hops of a run, until its end. In: a folder, the devices, clients and subscribers
of the run. Out: events of the history, counts for faults and display, whether there is progress,
and whether any publication is still on its way.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from hil.bench.bench import Bench
from hil.devices.client import Client
from hil.devices.other_broker import OtherBroker
from hil.devices.subscriber import Subscriber
from hil.observe.counters import Counters, wait_until
from hil.observe.folder import Folder
from hil.observe.history import READINGS, History
from hil.observe.ingest_progress import IngestProgress
from hil.observe.landing import LandingHop
from hil.observe.programs import note_errors, note_figures, note_usage, settle
from hil.observe.remains import note_centre, note_landed, note_remains
from hil.observe.spool import SpoolHop
from hil.observe.table import TableHop
from hil.programs.site import OF_GATEWAY, Site, program_of
from hil.run.display import Display
from hil.run.system import Device

SHOWN = {
    "table": ("journalled", "spooled", "landed", "in the table"),
    "batch": ("journalled", "spooled", "landed"),
}
LOOK_EVERY = 0.05  # s between looks at all hops
TABLE_EVERY = 0.5  # s between looks at the table
QUIET_EVERY = 30.0  # s without progress between notes to the user
# s without progress after which, if all hops are empty, no fault can still get to its place
IDLE_S = 10.0
USAGE_EVERY = 1.0  # s between looks at the resources of gateways and uplinks


class Watch:
    """Observer of a run. The run adds its devices, clients and subscribers."""

    def __init__(self, bench: Bench, folder: Folder, history: History, display: Display) -> None:
        self.counters = Counters()
        stored: dict[str, set[int]] = defaultdict(set)
        self.spools = {
            name: SpoolHop(folder.of(name).database, history, stored) for name in bench.gateways
        }
        """Observers of the spools, by gateway."""
        keys = {name: folder.of(name).key for name in bench.gateways}
        self.landing = LandingHop(folder.landing, folder.key, history, keys)
        self.progress = IngestProgress(folder.checkpoint, folder.table)
        self.devices: list[Device] = []
        self.clients: list[Client] = []
        self.subscribers: list[Subscriber] = []
        self.other_broker: OtherBroker | None = None
        self._table = TableHop(folder.table, folder.readings, history)
        self._bench = bench
        self._folder = folder
        self._history = history
        self._display = display
        self._ingest_log = folder.logs / "ingest.log"
        self._moved_at = time.monotonic()
        self._moved: tuple[int, ...] = ()
        self._logged_periods = 0
        self._measured = {
            program_of(kind, of): folder.of(of).database
            for of in bench.gateways
            for kind in OF_GATEWAY
        }

    async def follow(self, site: Site) -> None:
        """Watch all hops, wake due faults, and check that no program has ended by itself."""
        while True:
            site.check()
            self._look()
            self._display.counts({name: self.counters[name] for name in SHOWN[self._bench.until]})
            self._note_movement()
            await asyncio.sleep(LOOK_EVERY)

    def _look(self) -> None:
        for device in self.devices:
            self.counters.set(f"sampled {device.name}", device.look())
        self.counters.set("journalled", sum(source.journalled for source in self.sources))
        for spool in self.spools.values():
            spool.look()
        self.counters.set("spooled", sum(spool.committed for spool in self.spools.values()))
        self.counters.set("landed", sum(spool.landed for spool in self.spools.values()))
        self.landing.look()
        self.counters.set("appends", self.progress.appends)

    async def follow_usage(self, site: Site) -> None:
        while True:
            for name, store in self._measured.items():
                if name in site.running:  # a fault may have ended a gateway for good
                    pid = site.running[name].pid
                    note_usage(self._history, name, pid, store, site.stale(name))
            await asyncio.sleep(USAGE_EVERY)

    async def note_figures(self, site: Site, addresses: Mapping[str, str]) -> None:
        """Record the figures of each gateway that runs. addresses: ADDRESS:PORT by name."""
        for name, member in site.members.items():
            program = program_of("gateway", name)
            if program in site.running:
                data, pid = member.folder.data, site.running[program].pid
                await asyncio.to_thread(settle, data)
                status = await member.command("uplink", "status", "--json")
                noted = self._history, program, pid, data, addresses[name], status
                await asyncio.to_thread(note_figures, *noted)

    async def follow_table(self) -> None:
        """Count the table's rows every TABLE_EVERY seconds, in a thread because this takes long."""
        while True:
            self.counters.set("in the table", await asyncio.to_thread(self._table.rows))
            await asyncio.sleep(TABLE_EVERY)

    def _note_movement(self) -> None:
        waiting = sum(source.waiting for source in self.sources)
        counts = [self.counters[name] for name in SHOWN["table"]]
        # Spark starts slowly, but logs
        log_size = self._ingest_log.stat().st_size if self._ingest_log.exists() else 0
        received = sum(subscriber.received for subscriber in self.subscribers)
        changes = self.other_broker.changes if self.other_broker else 0
        ingest = (self.progress.begun, self.progress.ended, log_size)
        moved = (waiting, received, changes, *ingest, *counts)
        if moved != self._moved:
            self._moved, self._moved_at = moved, time.monotonic()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until `done()` is true, or until nothing has moved for the bench's `stall_s`. In
        this case, the judge reports the missing publications.
        """
        self._moved_at = time.monotonic()
        await wait_until(lambda: done() or self._gives_up())
        if not done():
            self._history.add("rig", "stalled")
            self._display.say(
                f"  nothing has moved for {self._bench.stall_s:.0f} s: the check begins", "red"
            )

    def _gives_up(self) -> bool:
        quiet_s, limit = self.quiet_s(), self._bench.stall_s
        if (periods := int(quiet_s // QUIET_EVERY)) != self._logged_periods:
            self._logged_periods = periods
            if periods and quiet_s < limit:
                self._display.say(
                    f"  nothing has moved for {quiet_s:.0f} s; the run gives up at {limit:.0f} s"
                )
        return quiet_s > limit

    def quiet_s(self) -> float:
        return time.monotonic() - self._moved_at

    def idle(self) -> bool:
        """Whether there was no progress for IDLE_S seconds, and no micro-batch is running."""
        return self.quiet_s() > IDLE_S and not self.progress.in_batch

    def empty(self) -> bool:
        """Whether every publication has left its board, every row has landed, no gateway keeps a
        copy of a row, and the ingest has read every batch. Before it answers yes, the method reads
        each hop again: a publication may have reached a hop since the last read.
        """
        if not self._seems_empty():
            return False
        self._look()
        return self._seems_empty()

    def _seems_empty(self) -> bool:
        if self._bench.until == "table" and not self.progress.started:
            return False  # Spark has not started yet
        on_the_way = (
            any(device.waiting for device in self.devices)
            or any(spool.landed < spool.committed or spool.kept for spool in self.spools.values())
            or any(subscriber.owed(self.clients, self.devices) for subscriber in self.subscribers)
            or (self.other_broker is not None and not self.other_broker.agrees)
        )
        ingested = self.progress.batches() if self._bench.until == "table" else self.landing.newest
        return not on_the_way and all(
            ingested.get(feed, 0) >= newest for feed, newest in self.landing.newest.items()
        )

    @property
    def sources(self) -> list[Device | Client]:
        return [*self.devices, *self.clients]

    def _note_remaining_batches(self) -> None:
        """Record a contradiction if batches stay on a gateway's disk after landing. One batch may
        stay: the uplink may have landed it just before it was stopped.
        """
        for name, spool in self.spools.items():
            folder = self._folder.of(name)
            files = sorted(path.name for path in folder.data.glob("batches/*"))
            if len(files) > 1 and spool.landed >= spool.committed and not spool.kept:
                text = f"all rows have landed, but {folder.data.name} still has {', '.join(files)}"
                self._history.add("uplink", "contradiction", text=text)

    def read_ends(self) -> None:
        """Read all hops to their end, after all programs have ended."""
        complete = [device.close_ledgers() for device in self.devices]
        complete += [client.close() for client in self.clients]
        for subscriber in self.subscribers:
            subscriber.close()
        if all(complete):
            self._history.add("board", "complete")
        for program in self._measured:
            note_errors(self._history, program, self._folder.logs / f"{program}.log")
        whole = [spool.close() for spool in self.spools.values()]
        if all(whole):
            self._history.add("spool", "complete")
            self._note_remaining_batches()
        for name in self._bench.gateways:
            if self._folder.of(name).database.exists():
                program = program_of("gateway", name)
                largest = self.spools[name].largest
                note_remains(self._history, program, self._folder.of(name), largest)
        if self._bench.until == "table":
            note_centre(self._history, self._folder.table.parent)
        note_landed(self._history, self._folder.landing)
        self.landing.look()
        self.landing.look_again()
        if self._bench.until == "table":
            self.landing.note_waiting(self.progress.batches())
        self._table.read()
        for hop in ("batch", "table", READINGS):
            self._history.add(hop, "complete")
