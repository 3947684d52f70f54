"""Faults of a board: its power goes at a counted point, it is reset, its EEPROM wears out, or
another board takes its place.
"""

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from hil.boards.ledger import CHECKED, SLOT_SIZE, SLOTS, SLOTS_AT
from hil.boards.simulator import OFF_S, Event, SimulatedBoard
from hil.faults.base import Kind
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import DeviceUnderTest, SystemUnderTest
from hil.observe.counters import LOOK_EVERY, wait_until

# EEPROM writes from one reading to the next, about: a cut after up to as many may tear a slot
SLOT_WRITES = 20
PUBLISH_BYTES = (
    40  # a PUBLISH frame is longer: a cut after fewer bytes sent falls into the exchange
)
CUT_WITHIN = 60.0  # s in which an armed cut must come
CLOSE_LOOK_EVERY = 0.002  # s: an exchange takes a few hundredths of a second
RESTART_WITHIN = 30.0  # s; the watchdog, or a boot loader, alone takes two
HANGS = 3  # tries to hang a board whose watchdog is on
WORN_WITHIN = 60.0  # s in which a worn slot must have its turn
MET_WITHIN = 60.0  # s in which a new board must have met the gateway


class BoardPowerCut(Kind):
    """After N more EEPROM writes, half of the time in the middle of one."""

    text: ClassVar[str] = "power cut"
    part: ClassVar[str] = "board"
    kind: Literal["board-power-cut"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"after_eeprom": rng.randint(1, SLOT_WRITES), "torn": rng.random() < 0.5}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        cut = await cut_power(
            system.device(fault), "eeprom", fault.detail["after_eeprom"], fault.detail["torn"]
        )
        return cut.evidence if cut else None


