"""What one board has published, read while it runs: its ledger says that, its simulator what the
publication must say (samples.py).

In: a simulated board's logs. Out: events of hop `board` in the history, and how many readings it
has taken.
"""

from binascii import crc_hqx
from itertools import pairwise
from typing import Any

from hil.boards.adc_log import AdcLog
from hil.boards.ledger import (
    DONE_MASK,
    ERASED,
    RELEASED_AT,
    RELEASED_MASK,
    SLOT_SIZE,
    SLOTS_AT,
    Ledger,
    Publication,
    Start,
    Write,
    parse_entry,
)
from hil.boards.simulator import HZ, SimulatedBoard
from hil.devices.samples import ContradictionError, Sample, Samples
from hil.judge import senml
from hil.observe.history import History

APPLICATION_AT = 0x020  # see firmware/examples/sensor
HELD_CELLS = (0x030, 0x038)
"""Written in turn: count:u8 id:u16 crc:u16. The identifier of the message that the board has taken
at QoS 2 and that is not released yet, 0 if there is none (firmware/README.md)."""
_HELD_SIZE = 5
_UNITS_MS = (1, 1000, 60_000)
_REGULAR_MS = 200
"""The shortest interval at which no sample waits for as long for a write to the journal."""
_END = 1 << 63
"""Behind all of board time."""


