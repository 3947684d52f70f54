"""A board's own ledger: which publications became complete in its EEPROM, in which order, and what they are made from.

In: the EEPROM write log of the simulated board and its EEPROM image. Out: publications, and what contradicts the rules. This is the truth
that a run is checked against: a publication exists from the moment its slot has a valid CRC (layout and rules: firmware/README.md). The log
is needed because the journal's 60 slots are used again and again.
"""

from binascii import crc_hqx
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from gateway.errors import OncewayError

EEPROM_SIZE = 1024
_SLOTS_AT = 0x040
_SLOTS = 60
_SLOT_SIZE = 16
_CHECKED = 14  # sequence, source and their CRC
_INCARNATION_COPIES = (0x008, 0x000)
_INCARNATION_SIZE = 6
_BOOT_CELLS = range(0x010, 0x020, 4)


@dataclass(frozen=True, slots=True)
class Write:
    """One EEPROM cell programmed. cycle: board time at its end; value: what the cell holds since; torn: a power cut ended it."""

    cycle: int
    address: int
    value: int
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """sequence and the 8 bytes of source, as journalled; cycle: board time of the write that completed it (None: known from an image)."""

    sequence: int
    source: bytes
    cycle: int | None

    @property
    def sensor(self) -> tuple[int, int, int]:
        """The source as `examples/sensor` fills it: time, raw ADC value, channel."""
        return int.from_bytes(self.source[:4]), int.from_bytes(self.source[4:6]), self.source[6]


def _valid(record: bytes) -> bool:
    """Whether a record that ends in its CRC is whole. An erased one is not."""
    return crc_hqx(record, 0xFFFF) == 0


@dataclass(slots=True)
class Ledger:
    """What a board's EEPROM has held.

    publications: in order of completion. contradictions: sequences that became complete twice with different sources, or not above the
    ones before; a correct firmware leaves none. incarnations: in order, the last one counts.
    """

    publications: list[Publication] = field(default_factory=list)
    incarnations: list[int] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    image: bytearray = field(default_factory=lambda: bytearray(b"\xff" * EEPROM_SIZE))
    _by_sequence: dict[int, Publication] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, log: Path, image: Path) -> Self:
        """The ledger of a board whose log was kept from its first start on. Raises OncewayError on a file that is damaged."""
        content = image.read_bytes()
        if len(content) != EEPROM_SIZE:
            raise OncewayError(f"an EEPROM image has {EEPROM_SIZE} bytes, this one {len(content)}", str(image))
        ledger = cls()
        for write in read_log(log):
            ledger.apply(write)
        # A killed process may have changed a cell in the image that it could not log any more.
        for address in [i for i in range(EEPROM_SIZE) if ledger.image[i] != content[i]]:
            ledger.apply(Write(cycle=-1, address=address, value=content[address]))
        return ledger

    @classmethod
    def from_image(cls, image: bytes) -> Self:
        """What an image alone shows: the publications that are still in it, by sequence."""
        ledger = cls(image=bytearray(image))
        found = [publication for slot in range(_SLOTS) if (publication := ledger._slot(slot, None))]
        for publication in sorted(found, key=lambda one: one.sequence):
            ledger._enter(publication)
        ledger._note_incarnation()
        return ledger

    @property
    def incarnation(self) -> int:
        """0: none yet."""
        return self.incarnations[-1] if self.incarnations else 0

    @property
    def boots(self) -> int:
        """The boot counter, 0 on an empty EEPROM."""
        cells = [bytes(self.image[at : at + 4]) for at in _BOOT_CELLS]
        return max((int.from_bytes(cell[:2]) for cell in cells if _valid(cell)), default=0)

    def apply(self, write: Write) -> None:
        """Take the next write. A torn one is one like any other: what counts is what the cells hold."""
        self.image[write.address] = write.value
        if write.address >= _SLOTS_AT:
            publication = self._slot((write.address - _SLOTS_AT) // _SLOT_SIZE, write.cycle)
            if publication:
                self._enter(publication)
        else:
            self._note_incarnation()

    def state(self, sequence: int) -> tuple[bool, bool]:
        """Whether a publication that is still in the image is released (PUBREC came) and done (PUBCOMP came)."""
        for slot in range(_SLOTS):
            publication = self._slot(slot, None)
            if publication and publication.sequence == sequence:
                released, done = self.image[_SLOTS_AT + slot * _SLOT_SIZE + _CHECKED :][:2]
                return released == (sequence & 0xFF) ^ 0x55, done == (sequence & 0xFF) ^ 0xAA
        raise KeyError(sequence)

    def _slot(self, slot: int, cycle: int | None) -> Publication | None:
        record = bytes(self.image[_SLOTS_AT + slot * _SLOT_SIZE :][:_CHECKED])
        return Publication(int.from_bytes(record[:4]), record[4:12], cycle) if _valid(record) else None

    def _enter(self, publication: Publication) -> None:
        known = self._by_sequence.get(publication.sequence)
        if known is None:
            last = self.publications[-1].sequence if self.publications else 0
            if publication.sequence <= last:
                self.contradictions.append(f"sequence {publication.sequence} became complete after {last}")
            self._by_sequence[publication.sequence] = publication
            self.publications.append(publication)
        elif known.source != publication.source:
            self.contradictions.append(f"sequence {publication.sequence} was {known.source.hex()} and became {publication.source.hex()}")

    def _note_incarnation(self) -> None:
        """Copy B counts when it is valid; until it has been written, copy A does."""
        for at in _INCARNATION_COPIES:
            copy = bytes(self.image[at : at + _INCARNATION_SIZE])
            if _valid(copy):
                if (incarnation := int.from_bytes(copy[:4])) != self.incarnation:
                    self.incarnations.append(incarnation)
                return


def read_log(path: Path) -> Iterator[Write]:
    """The writes in an EEPROM log, in order. Raises OncewayError naming the line that is none."""
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                cycle, address, value, torn = line.split()
                write = Write(int(cycle), int(address, 16), int(value, 16), torn == "1")
                if not (0 <= write.address < EEPROM_SIZE and 0 <= write.value <= 0xFF and torn in ("0", "1")):
                    raise ValueError
            except ValueError:
                raise OncewayError(f"line {number} is no EEPROM write (CYCLE ADDRESS VALUE TORN)", str(path)) from None
            yield write


def replay(writes: Iterable[Write]) -> Ledger:
    """The ledger after these writes to an erased EEPROM."""
    ledger = Ledger()
    for write in writes:
        ledger.apply(write)
    return ledger
