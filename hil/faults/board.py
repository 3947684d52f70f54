"""Faults of a board: a power cut at a counted point, a reset, a worn EEPROM, or another board in
its place. A board that accepts orders gets its faults before its first power-on, each for one of
its ADC conversions (hil/boards/strikes.py). The place then does not depend on an observer's timing.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from hil.boards.ledger import CHECKED, SLOT_SIZE, SLOTS, SLOTS_AT
from hil.boards.simulator import OFF_S, Event
from hil.faults.base import Kind, Seconds, Shares
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import DeviceUnderTest, SystemUnderTest
from hil.formats.frames import Kind as FrameKind
from hil.formats.frames import begin_of_body, kind_of
from hil.judge.coverage import (
    AFTER_WRITE,
    AT_HEARD,
    AT_LISTENING,
    AT_SENDING,
    AT_SENT,
    BETWEEN,
    IN_OTHER,
    IN_PUBLISH,
    IN_PUBREL,
    IN_WRITE,
)
from hil.observe.counters import LOOK_EVERY, wait_until

# about the number of EEPROM writes between two readings; a cut within them may tear a slot
SLOT_WRITES = 20
PUBLISH_BYTES = 40  # fewer bytes than a PUBLISH frame has: a cut after them falls into the exchange
STEPS_OF_TURN = {"sends": AT_SENDING, "sent": AT_SENT, "listens": AT_LISTENING, "heard": AT_HEARD}
"""Steps of a turn: the simulated board's word for each, and the text for people."""
CUT_WITHIN = 300.0  # s; if its journal is full, a board writes only after a delivery
RESTART_WITHIN = 30.0  # s; the watchdog or a boot loader alone takes 2 s
WORN_WITHIN = 60.0  # s until the journal must reach a worn slot
MET_WITHIN = 60.0  # s until a new board must have met the gateway


class Strike(Kind):
    """A fault of a simulated board. It happens at the sample whose number is the fault's place."""

    part: ClassVar[str] = "board"

    def command(self, fault: Fault) -> str:
        """Return the command to the simulated board (firmware/sim/README.md)."""
        raise NotImplementedError

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"sample": fault.at}

    async def arm(self, fault: Fault, system: SystemUnderTest) -> bool:
        return await system.device(fault).arm(fault, self.command(fault))


class BoardPowerCut(Strike):
    """A power cut at one of the next EEPROM writes: in its middle or after it, equally often."""

    text: ClassVar[str] = "power cut"
    air: ClassVar[Literal["yes"]] = "yes"
    kind: Literal["board-power-cut"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"after_eeprom": rng.randint(1, SLOT_WRITES), "torn": rng.random() < 0.5}

    def command(self, fault: Fault) -> str:
        return cut_at("eeprom", fault.detail["after_eeprom"], fault.detail["torn"])

    def aim(self, fault: Fault) -> dict[str, Any]:
        writes, torn = fault.detail["after_eeprom"], fault.detail["torn"]
        return {**super().aim(fault), "writes": writes, "torn": torn}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        cut = await cut_power(system.device(fault), fault.id)
        return cut.evidence if cut else None


class BoardPowerCutInExchange(Strike):
    """A power cut when the board has sent N bytes since a sample, during the exchange of a
    publication. If a cut comes outside of an exchange, the rig orders another cut for the next
    sample."""

    text: ClassVar[str] = "power cut in an exchange"
    kind: Literal["board-power-cut-in-exchange"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"after_tx": rng.randint(1, PUBLISH_BYTES)}

    def command(self, fault: Fault) -> str:
        return cut_at("tx", fault.detail["after_tx"])

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {**super().aim(fault), "bytes": fault.detail["after_tx"]}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        first: Cut | None = None
        again = 0
        while cut := await cut_power(device, fault.id):
            first = first or cut
            if cut.waiting:
                # the place is that of the first cut: later cuts only repeated it
                place = {**first.place, "over": cut.place["over"]}
                data = {**cut.evidence.data, **place, "again": again}
                return Evidence(cut.evidence.text, data)
            again += 1
            while not await device.strike_next(
                fault.id, self.command(fault), await device.samples()
            ):
                pass
        return None


