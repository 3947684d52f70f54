"""The whole system in one process: boards, lines and gateways on virtual time, and the rig's judge.

In: a plan, with its seed. Out: the judge's result (`hil.judge.checker`), and a fingerprint of all
events, which must be the same in a replay.
"""

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from gateway.boards.admission import Registry
from gateway.broker.retained import Retained
from gateway.config import SiteSection
from gateway.store import generation
from gateway.store.schema import prepare
from hil.judge.checker import Result, check
from hil.observe.history import sighting
from hil.observe.spool import QUERY
from provisioning.identity import Identity
from provisioning.registry import Registry as Provisioned
from tests.sim.whole.board import MOST, Board
from tests.sim.whole.client import Client
from tests.sim.whole.clock import Time
from tests.sim.whole.gateway import Gateway
from tests.sim.whole.line import Line
from tests.sim.whole.members import Network
from tests.sim.whole.plan import Plan
from tests.sim.whole.truth import Truth

STEP_MS = 10
"""A board runs for this time, in ms. Then the bytes that it has written meanwhile are sent."""
LOOK_MS = 70
SILENT_S = 2.0
"""`copies_silent_s` of all gateways: after this time without a word of another gateway, in seconds,
a gateway lands its copies of the other gateway's rows.
"""
_PATIENCE_S = 120.0
"""Seconds after the last fault within which everything must have landed."""
_LANDED = """
BEGIN;
INSERT OR REPLACE INTO meta SELECT 'spool.last', CAST(id AS TEXT) FROM spool_last;
DELETE FROM spool;
COMMIT;
"""
"""SQL that leaves a spool as if the uplink had landed all its rows. The row numbers are not used
again.
"""
_AFTER_S = 1e-6
"""Delay of a fault after its step, in seconds, so that the judge sees the step before the fault."""
NAMES = tuple(f"board-{number + 1}" for number in range(MOST))
KEYS = {name: sha256(name.encode()).digest()[:16] for name in NAMES}


@cache
def _registry() -> Registry:
    """Return the registry with the keys of all boards. It is read once; each gateway keeps the
    boards' reports in a copy.
    """
    with TemporaryDirectory() as folder:
        provisioned = Provisioned(Path(folder) / "registry.db")
        for name, key in KEYS.items():
            provisioned.finish(provisioned.begin(Identity(name, key), "uno", "port"), "ab" * 32)
        return Registry(Path(folder))


@cache
def _empty_store() -> bytes:
    database = sqlite3.connect(":memory:", isolation_level=None)
    prepare(database, "new")
    database.execute("UPDATE meta SET value = 'e' WHERE key = 'epoch'")
    return database.serialize()


