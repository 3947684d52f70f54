"""One device of a run: a simulated board, the wire to the gateway, and the board's own ledger as it grows.

In: a name, a folder, a bench. Out: publications of the ledger and events of the wire in the history; hands on power and interval.
"""

import asyncio
import json
import random
import sys
from binascii import crc_hqx
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.errors import OncewayError
from hil import senml
from hil.bench import Bench
from hil.board.ledger import EEPROM_SIZE, Ledger, Start, Write, parse_entry
from hil.board.simulator import BUILD, SimulatedBoard
from hil.faults.line import LineWeather
from hil.history import History
from hil.process import Child, Children
from hil.site import COMMAND_WITHIN, Folder, onceway

HEX = BUILD / "uno" / "sensor.hex"
INTERVAL_AT = 0x020  # interval:u16 crc:u16, see firmware/examples/sensor
SAMPLING_OFF = 0xFFFF
SLOTS_AT, SLOT_SIZE, RELEASED_AT, RELEASED_MASK = 0x040, 16, 14, 0x55  # of the journal, see firmware/README.md
FULL_SCALE_MV = 5000
WEATHER_EVERY = 0.05  # s between changes of the voltage that the board samples
PROVISION_TRIES = 3
OFF_S = 0.5  # for which a board is without power


class Device:
    """harmed: harms done by the wire, by kind; opened: how often the gateway has opened its port. ledger: as far as `look` has read."""

    def __init__(self, name: str, folder: Folder, bench: Bench, children: Children, history: History) -> None:
        self.name = name
        self.board = SimulatedBoard(folder.board(name), seed=bench.seed)
        self.ledger = Ledger()
        self.harmed: Counter[str] = Counter()
        self.opened = 0
        self._struck: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._folder = folder
        self._bench = bench
        self._children = children
        self._history = history
        self._offset = 0
        self._entered = 0

    async def start(self) -> None:
        """Plug the board in: an Uno with nothing but its boot loader, whose application area asks for the bench's interval."""
        self._write_interval(self._bench.interval_ms)
        await self.board.start()

    async def provision(self) -> None:
        """Firmware and identity, by the user's command. On a busy machine the boot loader's second may pass before it is spoken to, so it
        is tried again, as a user would."""
        command = [onceway(), "device", "provision", self.name, "--port", str(self.board.port)]
        command += ["--hex", str(HEX), "--registry", str(self._folder.registry)]
        for left in reversed(range(PROVISION_TRIES)):
            try:
                await self._children.run(f"provision-{self.name}", command, COMMAND_WITHIN)
                return
            except OncewayError:
                if not left:
                    raise

    async def connect(self) -> None:
        """Lay the wire to the gateway's port."""
        ends = ["--board", str(self.board.port), "--port", str(self._folder.port(self.name))]
        weather = [option for kind in self._bench.fault if isinstance(kind, LineWeather) for option in kind.options()]
        argv = [sys.executable, "-m", "hil.wire", *ends, "--seed", f"{self._bench.seed}/{self.name}", *weather]
        self._wire: Child = await self._children.start(f"wire-{self.name}", argv, pipe=True, orders=True)

    async def disconnect(self) -> None:
        await self._wire.stop()

    async def follow_wire(self) -> None:
        """Enter what the wire says in the history, until it ends."""
        async for line in self._wire.lines():
            data = json.loads(line)
            event = data.pop("event")
            self._history.add("wire", event, data.pop("t"), line=self.name, **data)
            if event == "count":
                self.harmed = Counter(data["up"]) + Counter(data["down"])
            elif event == "open":
                self.opened += 1
            elif event == "struck":
                self._struck[data["fault"]].put_nowait(data)
        await self._wire.process.wait()
        self._wire.check()

    async def strike(self, fault: str, orders: Sequence[dict[str, Any]], within: float) -> list[dict[str, Any]]:
        """Give the wire orders for a fault, and return what it says when each has been carried out. Raises TimeoutError."""
        done: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._struck[fault] = done
        for order in orders:
            self._wire.order(json.dumps({**order, "fault": fault}).encode())
        async with asyncio.timeout(within):
            return [await done.get() for _ in orders]

    async def weather(self) -> None:
        """Change the voltage at the board's input for ever, so that neighbouring readings differ."""
        rng = random.Random(f"{self._bench.seed}/{self.name}/weather")
        while True:
            await self.board.adc(0, rng.randrange(FULL_SCALE_MV))
            await asyncio.sleep(WEATHER_EVERY)

    async def stop_sampling(self) -> None:
        """Take the power away, tell the application to sample no more, and give the power back: what is journalled still goes out."""
        await self.board.power(False)
        self._write_interval(SAMPLING_OFF)
        await asyncio.sleep(OFF_S)
        await self.board.power(True)

    def look(self) -> int:
        """Enter publications that became complete since the last look. Returns how many of all are readings."""
        if self.board.eeprom_log.exists():
            with self.board.eeprom_log.open("rb") as log:
                log.seek(self._offset)
                whole = log.read().rpartition(b"\n")[0]
            if whole:
                self._offset += len(whole) + 1
                for line in whole.decode().splitlines():
                    self._note_release_taken_back(entry := parse_entry(line))
                    self.ledger.apply(entry)
            else:
                self.ledger.settle()
        return self._enter(self.ledger)

    def _note_release_taken_back(self, entry: Write | Start) -> None:
        """The gateway has said that it does not know a PUBREL (0x92); the board clears the mark of it and publishes again."""
        if not isinstance(entry, Write) or (entry.address - SLOTS_AT) % SLOT_SIZE != RELEASED_AT or not self.ledger.incarnation:
            return
        slot = entry.address - RELEASED_AT
        mark, sequence = self.ledger.image[entry.address], int.from_bytes(self.ledger.image[slot : slot + 4])
        if mark == (sequence & 0xFF) ^ RELEASED_MASK and entry.value == mark ^ 0xFF:
            self._history.add("board", "again", device=self.name, incarnation=self.ledger.incarnation, sequence=sequence)

    def close_ledger(self) -> None:
        """Read the ledger once more and whole, from log and image, and enter what is missing, contradicts itself, or waits."""
        self.look()
        self.ledger = Ledger.read(self.board.eeprom_log, self.board.eeprom_image)
        self._enter(self.ledger)
        for text in self.ledger.contradictions:
            self._history.add("board", "contradiction", device=self.name, text=text)
        for sequence in self.ledger.waiting():
            released, _ = self.ledger.state(sequence)
            if self.ledger.incarnation and not released:  # a released one is the gateway's
                self._history.add("board", "waiting", device=self.name, incarnation=self.ledger.incarnation, sequence=sequence)

    def waiting(self) -> int:
        """Publications that are journalled and not done."""
        return len(self.ledger.waiting())

    def _enter(self, ledger: Ledger) -> int:
        if ledger.incarnation:  # until the gateway has given one, nothing has left the board
            for publication in ledger.publications[self._entered :]:
                kind = "status" if senml.is_status(publication.source) else "reading"
                self._history.add(
                    "board",
                    "publication",
                    device=self.name,
                    incarnation=ledger.incarnation,
                    sequence=publication.sequence,
                    kind=kind,
                    records=senml.expected(self.name, publication.source),
                    cycle=publication.cycle,
                )
            self._entered = len(ledger.publications)
        return sum(not senml.is_status(publication.source) for publication in ledger.publications)

    def _write_interval(self, interval: int) -> None:
        """Into the EEPROM image; the board must be off or not there yet."""
        record = interval.to_bytes(2)
        record += crc_hqx(record, 0xFFFF).to_bytes(2)
        image = self.board.eeprom_image
        if not image.exists():
            make_erased(image)
        with image.open("r+b") as file:
            file.seek(INTERVAL_AT)
            file.write(record)


def make_erased(image: Path) -> None:
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_bytes(b"\xff" * EEPROM_SIZE)