class BoardPowerCutInExchange(Kind):
    """After N more bytes sent, while a publication is under way. A cut that fell outside of an
    exchange is made again, in the next one.
    """

    text: ClassVar[str] = "power cut in an exchange"
    part: ClassVar[str] = "board"
    kind: Literal["board-power-cut-in-exchange"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"after_tx": rng.randint(1, PUBLISH_BYTES)}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)

        def under_way() -> int:
            device.look()
            return device.waiting

        while cut := await cut_power(device, "tx", fault.detail["after_tx"]):
            if cut.waiting:
                return cut.evidence
            # else the next cut would fall into the board's greeting, and so on for ever
            await wait_until(under_way, CLOSE_LOOK_EVERY)
        return None


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut that came. waiting: publications that were journalled and not done at that moment."""

    event: Event
    waiting: int

    @property
    def evidence(self) -> Evidence:
        torn = ", an EEPROM write torn" if self.event.details["writing"] else ""
        measured = {name: self.event.details[name] for name in ("tx", "writes")}
        return Evidence(
            f"{self.waiting} publication(s) not done{torn}", {"cycle": self.event.cycle, **measured}
        )


async def cut_power(
    device: DeviceUnderTest, unit: Literal["tx", "eeprom"], count: int, torn: bool = False
) -> Cut | None:
    """Cut the power after `count` of `unit`, and give it back. None if the cut did not come."""
    if cut := await power_goes(device, unit, count, torn):
        await asyncio.sleep(OFF_S)
        await device.board.power(True)
    return cut


async def power_goes(
    device: DeviceUnderTest, unit: Literal["tx", "eeprom"], count: int, torn: bool = False
) -> Cut | None:
    """Cut the power after `count` of `unit`, and look at the ledger. None if the cut did not
    come.
    """
    events = await device.board.subscribe()
    await device.board.cut(unit, count, torn=torn)
    try:
        event = await events.wait_for("cut", CUT_WITHIN)
    except TimeoutError:
        await device.board.cancel()
        return None
    finally:
        events.close()
    device.look()
    return Cut(event, device.waiting)


class BoardBrownOut(Kind):
    """A dip of the supply: a reset that keeps RAM and tears an EEPROM write under way."""

    text: ClassVar[str] = "brown-out"
    part: ClassVar[str] = "board"
    kind: Literal["board-brown-out"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        board = system.device(fault).board
        return await restart(board, board.brownout(), "brown-out")


class BoardReset(Kind):
    """An edge of DTR at the board's port, as when another program opens it. RAM stays."""

    text: ClassVar[str] = "reset by DTR"
    part: ClassVar[str] = "board"
    on_real: ClassVar[bool] = True
    kind: Literal["board-reset"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        return await system.device(fault).reset(fault.id)


class BoardSwitchedOff(Kind):
    """Its power is off for some seconds, at whatever point it is: by the switch of a real board, or
    that of a simulated one.
    """

    text: ClassVar[str] = "power switched off"
    part: ClassVar[str] = "board"
    on_real: ClassVar[bool] = True
    kind: Literal["board-switched-off"]
    seconds: float = Field(default=2.0, ge=1, le=60)

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        return await system.device(fault).switched_off(self.seconds)


class BoardWatchdog(Kind):
    """The board hangs, and its watchdog resets it. RAM stays. One that hung before its program had
    turned the watchdog on is made to start again by hand.
    """

    text: ClassVar[str] = "reset by the watchdog"
    part: ClassVar[str] = "board"
    kind: Literal["board-watchdog"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        board = system.device(fault).board
        for _ in range(HANGS):
            await spoken(board)
            if evidence := await restart(board, board.hang(), "watchdog"):
                return evidence
            await board.reset()
        return None


class BoardEepromWorn(Kind):
    """A bit of each cell of a slot of the journal is stuck at 1, as erased, for good; the slot's
    turn comes a few publications later.
    """

    text: ClassVar[str] = "EEPROM worn"
    part: ClassVar[str] = "board"
    kind: Literal["board-eeprom-worn"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        # the next slot may be half written already
        return {
            "ahead": rng.randint(2, 4),
            "bit": rng.randrange(8),
        }

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        slot = (device.ledger.newest_slot + fault.detail["ahead"]) % SLOTS
        before = (await device.board.stats()).stuck_writes
        for cell in range(CHECKED):
            await device.board.stick(
                SLOTS_AT + slot * SLOT_SIZE + cell, 1 << fault.detail["bit"], 0xFF
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(WORN_WITHIN):
                while True:
                    if changed := (await device.board.stats()).stuck_writes - before:
                        return Evidence(
                            f"slot {slot} took {changed} bytes otherwise than they were written",
                            {"slot": slot},
                        )
                    await asyncio.sleep(LOOK_EVERY)
        return None


class BoardSwapped(Kind):
    """The board dies after N more bytes sent, and another one takes its name (`onceway device
    replace`). What the old one holds is accounted for.
    """

    text: ClassVar[str] = "board swapped"
    part: ClassVar[str] = "board"
    kind: Literal["board-swapped"]
    between: tuple[float, float] = (0.3, 0.7)

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"after_tx": rng.randint(1, PUBLISH_BYTES)}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        died = await power_goes(device, "tx", fault.detail["after_tx"])
        if died is None:
            return None
        old = device.ledger.incarnation
        try:
            async with system.site.hands:  # the registry is on the gateway's disk
                await device.swap(fault.id, MET_WITHIN)
            async with asyncio.timeout(MET_WITHIN):
                await wait_until(lambda: device.look() and device.ledger.incarnation)
        except TimeoutError:
            return None
        new = device.ledger.incarnation
        text = (
            f"incarnation {old:08x} with {died.waiting} publication(s) not done gave way to"
            f" {new:08x}"
        )
        return (
            Evidence(text, {"old": old, "new": new, "held": died.waiting}) if new != old else None
        )


async def spoken(board: SimulatedBoard) -> None:
    """Return when the board sends something, so that its program runs, or after RESTART_WITHIN."""
    sent = (await board.stats()).tx
    with suppress(TimeoutError):
        async with asyncio.timeout(RESTART_WITHIN):
            while (await board.stats()).tx == sent:  # noqa: ASYNC110 - only the board knows
                await asyncio.sleep(LOOK_EVERY)


async def restart(board: SimulatedBoard, make: Awaitable[object], cause: str) -> Evidence | None:
    """Make a board restart, and see that it did for this cause."""
    events = await board.subscribe()
    try:
        async with asyncio.timeout(RESTART_WITHIN):
            await make
            async for event in events:
                if event.name == "boot" and event.details["cause"] == cause:
                    return Evidence(f"the board has started, cause {cause}", {"cycle": event.cycle})
    except TimeoutError:
        pass
    finally:
        events.close()
    return None