class _Errors(logging.Handler):
    """A log handler that adds a gateway's errors to the history. While a disk refuses commits,
    errors without an exception are expected, and left out.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        fails = any(gateway.failing for gateway in self._world.gateways.values())
        if record.exc_info or not fails:
            self._world.truth.add("gateway", "erred", error=record.getMessage())


class World:
    """The whole system of a run: gateways, boards, clients and the network. At its beginning, all
    boards and clients are at the first gateway. Another class, `Faults`, makes the faults.
    """

    def __init__(self, plan: Plan) -> None:
        seed, gateways = plan.seed, plan.gateways
        self.time = Time()
        self.truth = Truth(self.time)
        self._errors = _Errors(self)
        self.reached: Counter[str] = Counter()
        self._secrets = Random(f"{seed} secrets")
        self._copies = plan.copies
        site = None
        if len(gateways) > 1:
            members = {name: f"{name}:1" for name in gateways}
            site = SiteSection(members=members, copies=plan.copies, copies_silent_s=SILENT_S)
        self.gateways = {
            name: Gateway(self.time, name, _registry(), _empty_store(), site, f"{seed} {name}")
            for name in gateways
        }
        self.boards: dict[str, Board] = {}
        self.lines: dict[str, Line] = {}
        self.plugged: dict[str, Gateway] = {}
        """The gateway at which each board is plugged in."""
        self._spooled = dict.fromkeys(gateways, 0)
        """Row number of the last recorded row of each spool."""
        self._origins = {name: f"{name}/e" for name in gateways}
        self._steps: list[list[Any]] = []
        self.mending: Callable[[], object] = lambda: None
        """The function that ends the faults."""
        for number, name in enumerate(plan.boards):
            own = seed * MOST + number + 1
            self.boards[name] = board = Board(number, name, KEYS[name], own, plan.first)
            tell = partial(self._tapped, name)
            self.lines[name] = line = Line(self.time, KEYS[name], tell, f"{seed} {name}")
            line.lay("down", board)
        self.network = Network(self.time, self.gateways, f"{seed} network")
        with self._patched():
            for gateway in self.gateways.values():
                gateway.committed = self._committed
                if len(gateways) > 1:
                    gateway.started = self.network.started
                gateway.start()
            for name in self.boards:
                self.plug(name, gateways[0])
            self.clients = {
                name: Client(
                    self.time, self.truth, name, self.gateways[gateways[0]], f"{seed} {name}"
                )
                for name in plan.clients
            }

        if plan.lands_s:
            self.time.after(plan.lands_s, partial(self._land_on, plan.lands_s))

    def plug(self, board: str, gateway: str) -> None:
        self.unplug(board)
        self.plugged[board] = self.living(gateway)
        self.plugged[board].plug(board, self.lines[board])

    def living(self, gateway: str = "") -> Gateway:
        """Return this gateway. If it is gone for good, or without a name, return the first one that
        is not gone.
        """
        named = self.gateways.get(gateway)
        if named is not None and not named.gone:
            return named
        return next(one for one in self.gateways.values() if not one.gone)

    def unplug(self, board: str) -> None:
        if (before := self.plugged.pop(board, None)) is not None:
            before.unplug(board)

    def swap(self, board: str, off_ms: int) -> None:
        """Replace a board by a new one with the same name. Before that, record the old board's
        publications.
        """
        self.truth.read_board(self.boards[board], swapped=True)
        self.boards[board].renew(off_ms)

    def run(self, seconds: float) -> None:
        with self._patched():
            end = self.time.now + seconds
            while self.time.now < end:
                self._step()

    def _step(self) -> None:
        until = round(self.time.now * 1000) + STEP_MS
        sent = [(name, board.run(until)) for name, board in self.boards.items()]
        self.time.run(until / 1000)
        for name, data in sent:
            if data:
                self.lines[name].send("up", data)

    def _land(self) -> None:
        for gateway in self.gateways.values():
            self.land(gateway)

    def _land_on(self, every_s: float) -> None:
        self._land()
        self.time.after(every_s, partial(self._land_on, every_s))

    def land(self, gateway: Gateway) -> None:
        """Land all rows of the spool, as the uplink does. Nothing lands if the disk refuses
        commits.
        """
        if not (gateway.failing or gateway.gone):
            for row in self._rows(gateway, 0):
                self.truth.add("batch", "publication", **row)
            gateway.database.executescript(_LANDED)

    def bury(self, gateway: str) -> None:
        """Remove a gateway and its disk for good. Its boards and clients go to another gateway."""
        gone = self.gateways[gateway]
        gone.gone = True
        gone.die()
        for board in [name for name, where in self.plugged.items() if where is gone]:
            self.plug(board, gateway)
        for client in self.clients.values():
            client.leave(gone, self.living())

    def restore(self, gateway: str, copy: bytes) -> None:
        """Give a gateway that is off an earlier copy of its store. The rows of the present store
        land first.
        """
        self.land(self.gateways[gateway])
        self.gateways[gateway].load(copy)
        database = self.gateways[gateway].database
        generation.mark(database, "it was restored")
        [(self._spooled[gateway],)] = database.execute("SELECT id FROM spool_last")
        self._origins[gateway] += " restored"

    def settle(self) -> bool:
        """End all faults, and run until everything is delivered and has landed. Return False if it
        takes longer than _PATIENCE_S.
        """
        self._steps.clear()
        self.mending()
        for gateway in self.gateways.values():
            gateway.disk_s = 0.004
            gateway.fail(False)
        for board, line in self.lines.items():
            line.mend()
            if board not in self.plugged:
                self.plug(board, "")
        for client in self.clients.values():
            client.mend(self.living())
        self.network.mend()
        end = self.time.now + _PATIENCE_S
        while self.time.now < end:
            self.run(LOOK_MS / 1000)
            if all(one.at_rest for one in (*self.boards.values(), *self.clients.values())):
                return self._empty(end)
        return False

    def _empty(self, end: float) -> bool:
        """Wait until all rows have landed, no gateway keeps rows for another one, and all gateways
        have the same retained messages. Return True. If this takes until `end`, return whether only
        the retained messages differ.
        """
        members = self.network.members.values()
        self._land()
        while not (at_rest := all(member.at_rest for member in members)) or self._unlike():
            if self.time.now >= end:
                return at_rest
            with self._patched():
                self.time.run(self.time.now + LOOK_MS / 1000)
            self._land()
        self.reached["rows landed for another gateway"] += sum(one.landed for one in members)
        return True

    def unlike(self) -> list[str]:
        """Return a sentence for each topic whose retained message differs between gateways. Call
        this when the system is at rest.
        """
        self.reached["messages retained"] += len({topic for one in self._held() for topic in one})
        return [
            f"not all gateways have the same retained message of {topic}"
            for topic in self._unlike()
        ]

    def _held(self) -> list[dict[str, Retained]]:
        """Return the retained messages by topic, for each living gateway."""
        living = [one.broker.retained for one in self.gateways.values() if not one.gone]
        return [{one.topic: one for one in retained.everything()} for retained in living]

    def _unlike(self) -> list[str]:
        held = self._held()
        topics = sorted({topic for one in held for topic in one})
        return [topic for topic in topics if len({one.get(topic) for one in held}) > 1]

    def judge(self) -> Result:
        """Wait until the system is at rest. Return the result of the rig's judge."""
        stalled = not self.settle()
        for name, board in self.boards.items():
            self.lines[name].tap.close()
            self.truth.read_board(board)
            self.truth.add("wire", "count", line=name, final=True)
        result = check(
            self.truth.close(
                list(self.boards),
                {name: client.sent for name, client in self.clients.items()},
                list(self.gateways),
                self._copies,
                stalled,
            )
        )
        for board in self.boards.values():
            self.reached["board died"] += board.cuts
            self.reached["board died in a write"] += board.torn
        self.reached["publications"] += len(result.publications)
        return result

    def on_step(self, board: str, step: str, count: int, call: Callable[[], object]) -> None:
        """Run `call` when the line of a board has made the `count`th step of this name from now. If
        all faults have ended before, `call` is dropped.
        """
        self._steps.append([board, step, count, call])

    def _strike(self, step: list[Any]) -> None:
        if step in self._steps:
            step[3]()

    def _tapped(self, name: str, data: dict[str, Any]) -> None:
        event = data.pop("event")
        if event == "connack":
            present = data["session_present"]
            self.reached["sessions gone on with" if present else "sessions begun"] += 1
        self.truth.add("wire", event, line=name, **data)
        for waiting in self._steps:
            if waiting[:2] == [name, event]:
                waiting[2] -= 1
                if not waiting[2]:
                    self.time.after(_AFTER_S, partial(self._strike, waiting))

    def _committed(self, gateway: Gateway) -> None:
        self.reached["commits"] += 1
        for row in self._rows(gateway, self._spooled[gateway.name]):
            self._spooled[gateway.name] = row["position"]
            self.truth.add("spool", "publication", **row)

    def _rows(self, gateway: Gateway, after: int) -> list[dict[str, Any]]:
        """Return the rows of a spool with numbers above `after`, in the history's format."""
        rows = gateway.database.execute(QUERY, (after,))
        names = [name for name, *_ in rows.description]
        origin = self._origins[gateway.name]
        return [sighting(dict(zip(names, values, strict=True)), origin) for values in rows]

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Draw the gateways' random values from the seed, and record errors in their logs, during a
        `with` block.
        """
        draw = self._secrets
        log = logging.getLogger("gateway")
        log.addHandler(self._errors)
        try:
            with (
                patch("secrets.token_bytes", draw.randbytes),
                patch("secrets.randbelow", draw.randrange),
                patch("secrets.token_hex", lambda count: draw.randbytes(count).hex()),
            ):
                yield
        finally:
            log.removeHandler(self._errors)
