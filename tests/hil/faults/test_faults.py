"""Faults without a run: their places are drawn, and a fault that did not happen never counts as
happened.
"""

import asyncio
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.frames import Crc16, Data
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Pubcomp, Publish, Pubrel, Version
from hil.bench.bench import Bench
from hil.bench.plan import Plan
from hil.boards.ledger import SLOT_SIZE, SLOTS_AT
from hil.boards.simulator import Event, SimulatedBoard
from hil.devices.simulated import SimulatedDevice
from hil.faults import Evidence, Fault
from hil.faults.board import (
    BoardEepromWorn,
    BoardPowerCut,
    BoardPowerCutInExchange,
    BoardSwapped,
    BoardWatchdog,
    within,
)
from hil.faults.gateway import GatewayKill, GatewayPowerCut, restart
from hil.faults.ingest import STEPS, CheckpointLost, IngestKill, IngestStop
from hil.faults.line import LineCut, LineNoise
from hil.faults.machine import (
    ClockUnknown,
    DiskFull,
    LandingRefuses,
    LandingSlow,
    MachineFault,
    UploadCut,
)
from hil.faults.sweep import BoardPowerCutAtEachByte
from hil.faults.windows import AFTER_ACK, BEFORE_ACK, BEFORE_SYNC, BEFORE_WRITE, WindowKind
from hil.judge.checker import Verdict, check
from hil.judge.coverage import (
    AFTER_WRITE,
    BETWEEN,
    COMMITTED,
    IN_OTHER,
    IN_PUBLISH,
    IN_PUBREL,
    IN_WRITE,
)
from hil.observe.folder import Folder
from hil.observe.history import History, read
from hil.programs.process import Children, EndedError, children
from hil.run.injector import Injector
from hil.run.system import System
from hil.wire.line import Line
from hil.wire.noise import Noise

READINGS = {"uno-1": 50, "uno-2": 50}
HELD = [
    (GatewayKill(kind="gateway-kill"), "received"),
    (GatewayKill(kind="gateway-kill"), "committed"),
    (GatewayPowerCut(kind="gateway-power-cut"), "committed"),
]
"""Faults with windows of the gateway. The gateway may also reach such a window by a commit or an
answer without a publication.
"""


def fault(kind: str, **detail: object) -> Fault:
    return Fault(f"uno-1/{kind}-1", kind, "lane", kind, "spooled", 1, detail)


class Machine(dict[str, int]):
    """A stand-in for a faulty machine. When a fault is set, the counter `met` grows by `times`."""

    def __init__(self, met: str, times: int) -> None:
        super().__init__({met: 5})
        self._met, self._times = met, times
        self.set_to: list[int] = []

    def __setitem__(self, name: str, value: int) -> None:
        self.set_to.append(value)
        super().__setitem__(self._met, self[self._met] + (self._times if value else 0))


