"""One simulated device of a run: a board, or successive boards with one name. In: a name, a folder,
a bench. Out: the boards' ledgers in the history, and ways to break, reset and replace a board.
"""

import asyncio
import hashlib
import os
import random
from binascii import crc_hqx
from contextlib import suppress
from pathlib import Path
from typing import Literal

from gateway.errors import OncewayError
from hil.bench.bench import Bench
from hil.boards.adc_log import STEPS, STRIDE
from hil.boards.ledger import ERASED, Ledger
from hil.boards.simulator import BUILD, OFF_S, BoardError, Event, SimulatedBoard
from hil.boards.strikes import Strikes
from hil.boards.used import used_image
from hil.devices.ledger_watch import APPLICATION_AT, LedgerWatch
from hil.devices.wired_device import WiredDevice
from hil.faults.board import starts
from hil.faults.fault import Evidence, Fault
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Children
from hil.programs.site import COMMAND_WITHIN, onceway

HEX = BUILD / "uno" / "sensor.hex"
SAMPLING_OFF = 0xFFFF
RELEASED_WITHIN = 20.0  # s in which the gateway must have released the last command
STEP_MS = 20
STEPS_TOLD = (1, 6, 2, 7, 3, 8, 4, 9, 5, 10)
"""Intervals that successive commands set, as numbers of steps (STEP_MS) above the bench's interval.
Successive intervals differ clearly, so a few samples show which one a board uses.
"""
SECOND_MS = 1000
SECOND_EVERY = 2
"""One command in SECOND_EVERY sets the interval SECOND_MS, because boards store whole seconds in
another form than milliseconds.
"""
PROVISION_TRIES = 10
DRIFT_PPM = 5000
"""Largest error of a board's clock: a ceramic resonator's 0.5 %."""
SOON = 4
"""Boards 1 and 2 reach an end of the scale within SOON conversions, 3 and 4 within 2 * SOON."""