class BoardPowerCutInTurn(Strike):
    """A power cut of a radio board at a step of its turn: when it begins to send, has sent, begins
    to listen for the answer, or has heard it. Successive faults take successive steps.
    """

    text: ClassVar[str] = "power cut in a turn of a radio board"
    air: ClassVar[Literal["only"]] = "only"
    kind: Literal["board-power-cut-in-turn"]

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        for number, fault in enumerate(super().faults(seed, readings)):
            step = list(STEPS_OF_TURN)[number % len(STEPS_OF_TURN)]
            yield replace(fault, detail={"step": step})

    def command(self, fault: Fault) -> str:
        return f"cut {fault.detail['step']} 1"

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {**super().aim(fault), "window": STEPS_OF_TURN[fault.detail["step"]]}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        cut = await cut_power(system.device(fault), fault.id)
        return cut.evidence if cut else None


def cut_at(unit: Literal["tx", "eeprom"], count: int, torn: bool = False) -> str:
    return f"cut {unit} {count}" + (" torn" if torn else "")


@dataclass(frozen=True, slots=True)
class Cut:
    """A power cut that happened. struck: the board's report of the sample at which the cut was
    ordered. event: the board's report of the cut. waiting: number of publications in the journal
    that were not complete at the cut. sample: number of the newest sample at the cut.
    """

    struck: Event
    event: Event
    waiting: int
    sample: int

    @property
    def place(self) -> dict[str, Any]:
        """Return the place of the cut, in the form that the judge compares with the plan. `behind`:
        the fault for which the cut had to wait.
        """
        since, torn = self.event.details["since"], bool(self.event.details["writing"])
        hit = {"sample": self.struck.details["sample"]}
        hit |= (
            {"writes": since["writes"] + torn, "torn": torn}
            if self.event.details["armed"] == "eeprom"
            else {"window": self.window}
            if self.event.details["armed"] in STEPS_OF_TURN
            else {"bytes": since["tx"]}
        )
        behind = self.struck.details["behind"]
        return {"hit": hit, "behind": behind, "over": {"sample": self.sample}}

    @property
    def window(self) -> str:
        if self.event.details["armed"] == "tx":
            return within(bytes.fromhex(self.event.details["frame"]))
        if self.event.details["armed"] in STEPS_OF_TURN:
            return STEPS_OF_TURN[self.event.details["armed"]]
        return IN_WRITE if self.event.details["writing"] else AFTER_WRITE

    @property
    def evidence(self) -> Evidence:
        torn = ", an EEPROM write torn" if self.event.details["writing"] else ""
        measured = {name: self.event.details[name] for name in ("tx", "writes")}
        return Evidence(
            f"{self.waiting} publication(s) in the journal{torn}",
            {"cycle": self.event.cycle, **measured, **self.place},
            self.window,
        )


def within(sent: bytes) -> str:
    """Return what a board was sending at its power cut, by the bytes of the frame sent so far. Each
    MQTT packet of a board begins a frame (gateway/links/FORMAT.md: a DATA frame's control byte is
    below 64, and the packet follows it).
    """
    if not sent:
        return BETWEEN
    body = begin_of_body(sent)
    if len(body) < 2 or kind_of(body) is not FrameKind.DATA:
        return IN_OTHER
    return {3: IN_PUBLISH, 6: IN_PUBREL}.get(body[1] >> 4, IN_OTHER)


async def cut_power(device: DeviceUnderTest, fault: str) -> Cut | None:
    """Wait for the ordered power cut, and restore the power. Return None if it did not come."""
    if cut := await power_goes(device, fault):
        await asyncio.sleep(OFF_S)
        await device.board.power(True)
    return cut


async def power_goes(device: DeviceUnderTest, fault: str) -> Cut | None:
    """Wait for the ordered power cut, and read the ledger. Return None if the cut did not come."""
    struck = await device.next_event(fault, "struck")
    try:
        async with asyncio.timeout(CUT_WITHIN):
            event = await device.next_event(fault, "cut")
    except TimeoutError:
        await device.board.cancel()
        return None
    device.look()
    return Cut(struck, event, device.waiting, await device.samples())


async def started(device: DeviceUnderTest, fault: str, cause: str) -> Evidence | None:
    """Wait until the board was struck, and then until it starts with this cause. Return None if it
    does not start in time.
    """
    struck = await device.next_event(fault, "struck")
    return await starts(device, struck, cause)


async def starts(device: DeviceUnderTest, struck: Event, cause: str) -> Evidence | None:
    """Wait until a struck board starts with this cause. Return None if this takes too long."""
    fault = str(struck.details["id"])
    with suppress(TimeoutError):
        async with asyncio.timeout(RESTART_WITHIN):
            while True:
                event = await device.next_event(fault, "boot")
                if event.details["cause"] == cause:
                    text = f"the board has started, cause {cause}"
                    return Evidence(text, {"cycle": event.cycle, **place(struck)})
    return None