@pytest.mark.parametrize(
    ("kind", "program", "value"),
    [
        (DiskFull(kind="disk-full", seconds=0.01), "gateway", 1),
        (LandingSlow(kind="landing-slow", seconds=0.01, ms=700), "uplink", 700),
        (LandingRefuses(kind="landing-refuses", seconds=0.01), "uplink", 1),
        (UploadCut(kind="upload-cut", seconds=0.01), "uplink", 1),
    ],
)
async def test_a_machine_misbehaves_under_its_program_until_it_was_met(
    kind: MachineFault, program: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hil.faults.machine.MET_WITHIN", 0.05)
    for times in (0, 3):
        machine = Machine(kind.met, times)
        rig: Any = SimpleNamespace(site=SimpleNamespace(machine={program: machine}.__getitem__))
        evidence = await kind.inject(fault(kind.kind), rig)
        assert machine.set_to == [value, 0]
        assert (evidence.data["times"] if evidence else 0) == times


@pytest.mark.parametrize(("asked", "again"), [(0, 1), (3, 0), (3, 1)])
async def test_a_start_without_the_time_has_happened_if_the_gateway_asked_before_and_after(
    asked: int, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hil.observe.counters.PATIENCE", 0.05)

    class Machine(dict[str, int]):
        def __setitem__(self, name: str, value: int) -> None:
            super().__setitem__(name, value)
            super().__setitem__("asked", asked + again)

    machine = Machine(asked=asked, unknown=1, clock_ns=-1)
    rig: Any = SimpleNamespace(site=SimpleNamespace(machine={"gateway": machine}.__getitem__))
    evidence = await ClockUnknown(kind="clock-unknown").inject(fault("clock-unknown"), rig)
    assert (machine["unknown"], machine["clock_ns"]) == (0, 0)
    assert (evidence is not None) is bool(asked and again)


@pytest.mark.parametrize("shifted", [0, 3])
async def test_a_start_with_a_wrong_clock_has_happened_if_the_gateway_has_read_it(
    shifted: int,
) -> None:
    machine = {"asked": 0, "shifted": shifted, "unknown": 0, "clock_ns": -1}
    rig: Any = SimpleNamespace(site=SimpleNamespace(machine={"gateway": machine}.__getitem__))
    kind = ClockUnknown(kind="clock-unknown", synchronised=True)
    evidence = await kind.inject(fault("clock-unknown"), rig)
    assert (evidence is not None, machine["clock_ns"]) == (bool(shifted), 0)


@given(seed=st.integers(0, 2**32))
def test_kills_hit_each_step_of_the_ingest(seed: int) -> None:
    made = list(IngestKill(kind="ingest-kill", count=len(STEPS)).faults(seed, READINGS))
    assert {one.detail["before"] for one in made} == set(STEPS)
    assert {one.at for one in made} == {1}


@pytest.mark.parametrize(
    ("made", "step"),
    [
        ("checkpoint/offsets/12", "its offset is noted"),
        ("checkpoint/offsets/.12.0c61.tmp", None),
        ("checkpoint/offsets/.12.crc", None),
        ("publications/part-00ff.parquet", "its rows are written"),
        ("publications_readings/part-00ff.parquet", "its readings are written"),
        ("publications/_delta_log/00000000000000000002.json", "its rows are appended"),
        ("publications/_delta_log/.00000000000000000002.json.0c61.tmp", None),
        ("publications/_delta_log/.00000000000000000002.json.crc", None),
        ("publications_readings/_delta_log/00000000000000000002.json", "its readings are appended"),
        ("publications_quarantine/_delta_log/00000000000000000002.json", None),
        ("publications/_onceway/report.json", "its counts are saved"),
        ("publications/_onceway/.report.json.new", None),
        ("checkpoint/commits/12", "its end is noted"),
        ("checkpoint/metadata", None),
    ],
)
def test_a_step_is_known_by_the_file_that_it_makes_and_by_nothing_that_comes_after(
    made: str, step: str | None
) -> None:
    assert [name for name, pattern in STEPS.items() if fnmatch(f"/run/table/{made}", pattern)] == (
        [step] if step else []
    )


@pytest.mark.parametrize(("table", "happened"), [(1, True), (2, False)])
async def test_each_noise_table_of_a_line_must_have_harmed_it(table: int, happened: bool) -> None:
    kind = LineNoise(kind="line-noise", rate=0.1 if table == 1 else 0.000001, table=table)
    place = "seed"
    line = Line("up", 115200, [Noise(0.1, place, 1), Noise(0.000001, place, 2)])
    line.send(bytes(4000), 0.0)
    line.arrive(60.0)
    device = rig_of(harmed=line.counts)
    seen = kind.inject(fault("line-noise"), device)
    if happened:
        assert await asyncio.wait_for(seen, 5) is not None
    else:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(seen, 0.1)


@pytest.mark.parametrize("down", [3, 4])
async def test_a_cut_line_says_where_each_direction_was_struck(down: int) -> None:
    kind = LineCut(kind="line-cut")
    place = fault("line-cut", after=3, directions=["up", "down"])

    async def line_struck(_: str) -> list[dict[str, Any]]:
        told = {"publication": 1, "over": 2, "bytes": 80, "offset": 50, "behind": None}
        return [
            {**told, "direction": "up", "after": 3},
            {**told, "direction": "down", "after": down},
        ]

    evidence = await kind.inject(place, rig_of(line_struck=line_struck))
    assert evidence is not None
    assert (evidence.data["hit"] == kind.aim(place)) is (down == 3)
    assert evidence.data["over"] == {"up publication": 2, "down publication": 2}


@pytest.mark.parametrize(
    ("file", "step"),
    [("/t/checkpoint/commits/3", "its end is noted"), ("/t/checkpoint/metadata", "nothing")],
)
async def test_a_kill_of_the_ingest_says_before_which_file_it_stood(
    file: str, step: str, tmp_path: Path
) -> None:
    class Held(dict[str, int]):
        found = file

        def hold_before(self, _: str) -> None:
            self["held"] = 1

    child = SimpleNamespace(pid=1, kill=nothing, check=lambda: None)
    machine = Held(held=0, hold=1)
    site = SimpleNamespace(
        process_lock=asyncio.Lock(),
        running={"ingest": child},
        start_ingest=nothing,
        machine={"ingest": machine}.__getitem__,
    )
    progress = SimpleNamespace(begun=1, appends=1)
    rig: Any = SimpleNamespace(site=site, counters={"spooled": 9}, progress=progress)
    place = fault("ingest-kill", before="its end is noted")
    evidence = await IngestKill(kind="ingest-kill").inject(place, rig)
    assert evidence is not None
    assert evidence.data["hit"] == {"window": f"before {step}"}


class Struck:
    """A board that records the orders for faults, and returns prepared reports one after the
    other.
    """

    def __init__(self, *events: Event) -> None:
        self._events = list(events)
        self.ordered: list[tuple[str, int]] = []
        self.taken = 0

    async def next_event(self, _: str, name: str) -> Event:
        while self._events:
            event = self._events.pop(0)
            if event.name == name:
                return event
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def samples(self) -> int:
        return self.taken

    async def strike_next(self, _: str, command: str, after: int) -> bool:
        self.ordered.append((command, after))
        return True


def struck(sample: int, behind: str | None = None) -> Event:
    return Event("struck", 1, {"id": "uno-1/x-1", "sample": sample, "behind": behind})


def cut(
    cycle: int, tx: int = 0, writes: int = 0, writing: object = None, armed: str = "tx"
) -> Event:
    since = {"tx": tx, "writes": writes}
    details = {"armed": armed, "writing": writing, "tx": 1, "writes": 1}
    details |= {"since": since, "frame": ""}
    return Event("cut", cycle, details)


def rig_of(**device: Any) -> Any:
    return SimpleNamespace(
        device=lambda _: SimpleNamespace(**device),
        site=SimpleNamespace(process_lock=asyncio.Lock()),
    )


async def nothing(*_: object, **__: object) -> None:
    pass


@pytest.mark.parametrize(("cause", "happened"), [("watchdog", True), ("external", False)])
async def test_a_watchdog_must_have_been_the_cause_of_the_start(
    cause: str, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hil.faults.board.RESTART_WITHIN", 0.05)
    resets: list[int] = []

    async def reset() -> None:
        resets.append(1)

    device = Struck(struck(7), Event("reset", 1, {}), Event("boot", 2, {"cause": cause}))
    evidence = await BoardWatchdog(kind="board-watchdog").inject(
        fault("board-watchdog"),
        rig_of(board=SimpleNamespace(reset=reset), next_event=device.next_event),
    )
    assert (evidence is not None) is happened
    assert len(resets) == (0 if happened else 1)  # none is left hanging
    if evidence:
        assert evidence.data["hit"] == {"sample": 7}


@pytest.mark.parametrize(
    ("writes", "writing", "hit"),
    [
        (4, {"address": 3, "value": 1}, {"sample": 9, "writes": 5, "torn": True}),
        (5, None, {"sample": 9, "writes": 5, "torn": False}),
    ],
)
async def test_a_cut_says_where_it_was_in_the_boards_own_counts(
    writes: int, writing: object, hit: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hil.faults.board.OFF_S", 0)
    device = Struck(struck(9), cut(2, writes=writes, writing=writing, armed="eeprom"))
    board = SimpleNamespace(power=nothing)
    device.taken = 12
    told = {"next_event": device.next_event, "samples": device.samples}
    rig = rig_of(board=board, look=lambda: 1, waiting=0, **told)
    evidence = await BoardPowerCut(kind="board-power-cut").inject(fault("board-power-cut"), rig)
    assert evidence is not None
    assert evidence.data["hit"] == hit
    assert evidence.data["over"] == {"sample": 12}
    assert evidence.window == (IN_WRITE if writing else AFTER_WRITE)


@pytest.mark.parametrize("counts", [[4, 4, 4, 5], [4, 4]])
async def test_a_worn_slot_must_have_changed_what_was_written(
    counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    happens = counts[-1] > counts[0]
    monkeypatch.setattr("hil.faults.board.WORN_WITHIN", 60 if happens else 0.1)
    left = iter(counts)
    stuck: list[tuple[int, int, int]] = []

    async def stats() -> Any:
        return SimpleNamespace(stuck_writes=next(left, counts[-1]))

    async def stick(*cell: int) -> None:
        stuck.append(cell)  # type: ignore[arg-type]

    board = SimpleNamespace(stats=stats, stick=stick)
    rig = rig_of(board=board, ledger=SimpleNamespace(newest_slot=58))
    evidence = await BoardEepromWorn(kind="board-eeprom-worn").inject(
        fault("board-eeprom-worn", ahead=3, bit=2), rig
    )
    # the firmware uses the slots in turn
    assert stuck == [(SLOTS_AT + 1 * SLOT_SIZE + cell, 4, 0xFF) for cell in range(14)]
    assert (evidence is not None) is happens


@pytest.mark.parametrize(
    ("new", "happened"), [(0xBEEF, True), (0xC0FFEE, False), (0, False), (None, False)]
)
async def test_a_new_board_must_have_met_the_gateway_as_another_one(
    new: int | None, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """new: incarnation of the new board; None: the line is still connected to the old board."""
    monkeypatch.setattr("hil.faults.board.MET_WITHIN", 0.1)
    ledger = SimpleNamespace(incarnation=0xC0FFEE)
    swapped: list[str] = []

    async def swap(name: str, within: float) -> None:
        swapped.append(name)
        if new is None:
            raise TimeoutError
        ledger.incarnation = new

    device = Struck(struck(5), cut(7, tx=3))
    device.taken = 6
    rig = rig_of(
        next_event=device.next_event,
        samples=device.samples,
        swap=swap,
        look=lambda: 1,
        waiting=2,
        ledger=ledger,
    )
    evidence = await BoardSwapped(kind="board-swapped").inject(
        fault("board-swapped", after_tx=3), rig
    )
    assert swapped == ["uno-1/board-swapped-1"]
    assert (evidence is not None) is happened
    if evidence:
        assert evidence.data == {
            "old": 0xC0FFEE,
            "new": 0xBEEF,
            "held": 2,
            "hit": {"sample": 5, "bytes": 3},
            "over": {"sample": 6},
            "behind": None,
        }


async def test_a_swap_that_is_interrupted_leaves_no_board_behind(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []

    async def stop(board: SimulatedBoard) -> None:
        stopped.append(board.directory.name)

    async def provision(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(SimulatedBoard, "start", nothing)
    monkeypatch.setattr(SimulatedBoard, "stop", stop)
    monkeypatch.setattr(SimulatedDevice, "_provision", provision)
    device = SimulatedDevice(
        "uno-1", Folder(tmp_path), Bench(title="t", readings=20), Children(tmp_path), history
    )
    with pytest.raises(asyncio.CancelledError):
        await device.swap("uno-1/board-swapped-1", 1)
    assert stopped == ["uno-1.2"]
    assert device.board.directory.name == "uno-1"


async def test_a_cut_that_fell_outside_of_an_exchange_is_made_again_at_the_next_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first cut has no effect. The history states the sample of the first cut as the fault's
    place, and the cycle of the second one.
    """
    monkeypatch.setattr("hil.faults.board.OFF_S", 0)
    device = Struck(struck(12), cut(1, tx=9), struck(13), cut(2, tx=9))
    device.taken = 12
    waiting = iter([0, 2])

    class Board(SimpleNamespace):
        @property
        def waiting(self) -> int:
            return next(waiting)

    there = Board(
        board=SimpleNamespace(power=nothing),
        next_event=device.next_event,
        samples=device.samples,
        strike_next=device.strike_next,
        look=lambda: 1,
    )
    kind = BoardPowerCutInExchange(kind="board-power-cut-in-exchange")
    rig: Any = SimpleNamespace(device=lambda _: there)
    evidence = await kind.inject(fault("board-power-cut-in-exchange", after_tx=9), rig)
    assert evidence is not None
    assert device.ordered == [("cut tx 9", 12)]
    assert (evidence.data["cycle"], evidence.data["again"]) == (2, 1)
    assert evidence.data["hit"] == {"sample": 12, "bytes": 9}


async def test_a_sweep_counts_from_the_sample_of_an_exchange_that_begins_when_all_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the start, no exchange is in progress until the first publication. The board refuses
    the first order to cut its power, because it has just taken a sample. The rig then orders the
    cut again.
    """
    monkeypatch.setattr("hil.faults.board.OFF_S", 0)

    class Device(Struck):
        def __init__(self) -> None:
            super().__init__(struck(21), cut(1, tx=4))
            self.board = SimpleNamespace(power=nothing)
            self.looks = 0
            self.armed_after: list[int] = []

        def look(self) -> int:
            self.looks += 1
            return 9

        @property
        def journalled(self) -> int:
            return 1 + (self.looks > 3)

        @property
        def waiting(self) -> int:
            return int(3 < self.looks <= 5)

        async def strike_next(self, _: str, command: str, after: int) -> bool:
            self.armed_after.append(self.looks)
            self.taken += 1
            return len(self.armed_after) > 1

    device = Device()
    kind = BoardPowerCutAtEachByte(kind="board-power-cut-at-each-byte", count=9)
    rig: Any = SimpleNamespace(device=lambda _: device)
    evidence = await kind.inject(fault("board-power-cut-at-each-byte", steps=4, torn=False), rig)
    assert evidence is not None
    assert evidence.data["hit"]["bytes"] == 4
    assert len(device.armed_after) == 2
    assert min(device.armed_after) > 5


@pytest.mark.parametrize(
    ("packet", "sent", "window"),
    [
        (encode(Publish("sensors/x", b"12", qos=2, packet_id=0x100), Version.V5), 9, IN_PUBLISH),
        (encode(Pubrel(0x100), Version.V5), 4, IN_PUBREL),
        (encode(Pubrel(0x100), Version.V5), 1, IN_OTHER),
        (encode(Pubcomp(0x100), Version.V5), 5, IN_OTHER),
    ],
)
def test_sent_part_of_a_frame_tells_its_kind(packet: bytes, sent: int, window: str) -> None:
    frame = Data(0, 0, packet).to_bytes(Crc16(7)).strip(b"\0")
    assert within(frame[:sent]) == window
    assert within(b"") == BETWEEN


async def test_processes_go_down_and_come_up_one_after_the_other() -> None:
    """In another order, a power cut could start an uplink that a kill has already started."""
    order: list[str] = []

    def child(name: str) -> Any:
        async def kill() -> None:
            order.append(f"{name} down")

        return SimpleNamespace(pid=1, kill=kill, check=lambda: None)

    def start(name: str) -> Callable[[], Any]:
        async def started() -> None:
            order.append(f"{name} up")

        return started

    site = SimpleNamespace(
        process_lock=asyncio.Lock(), running={name: child(name) for name in ("gateway", "uplink")}
    )
    rig: Any = SimpleNamespace(site=site, counters={"spooled": 9})
    await asyncio.gather(*(restart(rig, name, start(name)) for name in ("gateway", "uplink")))
    assert order == ["gateway down", "gateway up", "uplink down", "uplink up"]


async def test_a_program_that_has_died_by_itself_is_not_killed_by_a_fault(tmp_path: Path) -> None:
    """If the fault killed the program, the run would hide that the program had died by itself."""
    async with children(tmp_path) as programs:
        child = await programs.start("gateway", ["false"])
        await child.process.wait()
        rig: Any = SimpleNamespace(
            site=SimpleNamespace(process_lock=asyncio.Lock(), running={"gateway": child}),
            counters={"spooled": 9},
        )
        with pytest.raises(EndedError, match="gateway ended by itself"):
            await restart(rig, "gateway", nothing)


async def test_a_checkpoint_is_lost_when_it_holds_something(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    ended = iter([-1, -1, 3, 3])

    class Progress:
        @property
        def ended(self) -> int:
            return next(ended)

    async def start_ingest() -> None:
        assert not (tmp_path / "checkpoint").exists()

    child = SimpleNamespace(pid=1, kill=nothing, check=lambda: None)
    folder = SimpleNamespace(checkpoint=tmp_path / "checkpoint")
    site = SimpleNamespace(
        process_lock=asyncio.Lock(),
        running={"ingest": child},
        folder=folder,
        start_ingest=start_ingest,
    )
    rig: Any = SimpleNamespace(site=site, counters={"spooled": 9}, progress=Progress())
    evidence = await CheckpointLost(kind="checkpoint-lost").inject(fault("checkpoint-lost"), rig)
    assert evidence is not None
    assert evidence.data == {"micro_batches": 4}


@pytest.mark.parametrize(
    ("code", "saves", "happened"), [(0, True, True), (0, False, False), (1, True, False)]
)
async def test_an_ingest_is_stopped_when_it_has_saved_what_it_has_seen(
    tmp_path: Path, code: int, saves: bool, happened: bool
) -> None:
    """code: exit code of the ingest. saves: whether the ingest saves the list of batches that it
    has read. happened: whether the fault then happens, that is, the same batches land again under
    other epochs.
    """
    table = tmp_path / "publications"
    (table / "_onceway").mkdir(parents=True)
    (table / "_onceway" / "seen-1.parquet").touch()
    taken = {"site/a": 2, "site/b": 1}
    landed: list[tuple[str, int, str]] = []

    async def finish(script: str, within: float) -> int:
        if saves:
            (table / "_onceway" / "seen-2.parquet").touch()
        return code

    def repeat(feed: str, batch: int, epoch: str) -> int:
        landed.append((feed, batch, epoch))
        return 5

    async def start_ingest() -> None:
        taken.update({f"site/{epoch}": 1 for _, _, epoch in landed})

    child = SimpleNamespace(pid=1, finish=finish, check=lambda: None)
    site = SimpleNamespace(
        process_lock=asyncio.Lock(),
        running={"ingest": child},
        folder=SimpleNamespace(table=table),
        landing=SimpleNamespace(repeat=repeat),
        start_ingest=start_ingest,
    )
    rig: Any = SimpleNamespace(
        site=site,
        progress=SimpleNamespace(batches=lambda: taken),
        landing=SimpleNamespace(newest={"site/a": 2}),
    )
    evidence = await IngestStop(kind="ingest-stop").inject(fault("ingest-stop"), rig)
    assert [one[:2] for one in landed] == [("site/a", 1), ("site/a", 2)]
    assert len({epoch for _, _, epoch in landed}) == 2
    assert (evidence is not None) is happened
    if evidence:
        told = {"pid": 1, "snapshot": "seen-2.parquet", "batches": 2, "rows": 10}
        assert evidence.data == told


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "history.jsonl")
    yield made
    made.close()


async def test_impossible_fault_is_reported_and_makes_the_verdict_unknown(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hil.faults.gateway.missing", lambda: "mounting a loop device needs root")

    async def done(*_: object) -> Evidence:
        return Evidence("done", {"hit": {"window": COMMITTED}}, COMMITTED)

    monkeypatch.setattr(GatewayKill, "inject", done)

    async def reach(*_: object) -> None:
        pass

    kill = GatewayKill(kind="gateway-kill", window="committed")
    kinds = [GatewayPowerCut(kind="gateway-power-cut"), kill]
    plan = Plan(1, READINGS, tuple(one for kind in kinds for one in kind.faults(1, READINGS)))
    said: list[str] = []
    display = SimpleNamespace(say=lambda text, style: said.append(text), fault=lambda text: None)
    site = SimpleNamespace(start_gateway=None)
    rig: Any = SimpleNamespace(
        history=history,
        display=display,
        counters=SimpleNamespace(reach=reach),
        site=site,
        look=lambda: 1,
    )
    rig.at = lambda _: rig
    injector = Injector(plan, kinds, rig)
    injector.announce()
    await injector.run("gateway")
    result = check(read(history.path))
    assert result.verdict is Verdict.UNKNOWN
    cannot = "gateway/gateway-power-cut-1 (power cut of the gateway)"
    assert (
        f"planned fault did not happen: {cannot}: mounting a loop device needs root"
        in result.reasons
    )
    assert said == [f"  {cannot} cannot happen here: mounting a loop device needs root"]
    assert result.faults == {"kill -9 of the gateway": 1}


@pytest.mark.parametrize("bounded", [True, False])
async def test_the_run_waits_for_what_ends_by_itself(
    history: History, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bounded: whether the fault ends by itself. Only then does the run wait for it."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def take_long(*_: object) -> Evidence:
        begun.set()
        await end.wait()
        return Evidence("done")

    monkeypatch.setattr(GatewayKill, "bounded", bounded)
    monkeypatch.setattr(GatewayKill, "inject", take_long)
    kind = GatewayKill(kind="gateway-kill")
    plan = Plan(1, READINGS, tuple(kind.faults(1, READINGS)))
    display = SimpleNamespace(fault=lambda text: None)
    rig: Any = SimpleNamespace(
        history=history,
        display=display,
        counters=SimpleNamespace(reach=nothing),
        site=SimpleNamespace(start_gateway=None),
        look=lambda: 1,
    )
    rig.at = lambda _: rig
    injector = Injector(plan, [kind], rig)
    running = asyncio.create_task(injector.run("gateway"))
    await begun.wait()
    assert injector.awaited == int(bounded)
    end.set()
    await running
    assert injector.awaited == 0


@pytest.mark.parametrize(("kind", "window"), HELD)
@pytest.mark.parametrize("steps", [1, 3, 100])
async def test_a_step_without_a_publication_is_let_through(
    kind: WindowKind, window: str, steps: int
) -> None:
    """A commit or an answer may belong to a session instead of a publication, for example after a
    restart. steps: number of the first step with a publication; 100 is more than the rig tries.
    """
    stood: list[str] = []

    class Armed(dict[str, int]):
        def arm(self, code: int, _: int) -> None:
            stood.append("armed")
            self["reached"] = code

        def disarm(self) -> None:
            stood.append("let through")

    def is_there(code: int) -> bool:
        assert code == kind.windows[window].code
        return stood.count("armed") >= steps

    machine: Any = Armed()
    child: Any = SimpleNamespace(
        check=lambda: None, pause=lambda: None, resume=lambda: None, paused=True
    )
    place = fault(kind.kind, window=window, **{"pass": 0})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hil.faults.windows.asyncio.sleep", no_time)
        text = await kind.halt(place, machine, child, is_there)
    assert text == (kind.windows[window].text if steps < 100 else None)
    assert stood.count("let through") == (steps - 1 if text else 20)


def test_a_window_is_a_state_of_a_publication() -> None:
    """Publication 4 is sent. Publication 3 is in the store, but its publisher does not know that
    yet.
    """
    board = SimpleNamespace(gateway="attic", sent={1, 2, 3, 4}, accepted={1, 2})
    spool = SimpleNamespace(look=lambda: None, stored={"b": {1, 2, 3}})
    system: Any = SimpleNamespace(
        spool=spool, site=SimpleNamespace(name="attic"), publishers={"b": board}
    )
    for window in (BEFORE_WRITE, BEFORE_SYNC, BEFORE_ACK, AFTER_ACK):
        assert System.is_at(system, window)
    board.accepted = {1, 2, 3}
    assert not System.is_at(system, BEFORE_ACK)
    board.sent = {1, 2, 3}
    assert not System.is_at(system, BEFORE_WRITE)
    assert not System.is_at(system, BEFORE_SYNC)
    assert System.is_at(system, AFTER_ACK)


async def no_time(_: float) -> None:
    """Replacement of `asyncio.sleep` that does not wait."""