def first_step(name: str, seed: int, folder: str) -> int:
    """Return the ADC step with which a board begins, so that it soon reaches an end of the scale:
    full scale if the board's number is odd, 0 V if it is even. name: name of the device. folder:
    folder of the board.
    """
    number = int(name.rpartition("-")[2])
    end = STEPS - 1 if number % 2 else 0
    rng = random.Random(f"{seed}/{folder}/adc")
    soon = SOON * ((number - 1) // 2) + rng.randrange(SOON)  # each board begins differently
    return (end - soon * STRIDE) % STEPS


class Boards(WiredDevice):
    """The boards that have had one name, one after the other, with their ledgers."""

    _boards: list[tuple[SimulatedBoard, LedgerWatch]]

    @property
    def board(self) -> SimulatedBoard:
        return self._boards[-1][0]

    @property
    def port(self) -> Path:
        return self.board.port

    @property
    def ledger(self) -> Ledger:
        """Return the ledger of the newest board with this name, as far as `look` has read."""
        return self._boards[-1][1].ledger

    @property
    def contradictions(self) -> list[str]:
        """Return the contradictions in the ledger. If any, the board may never finish sending."""
        return self.ledger.contradictions

    @property
    def obeyed(self) -> int:
        """Return the number of commands that the board has obeyed."""
        return self._boards[-1][1].obeyed

    def look(self) -> int:
        """Record new completed publications in the history. Return the number of readings so far of
        all boards with this name.
        """
        return sum(watch.look() for _, watch in self._boards)

    def close_ledgers(self) -> bool:
        """Read all ledgers once more, in full. Record their remaining, contradictory and held
        publications. Return whether the history is complete.
        """
        for board, watch in self._boards:
            watch.close(swapped=board is not self.board)
        return True

    @property
    def waiting(self) -> int:
        """Return the number of publications that the board's journal still has to deliver."""
        return self._boards[-1][1].waiting

    @property
    def journalled(self) -> int:
        """Return how many publications all boards with this name have written to their journals."""
        return sum(len(watch.produced) for _, watch in self._boards)


class SimulatedDevice(Boards):
    """A simulated board at the end of its wire, and the boards that replace it."""

    counted = True  # a fault can be ordered for an exact place

    def __init__(
        self, name: str, folder: Folder, bench: Bench, children: Children, history: History
    ) -> None:
        super().__init__(name, folder, bench, children, history)
        self._boards = [self._new_board(name, self._used())]
        self._commanded = 0
        self._strikes = Strikes()

    def _used(self) -> bytes:
        """Return the EEPROM content with which a board begins: erased, or that of a used board."""
        if self._bench.first_sequence == 1:
            return ERASED
        rng = random.Random(f"{self._bench.seed}/{self.name}/incarnation")
        return used_image(self._bench.first_sequence, rng.randint(1, 0xFFFF_FFFF))

    def _new_board(self, folder: str, eeprom: bytes = ERASED) -> tuple[SimulatedBoard, LedgerWatch]:
        drawn = first_step(self.name, self._bench.seed, folder)
        place = self._folder.board(folder)
        board = self._simulator(place, drawn)
        write_eeprom(board.eeprom_image, eeprom)
        return board, self._watch(board, eeprom)

    def _watch(self, board: SimulatedBoard, eeprom: bytes) -> LedgerWatch:
        return LedgerWatch(
            self.name,
            board,
            self._history,
            interval_record(self._bench.interval_ms),
            eeprom,
            bundled=self._bench.firmware is None,
        )

    def _order_interval(self, board: SimulatedBoard, interval: int) -> None:
        write_interval(board, interval)

    @property
    def _hex(self) -> str:
        return self._bench.firmware or str(HEX)

    def _simulator(self, place: Path, adc_from: int) -> SimulatedBoard:
        drift = self._drift(place)
        return SimulatedBoard(place, seed=self._bench.seed, adc_from=adc_from, drift=drift)

    def _drift(self, place: Path) -> int:
        rng = random.Random(f"{self._bench.seed}/{place.name}/drift")
        return rng.randint(-DRIFT_PPM, DRIFT_PPM)

    def wire_options(self) -> list[str]:
        return ["--flash", str(self.board.flash_image)]

    async def start(self) -> None:
        await self._plug_in(self.board)

    async def _plug_in(self, board: SimulatedBoard) -> None:
        """Start an Uno that has only its boot loader. The interval in its EEPROM turns sampling
        off, because the schedule of voltages must begin only when the board is released.
        """
        self._order_interval(board, SAMPLING_OFF)
        await board.start()

    async def stop(self) -> None:
        await self._strikes.stop()
        for board, _ in self._boards:
            await board.stop()

    async def hold(self) -> None:
        await self._begin(self.board, self._used())
        self.idle = True

    async def _begin(self, board: SimulatedBoard, eeprom: bytes = ERASED) -> None:
        """Cut the power of a provisioned board, and replace the content of its EEPROM. Its ledger
        begins when the board is released. From now on, faults can be ordered for the board.
        """
        await board.power(False)
        with board.eeprom_image.open("r+b") as image:
            image.write(eeprom)
        self._order_interval(board, self._bench.interval_ms)
        for log in (board.eeprom_log, board.adc_log):
            os.truncate(log, 0)
        await self._strikes.listen(board)

    async def release(self) -> None:
        await self.board.power(True)

    async def arm(self, fault: Fault, command: str) -> bool:
        await self._strikes.order(fault.id, fault.at, command)
        return True

    async def strike_next(self, fault: str, command: str, after: int) -> bool:
        try:
            await self._strikes.order(fault, after + 1, command)
        except BoardError:
            return False
        return True

    async def samples(self) -> int:
        return await self._strikes.samples()

    async def next_event(self, fault: str, event: str) -> Event:
        return await self._strikes.next(fault, event)

    async def reset(self, fault: str) -> Evidence | None:
        return await starts(self, await self.next_event(fault, "struck"), "external")

    async def switched_off(self, fault: str, seconds: float) -> Evidence | None:
        struck = await self.next_event(fault, "struck")
        await asyncio.sleep(seconds)
        await self.board.power(True)
        return await starts(self, struck, "power-on")

    async def swap(self, fault: str, within: float) -> None:
        """Replace the board, which has lost its power, by a new board, with `onceway device
        replace`. The old board's EEPROM stays as it is. within: longest time, in seconds, until the
        wire is connected to the new board. Raises TimeoutError.
        """
        board, watch = self._new_board(f"{self.name}.{len(self._boards) + 1}")
        try:
            await self._plug_in(board)
            await self._provision("replace", board)
            await self._begin(board)
        except BaseException:
            await board.stop()  # no other code would stop this board
            raise
        self._boards.append((board, watch))
        order = {"do": "swap", "board": str(board.port), "flash": str(board.flash_image)}
        await self.strike(fault, [order], within)
        await self.release()

    async def provision(self) -> None:
        await self._provision("provision", self.board)

    async def _provision(
        self, command: Literal["provision", "replace"], board: SimulatedBoard
    ) -> None:
        """Write firmware and identity, with `onceway device`. On a busy machine, the boot loader
        may stop waiting (after 1 s) before the first byte. Then try again, as a user would.
        """
        argv = [onceway(), "device", command, self.name, "--port", str(board.port)]
        argv += [
            "--hex",
            self._hex,
            "--registry",
            str(self._folder.of(self._bench.gateways[0]).registry),
        ]
        for tries_left in reversed(range(PROVISION_TRIES)):
            try:
                await self._children.run(f"{command}-{self.name}", argv, COMMAND_WITHIN)
                self._note_entry(board)
                return
            except OncewayError:
                if not tries_left:
                    raise

    def _note_entry(self, board: SimulatedBoard) -> None:
        """Record the entry that the registry must have for the board."""
        firmware = hashlib.sha256(Path(self._hex).read_bytes()).hexdigest()
        entry = {"board": "uno", "port": str(board.port), "firmware": firmware}
        self._history.add("board", "provisioned", device=self.name, entry=entry)

    async def stop_sampling(self) -> None:
        """Cut the power, order the application to stop sampling, and restore the power.
        Publications in the journal are still sent. Returns when the board has written its last
        publication, the status of this start, to the journal.
        """
        watch = self._boards[-1][1]
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASED_WITHIN):
                await wait_until(lambda: watch.look() >= 0 and not watch.commanded)
        await self.board.power(False)
        write_interval(self.board, SAMPLING_OFF)
        await asyncio.sleep(OFF_S)
        watch.look()
        watch.look()  # handles the last entry that the first look left open
        before = watch.reports
        await self.board.power(True)

        def started() -> bool:
            watch.look()
            return watch.reports > before or bool(watch.ledger.contradictions)

        await wait_until(started)

    def next_interval(self) -> int:
        steps = STEPS_TOLD[self._commanded % len(STEPS_TOLD)]
        self._commanded += 1
        if self._commanded % SECOND_EVERY == 0:
            return SECOND_MS
        return self._bench.interval_ms + steps * STEP_MS


def write_interval(board: SimulatedBoard, interval: int) -> None:
    """Write the interval into the EEPROM image; the board must be off or not started yet."""
    with board.eeprom_image.open("r+b") as file:
        file.seek(APPLICATION_AT)
        file.write(interval_record(interval))


def interval_record(interval: int) -> bytes:
    """Return the record interval:u16 crc:u16 (firmware/examples/sensor)."""
    record = interval.to_bytes(2)
    return record + crc_hqx(record, 0xFFFF).to_bytes(2)


def write_eeprom(image: Path, content: bytes) -> None:
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_bytes(content)
