"""A board's own ledger: the publications that became complete in its EEPROM, in order, with the 8
bytes (`source`) from which the program makes each payload.

In: the EEPROM write log of the simulated board and its EEPROM image. Out: publications, and
violations of the rules. A run is checked against this ledger: a publication exists when its slot
has a valid CRC (layout and rules: firmware/JOURNAL.md). The log is needed because the journal
reuses its 60 slots.

A slot is written byte by byte over older bytes, which may come from a torn attempt with the same
sequence. The slot may therefore look valid before its write ends. Such a state counts only if the
next event is not another write to these bytes.
"""

from binascii import crc_hqx
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from gateway.errors import OncewayError

EEPROM_SIZE = 1024
ERASED = b"\xff" * EEPROM_SIZE
SLOTS_AT = 0x040
SLOTS = 60
SLOT_SIZE = 16
CHECKED = 14
"""Number of bytes at the start of a slot that hold sequence, source and CRC."""
RELEASED_AT = CHECKED
RELEASED_MASK, DONE_MASK = 0x55, 0xAA
INCARNATION_COPIES = (0x008, 0x000)
_INCARNATION_SIZE = 6
BOOT_CELLS = range(0x010, 0x020, 4)
_BOOT_SIZE = 4


@dataclass(frozen=True, slots=True)
class Write:
    """A write to one EEPROM cell. cycle: board time at its end, if known. value: value of the cell
    after the write. torn: whether a power cut ended the write.
    """

    cycle: int | None
    address: int
    value: int
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """A start of the board, after power-on or a reset. cause: as in the event `boot`."""

    cycle: int
    cause: str


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication in the journal. source: the 8 bytes for its payload. cycle: board time of the
    write that completed it, if known. begun: board time of the first write to its slot. A restart
    may interrupt the writing and continue it later; this is one publication, with the earlier
    `begun`."""

    sequence: int
    source: bytes
    cycle: int | None
    begun: int | None = None


def _valid(record: bytes) -> bool:
    """Whether a record that ends in its CRC is complete. An erased record counts as incomplete."""
    return crc_hqx(record, 0xFFFF) == 0


@dataclass(slots=True)
class Ledger:
    """The history of a board's EEPROM. publications: in order of completion. contradictions: texts
    about sequences that became complete twice with different sources, or are not above all earlier
    ones; a correct firmware causes none. incarnations: in order; the last one is valid.
    """

    publications: list[Publication] = field(default_factory=list)
    incarnations: list[int] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    image: bytearray = field(default_factory=lambda: bytearray(ERASED))
    mark_writes: int = 0
    """Number of writes to marks of slots: released, and done. If the old mark was almost the new
    one, the board had to invert it first, and neither write counts."""
    # by slot: the record that counted last
    _settled: dict[int, bytes] = field(default_factory=dict, repr=False)
    # by slot: a record left in the middle of its write, and the cycle of the first write
    _torn: dict[int, tuple[bytes, int | None]] = field(default_factory=dict, repr=False)
    # by address: value of a mark before the last write
    _overwritten: dict[int, int] = field(default_factory=dict, repr=False)
    _by_sequence: dict[int, Publication] = field(default_factory=dict, repr=False)
    # slot being written, cycles of its first and last write
    _unsettled: tuple[int, int | None, int | None] | None = field(default=None, repr=False)

    @classmethod
    def read(cls, log: Path, image: Path, before: bytes = ERASED) -> Self:
        """Return the ledger of a board whose log began at its first start. before: the EEPROM at
        that time. Raises OncewayError for a damaged file.
        """
        content = image.read_bytes()
        if len(content) != EEPROM_SIZE:
            raise OncewayError(
                f"an EEPROM image has {EEPROM_SIZE} bytes, this one {len(content)}", str(image)
            )
        ledger = cls.replay(read_log(log), before)
        # A killed process may have changed a cell in the image without logging it.
        for address in [i for i in range(EEPROM_SIZE) if ledger.image[i] != content[i]]:
            ledger.apply(Write(cycle=None, address=address, value=content[address]))
        ledger.settle()
        return ledger

    @classmethod
    def replay(cls, log: Iterable[Write | Start], before: bytes = ERASED) -> Self:
        """Return the ledger after this log, for an EEPROM that held `before`."""
        ledger = cls.from_image(before)
        for entry in log:
            ledger.apply(entry)
        ledger.settle()
        return ledger

    @classmethod
    def from_image(cls, image: bytes) -> Self:
        """Return the ledger of an image without a log: its remaining publications, by sequence."""
        ledger = cls(image=bytearray(image))
        found = [
            publication for slot in range(SLOTS) if (publication := ledger._publication(slot, None))
        ]
        for publication in sorted(found, key=lambda one: one.sequence):
            ledger._enter(publication)
        ledger._note_incarnation()
        return ledger

    @property
    def incarnation(self) -> int:
        return self.incarnations[-1] if self.incarnations else 0

    @property
    def boots(self) -> int:
        """Return the boot counter, 0 for an empty EEPROM. After 65,535 comes 0. So the newest
        number is the one that is ahead of the others modulo 65,536, and not the largest one.
        """
        cells = [bytes(self.image[at : at + _BOOT_SIZE]) for at in BOOT_CELLS]
        numbers = [int.from_bytes(cell[:2]) for cell in cells if _valid(cell)]
        return max(numbers, key=lambda number: (number - numbers[0] + 0x8000) & 0xFFFF, default=0)

    def apply(self, entry: Write | Start) -> None:
        """Apply the next entry of the log. A torn write counts like a complete one, with the value
        that it left in the cell.
        """
        slot, offset = (
            divmod(entry.address - SLOTS_AT, SLOT_SIZE) if isinstance(entry, Write) else (-1, 0)
        )
        being_written = slot if slot >= 0 and offset < CHECKED else None
        if self._unsettled and self._unsettled[0] != being_written:
            self.settle()
        if isinstance(entry, Start):
            return
        before, self.image[entry.address] = self.image[entry.address], entry.value
        if being_written is not None:
            begun = self._unsettled[1] if self._unsettled else entry.cycle
            self._unsettled = (being_written, begun, entry.cycle)
        elif slot < 0:
            self._note_incarnation()
        else:
            older = self._overwritten.get(entry.address, before)
            self._overwritten[entry.address] = before
            had_to = older ^ before == 0xFF and (older ^ entry.value).bit_count() <= 1
            self.mark_writes += -1 if had_to else 1

    def settle(self) -> None:
        """Enter the publication in the slot that was written last, if the slot has a complete one.
        Call this only if no further write to this slot follows.
        """
        if self._unsettled is None:
            return
        (slot, begun, cycle), self._unsettled = self._unsettled, None
        record, before = self._record(slot), self._settled.get(slot)
        if before == record:
            return
        self._settled[slot] = record
        torn, torn_begun = self._torn.pop(slot, (b"", None))
        differ = sum(one != other for one, other in zip(torn, record, strict=False))
        if differ == 1 or (differ and torn[4:] == record[4:]):
            begun = torn_begun  # a start has repaired a byte, or written the rest of the sequence
        if publication := self._publication(slot, cycle, begun):
            self._enter(publication)
        else:
            self._torn[slot] = record, begun

    def settle_next(self) -> None:
        """Count the publication in the slot that was written last, if its sequence is the next one.
        A slot with another sequence may be incomplete. Call this after a pause in the writes.
        """
        found = self._publication(self._unsettled[0], None) if self._unsettled else None
        last = self.publications[-1].sequence if self.publications else 0
        if found and last < found.sequence <= last + 2:  # no sequence has 0 as its low 16 bits
            self.settle()

    def state(self, sequence: int) -> tuple[bool, bool]:
        """Return whether a publication in the image is released (after PUBREC), and whether it is
        done (after PUBCOMP). Raises KeyError if the image does not have the publication.
        """
        for slot in range(SLOTS):
            publication = self._publication(slot, None)
            if publication and publication.sequence == sequence:
                return self._marks(slot, sequence)
        raise KeyError(sequence)

    @property
    def newest_slot(self) -> int:
        """Return the slot of the newest publication in the image; -1 if the image has none."""
        found = [
            (one.sequence, slot) for slot in range(SLOTS) if (one := self._publication(slot, None))
        ]
        return max(found)[1] if found else -1

    def waiting(self) -> list[int]:
        """Return the sequences in the image that have no mark `done`, in order of their slots."""
        found = (
            (slot, publication.sequence)
            for slot in range(SLOTS)
            if (publication := self._publication(slot, None))
        )
        return [sequence for slot, sequence in found if not self._marks(slot, sequence)[1]]

    def _marks(self, slot: int, sequence: int) -> tuple[bool, bool]:
        released, done = self.image[SLOTS_AT + slot * SLOT_SIZE + RELEASED_AT :][:2]
        return released == (sequence & 0xFF) ^ RELEASED_MASK, done == (sequence & 0xFF) ^ DONE_MASK

    def _record(self, slot: int) -> bytes:
        return bytes(self.image[SLOTS_AT + slot * SLOT_SIZE :][:CHECKED])

    def _publication(
        self, slot: int, cycle: int | None, begun: int | None = None
    ) -> Publication | None:
        record = self._record(slot)
        if not _valid(record):
            return None
        return Publication(int.from_bytes(record[:4]), record[4:12], cycle, begun)

    def _enter(self, publication: Publication) -> None:
        known = self._by_sequence.setdefault(publication.sequence, publication)
        if known is publication:
            last = self.publications[-1].sequence if self.publications else 0
            if publication.sequence <= last:
                self.contradictions.append(
                    f"the record of {publication.sequence} became complete after that of {last}"
                )
            self.publications.append(publication)
        elif known.source != publication.source:
            self.contradictions.append(
                f"the record of sequence {publication.sequence} was {known.source.hex()} and became"
                f" {publication.source.hex()}"
            )

    def _note_incarnation(self) -> None:
        """Note the incarnation of copy B if it is valid, else of copy A, which is written first."""
        for at in INCARNATION_COPIES:
            copy = bytes(self.image[at : at + _INCARNATION_SIZE])
            if _valid(copy):
                if (incarnation := int.from_bytes(copy[:4])) != self.incarnation:
                    self.incarnations.append(incarnation)
                return


def read_log(path: Path) -> Iterator[Write | Start]:
    """Yield the entries of an EEPROM log, in order. Raises OncewayError for an invalid line."""
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield parse_entry(line)
            except ValueError:
                raise OncewayError(
                    f"line {number} is neither an EEPROM write nor a start", str(path)
                ) from None


def parse_entry(line: str) -> Write | Start:
    """Return the entry of one line of an EEPROM log. Raises ValueError for an invalid line."""
    words = line.split()
    if len(words) == 3 and words[1] == "start":
        return Start(int(words[0]), words[2])
    if len(words) != 4 or words[3] not in ("0", "1"):
        raise ValueError("neither four words nor a start")
    cycle, address, value = int(words[0]), int(words[1], 16), int(words[2], 16)
    if not (0 <= address < EEPROM_SIZE and 0 <= value <= 0xFF):
        raise ValueError("out of range")
    return Write(cycle, address, value, words[3] == "1")