class LedgerWatch:
    """ledger: as far as `look` has read. device: the name under which the board publishes.
    application: what the application's area in the EEPROM begins with before the first start,
    interval:u16 crc:u16. before: the EEPROM then; what it held is of an earlier life, and is not
    entered. shipped: the program is one that samples at that interval and tells its starts. obeyed:
    how often the board has changed its interval.
    """

    def __init__(
        self,
        device: str,
        board: SimulatedBoard,
        history: History,
        application: bytes,
        before: bytes = ERASED,
        *,
        shipped: bool = True,
    ) -> None:
        self.ledger = Ledger.from_image(before)
        self._before = before
        self._earlier = len(self.ledger.publications)
        self._adc = AdcLog(board.adc_log)
        self._samples = Samples(device, self._adc, tells=shipped, earlier=self.ledger.boots)
        self._starts = 0
        self._shipped = shipped
        self._timed = self._paced = 0
        self._first: tuple[int, int, int] | None = None
        """Of this interval: a life, when its first sample was, how many came behind it."""
        self._obeyed_at = self._read_to = -1
        """When it obeyed the last command; how far the EEPROM's log was read. In board time."""
        self._off_pace = False
        self._device = device
        self._board = board
        self._history = history
        self._application = bytearray(application)
        self._interval = self._before_it = int.from_bytes(application[:2])
        self.obeyed = 0
        self._held: tuple[int, int] | None = None
        self._taken = 0
        self._offset = 0
        self._entered = self._earlier

    @property
    def waiting(self) -> int:
        """Publications that are journalled and not done."""
        return len(self.ledger.waiting())

    @property
    def commanded(self) -> bool:
        """Whether a command is under way, as far as is known: it comes again after a power cut."""
        return self._taken < self.obeyed or bool(self._held and self._held[1])

    @property
    def produced(self) -> list[Publication]:
        """In this run."""
        return self.ledger.publications[self._earlier :]

    @property
    def reports(self) -> int:
        """Status messages that the board has journalled: one after each start."""
        return sum(senml.is_status(publication.source) for publication in self.produced)

    def look(self) -> int:
        """Enter publications that became complete since the last look. Returns how many of all are
        readings.
        """
        if self._board.eeprom_log.exists():
            with self._board.eeprom_log.open("rb") as log:
                log.seek(self._offset)
                whole = log.read().rpartition(b"\n")[0]
            if whole:
                self._offset += len(whole) + 1
                for line in whole.decode().splitlines():
                    self._note_release_taken_back(entry := parse_entry(line))
                    self._read_to = entry.cycle or self._read_to
                    self.ledger.apply(entry)
                    self._note_interval(entry)
                    self._note_held(entry)
            else:
                self.ledger.settle_next()
        # until the gateway has given an incarnation, nothing has left the board
        if self.ledger.incarnation and self._entered < len(self.ledger.publications):
            self._enter()
        return len(self.produced) - self.reports

    def close(self, *, swapped: bool = False) -> None:
        """Read the ledger once more and whole, from log and image, and enter what is missing,
        contradicts itself, or is held. What a board has that never met a gateway is entered with
        incarnation 0. swapped: another board has taken this one's name, so what it holds will not
        come any more, and is there to be read from it.
        """
        self.look()
        self.ledger = Ledger.read(self._board.eeprom_log, self._board.eeprom_image, self._before)
        self._read_to = _END
        self._enter()
        for text in self.ledger.contradictions:
            self._contradict(text)
        if self.obeyed > self._taken + 1:  # the last one may be under way
            self._contradict(
                f"{self.obeyed} commands were obeyed, and {self._taken} messages taken at QoS 2"
            )
        for sequence in self.ledger.waiting():
            released, _ = self.ledger.state(sequence)
            if not released:  # a released one is the gateway's
                self._tell("left" if swapped else "waiting", sequence)

    def _note_release_taken_back(self, entry: Write | Start) -> None:
        """The gateway has said that it does not know a PUBREL (0x92); the board clears the mark of
        it and publishes again, also if its power is cut in the middle of that write.
        """
        if (
            not isinstance(entry, Write)
            or (entry.address - SLOTS_AT) % SLOT_SIZE != RELEASED_AT
            or not self.ledger.incarnation
        ):
            return
        slot = entry.address - RELEASED_AT
        mark, done = self.ledger.image[entry.address : entry.address + 2]
        sequence = int.from_bytes(self.ledger.image[slot : slot + 4])
        low = sequence & 0xFF
        under_way = mark == low ^ RELEASED_MASK and done != low ^ DONE_MASK
        if under_way and entry.value != mark:
            self._tell("again", sequence)

    def _note_interval(self, entry: Write | Start) -> None:
        """The board has obeyed a command when its interval is another one, and whole."""
        offset = entry.address - APPLICATION_AT if isinstance(entry, Write) else -1
        if not isinstance(entry, Write) or not 0 <= offset < len(self._application):
            return
        self._application[offset] = entry.value
        interval = _interval_of(bytes(self._application))
        if interval is not None and interval != self._interval:
            self._interval, self._before_it = interval, self._interval
            self._first, self._obeyed_at = None, entry.cycle or 0
            self.obeyed += 1
            self._history.add(
                "board", "obeyed", device=self._device, interval=interval, cycle=entry.cycle
            )

    def _note_held(self, entry: Write | Start) -> None:
        """Each message at QoS 2 is taken once: its identifier comes again only after it was
        released. A count that was left out belongs to a record that a worn cell did not keep.
        """
        at = next(
            (
                cell
                for cell in HELD_CELLS
                if isinstance(entry, Write) and 0 <= entry.address - cell < _HELD_SIZE
            ),
            None,
        )
        if at is None:
            return
        record = bytes(self.ledger.image[at : at + _HELD_SIZE])
        held = record[0], int.from_bytes(record[1:3])
        if crc_hqx(record, 0xFFFF) or held == self._held:
            return
        before, self._held = self._held, held
        if not held[1]:
            return
        if before == ((held[0] - 1) & 0xFF, held[1]):
            self._contradict(f"the message with the identifier {held[1]} was taken twice")
        else:
            self._taken += 1

    def note_starts(self) -> int:
        """Enter the starts that are new. Return how many there were in all."""
        self._adc.look()
        for start in self._adc.starts[self._starts :]:
            said = {"device": self._device, "cause": start.cause, "cycle": start.cycle}
            self._history.add("board", "start", start.ns, **said)
        self._starts = len(self._adc.starts)
        return self._starts

    def _enter(self) -> None:
        self.note_starts()
        self._note_gaps()
        for publication in self.ledger.publications[self._entered :]:
            kind = "status" if senml.is_status(publication.source) else "reading"
            try:
                sample = self._sample(publication)
            except ContradictionError as error:
                self._contradict(f"sequence {publication.sequence} has {error}")
                self._tell("publication", publication.sequence, kind=kind, records=[])
                continue
            self._tell(
                "publication",
                publication.sequence,
                sample.ns,
                kind=kind,
                topic=sample.topic,
                records=sample.records,
                sampled=sample.ns,
                cycle=sample.cycle,
            )
        self._entered = len(self.ledger.publications)

    def _note_gaps(self) -> None:
        """A board that runs samples at its interval; a sample may be late, but none is left out."""
        conversions = self._adc.conversions
        interval = max(self._interval, self._before_it)
        for one, other in pairwise(conversions[max(self._timed - 1, 0) :]):
            gap = (other.cycle - one.cycle) * 1000 // HZ
            if (
                self._shipped
                and interval >= _REGULAR_MS
                and 8 * gap > 15 * interval
                and self._adc.life(one.cycle) == self._adc.life(other.cycle)
            ):
                self._contradict(f"no sample for {gap} ms at an interval of {interval} ms")
        self._timed = len(conversions)
        if self._shipped and self._interval >= _REGULAR_MS and not self._off_pace:
            self._note_pace()

    def _note_pace(self) -> None:
        """In one life and at one interval the Kth sample behind the first comes K intervals later:
        neither a little too often nor a little too seldom, each time. A start may make the first
        ones late: those behind them come no earlier than K intervals from the start or command.
        """
        conversions = self._adc.conversions
        for conversion in conversions[self._paced :]:
            if conversion.cycle >= self._read_to:
                break  # a command before it may stand in the EEPROM's log by now
            self._paced += 1
            if conversion.cycle <= self._obeyed_at:
                continue
            life = self._adc.life(conversion.cycle)
            if self._first is None or self._first[0] != life:
                self._first = life, conversion.cycle, 0
                continue
            _, first, before = self._first
            self._first = life, first, before + 1
            begun = max(self._adc.starts[life].cycle if life >= 0 else first, self._obeyed_at)
            passed, due = (conversion.cycle - first) * 1000 // HZ, (before + 1) * self._interval
            in_all = (conversion.cycle - begun) * 1000 // HZ
            if 8 * (passed - due) > 7 * self._interval or 8 * (due - in_all) > 7 * self._interval:
                self._contradict(
                    f"{before + 1} samples in {passed} ms at an interval of {self._interval} ms"
                )
                self._off_pace = True  # once is enough
                break

    def _sample(self, publication: Publication) -> Sample:
        if publication.begun is None:
            raise ContradictionError("no write in the log of the EEPROM")
        if senml.is_status(publication.source):
            boot, cause = senml.start(publication.source)
            return self._samples.status(publication.begun, boot, cause)
        return self._samples.reading(publication.begun)

    def _contradict(self, text: str) -> None:
        self._history.add("board", "contradiction", device=self._device, text=text)

    def _tell(self, event: str, sequence: int, t: int | None = None, **data: Any) -> None:
        self._history.add(
            "board",
            event,
            t,
            device=self._device,
            incarnation=self.ledger.incarnation,
            sequence=sequence,
            **data,
        )


def _interval_of(record: bytes) -> int | None:
    """Milliseconds, None if the record is torn: its CRC goes over the number, and over the unit as
    one byte behind it, if that is not milliseconds.
    """
    number, check = record[:2], int.from_bytes(record[2:4])
    for unit, milliseconds in enumerate(_UNITS_MS):
        if crc_hqx(number + bytes([unit] * (unit > 0)), 0xFFFF) == check:
            return int.from_bytes(number) * milliseconds
    return None
