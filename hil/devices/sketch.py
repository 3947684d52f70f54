"""A simulated Uno with a foreign sketch, which uses the library with its own payload. In: the HEX
file. Out: the board's publications, in the history. The EEPROM proves that a publication exists, as
for other simulated boards. The payload is known from the first PUBLISH of the publication.
"""

import asyncio
from contextlib import suppress
from typing import Any

from hil.boards.simulator import OFF_S, SimulatedBoard
from hil.devices.heard import Heard
from hil.devices.ledger_watch import LedgerWatch
from hil.devices.simulated import SimulatedDevice
from hil.faults.board import RESTART_WITHIN
from hil.faults.fault import Evidence, Fault
from hil.observe.counters import wait_until

QUIET_WITHIN = 20.0
"""Longest wait for a moment without an open exchange, in seconds. Then the power is cut anyway."""


class _Watch(LedgerWatch):
    """Watch of a ledger, without the contents that only the sketch understands."""

    @property
    def reports(self) -> int:
        return 0

    def _note_interval(self, entry: object) -> None:
        """Ignore the application's area, which belongs to the sketch."""

    def _enter(self) -> None:
        self.note_starts()


class SketchedBoard(SimulatedDevice):
    counted = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sent = Heard(self.name, self._history, own=True)
        self._off = False

    @property
    def _hex(self) -> str:
        return self._bench.sketches[self.name]

    def _watch(self, board: SimulatedBoard, eeprom: bytes) -> LedgerWatch:
        return _Watch(self.name, board, self._history, b"", eeprom, bundled=False)

    def _order_interval(self, board: SimulatedBoard, interval: int) -> None:
        """Do nothing: the sketch has its own interval."""

    def heard(self, event: str, data: dict[str, Any]) -> None:
        super().heard(event, data)
        self._sent.take(event, data)

    @property
    def contradictions(self) -> list[str]:
        return self.ledger.contradictions + self._sent.contradictions

    @property
    def waiting(self) -> int:
        """Return the number of waiting publications; 0 for a board without power."""
        return 0 if self._off else super().waiting

    def look(self) -> int:
        """Return the number of publications, without statuses, that the board was seen to send."""
        super().look()
        return self._sent.readings

    async def arm(self, fault: Fault, command: str) -> bool:
        """Return False: a sketch counts no samples. The injector watches for the fault's place."""
        return False

    async def reset(self, fault: str) -> Evidence | None:
        before = self._starts
        await self.board.reset()
        return await self._started(before)

    async def switched_off(self, fault: str, seconds: float) -> Evidence | None:
        before = self._starts
        await self.board.power(False)
        await asyncio.sleep(seconds)
        await self.board.power(True)
        return await self._started(before)

    @property
    def _starts(self) -> int:
        return self._boards[-1][1].note_starts()

    async def _started(self, before: int) -> Evidence | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RESTART_WITHIN):
                await wait_until(lambda: self._starts > before)
                return Evidence(f"the board has started {self._starts} times", {})
        return None

    async def stop_sampling(self) -> None:
        """Cut the power, if possible while no exchange is open. Nothing else stops a sketch."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_WITHIN):
                await wait_until(lambda: self.look() >= 0 and not self.waiting)
        await self.board.power(False)
        await asyncio.sleep(OFF_S)
        super().look()
        self._off = True

    def close_ledgers(self) -> bool:
        """Record, by its EEPROM, the publications never seen, and those still on the board."""
        watch = self._boards[-1][1]
        watch.close(swapped=True)
        self._sent.close(max((one.sequence for one in watch.ledger.publications), default=0) + 1)
        return True