def place(struck: Event) -> dict[str, Any]:
    """Return where a strike happened, and for which fault it had to wait, in the judge's form."""
    return {"hit": {"sample": struck.details["sample"]}, "behind": struck.details["behind"]}


class BoardBrownOut(Strike):
    """A dip of the supply: a reset that keeps RAM and tears an EEPROM write in progress."""

    text: ClassVar[str] = "brown-out"
    kind: Literal["board-brown-out"]

    def command(self, fault: Fault) -> str:
        return "brownout"

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        return await started(system.device(fault), fault.id, "brown-out")


class BoardReset(Strike):
    """An edge of DTR at the board's port, as when another program opens it. The RAM is kept."""

    text: ClassVar[str] = "reset by DTR"
    on_real: ClassVar[bool] = True
    kind: Literal["board-reset"]

    def command(self, fault: Fault) -> str:
        return "reset"

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        return await system.device(fault).reset(fault.id)


class BoardSwitchedOff(Strike):
    """The power of the board is switched off for some seconds, at any point. On a real board, this
    is done with its switch.
    """

    text: ClassVar[str] = "power switched off"
    on_real: ClassVar[bool] = True
    kind: Literal["board-switched-off"]
    seconds: Seconds = Field(default=2.0, ge=1, le=60)
    """Time without power."""

    def command(self, fault: Fault) -> str:
        return "power off"

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        return await system.device(fault).switched_off(fault.id, self.seconds)


class BoardWatchdog(Strike):
    """The board hangs, and its watchdog resets it. The RAM is kept."""

    text: ClassVar[str] = "reset by the watchdog"
    kind: Literal["board-watchdog"]

    def command(self, fault: Fault) -> str:
        return "hang"

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        evidence = await started(device, fault.id, "watchdog")
        if evidence is None:
            await device.board.reset()  # leave no board hanging
        return evidence


class BoardEepromWorn(Kind):
    """In each cell of a journal slot's sequence, source and CRC, a bit is stuck at 1 (erased) for
    the rest of the run. The slot is two to four places ahead of the newest one.
    """

    text: ClassVar[str] = "EEPROM worn"
    part: ClassVar[str] = "board"
    looked: ClassVar[bool] = True
    kind: Literal["board-eeprom-worn"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        # the next slot may be half written already
        return {"ahead": rng.randint(2, 4), "bit": rng.randrange(8)}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        with suppress(TimeoutError):
            async with asyncio.timeout(WORN_WITHIN):
                while True:
                    if evidence := await self._wear(fault, device):
                        return evidence
        return None

    async def _wear(self, fault: Fault, device: DeviceUnderTest) -> Evidence | None:
        """Wear out a slot. Return None if the board is replaced before the slot is used."""
        board = device.board
        slot = (device.ledger.newest_slot + fault.detail["ahead"]) % SLOTS
        before = (await board.stats()).stuck_writes
        for cell in range(CHECKED):
            await board.stick(SLOTS_AT + slot * SLOT_SIZE + cell, 1 << fault.detail["bit"], 0xFF)
        while device.board is board:
            if changed := (await board.stats()).stuck_writes - before:
                return Evidence(
                    f"slot {slot} took {changed} bytes that differ from the written ones",
                    {"slot": slot},
                )
            await asyncio.sleep(LOOK_EVERY)
        return None


class BoardSwapped(Strike):
    """The board dies when it has sent N bytes since a sample, and another board takes its name
    (`onceway device replace`). Publications that only the old board has count as left behind."""

    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    text: ClassVar[str] = "board swapped"
    kind: Literal["board-swapped"]
    between: Shares = (0.3, 0.7)

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"after_tx": rng.randint(1, PUBLISH_BYTES)}

    def command(self, fault: Fault) -> str:
        return cut_at("tx", fault.detail["after_tx"])

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {**super().aim(fault), "bytes": fault.detail["after_tx"]}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        died = await power_goes(device, fault.id)
        if died is None:
            return None
        old = device.ledger.incarnation
        try:
            async with system.site.process_lock:  # the registry is on the gateway's disk
                await device.swap(fault.id, MET_WITHIN)
            async with asyncio.timeout(MET_WITHIN):
                await wait_until(lambda: device.look() and device.ledger.incarnation)
        except TimeoutError:
            return None
        new = device.ledger.incarnation
        text = (
            f"incarnation {old:08x} with {died.waiting} unfinished publication(s) was replaced by"
            f" {new:08x}"
        )
        data = {"old": old, "new": new, "held": died.waiting, **died.place}
        return Evidence(text, data) if new != old else None
