"""The publications of one board, read while it runs: the board's ledger proves that they exist, and
its simulator knows their content (samples.py). In: a simulated board's logs. Out: events of hop
`board` in the history, and the number of readings taken.
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
from hil.devices.samples import ImpossibleContentError, Sample, Samples
from hil.judge import senml
from hil.observe.history import History

APPLICATION_AT = 0x020  # see firmware/examples/sensor
HELD_CELLS = (0x030, 0x038)
"""Addresses of two records, count:u8 id:u16 crc:u16; the board always overwrites the older record.
id: identifier of a QoS 2 message that the board has received and that the gateway has not released
yet, or 0 (firmware/JOURNAL.md).
"""
_HELD_SIZE = 5
_UNITS_MS = (1, 1000, 60_000)
_REGULAR_MS = 200
"""Shortest interval, in ms, whose pace is checked. At a shorter interval, samples may be late: the
board journals each sample before it takes the next one."""
MARKS, MARKS_OF_A_START = 2, 6
"""Largest number of writes to marks: for each publication (released, done), and for each start,
because a power cut may end a write, and the journal may be sent again."""
_END = 1 << 63
"""A board time later than any real one."""


class LedgerWatch:
    """Records a board's ledger in the history. ledger: the entries that `look` has read. device:
    the name under which the board publishes. application: first bytes of the application's area in
    the EEPROM before the first start, interval:u16 crc:u16. before: the EEPROM at that time; its
    publications are not recorded. bundled: whether the program samples at the interval in
    `application` and reports its starts. obeyed: how often the board has changed its interval.
    """

    def __init__(
        self,
        device: str,
        board: SimulatedBoard,
        history: History,
        application: bytes,
        before: bytes = ERASED,
        *,
        bundled: bool = True,
    ) -> None:
        self.ledger = Ledger.from_image(before)
        self._before = before
        self._earlier = len(self.ledger.publications)
        self._adc = AdcLog(board.adc_log)
        self._samples = Samples(device, self._adc, tells=bundled, earlier=self.ledger.boots)
        self._starts = 0
        self._bundled = bundled
        self._timed = self._paced = 0
        self._first: tuple[int, int, int] | None = None
        """Beginning of the present pace: index of the board's last start, board time of its first
        sample after that at the present interval, number of later samples. None before that sample.
        """
        self._obeyed_at = self._read_to = -1
        """Board time of the last obeyed command, and board time up to which the log was read."""
        self._off_pace = False
        self._device = device
        self._board = board
        self._history = history
        self._application = bytearray(application)
        self._interval = self._earlier_interval = int.from_bytes(application[:2])
        self.obeyed = 0
        self._last_record: tuple[int, int] | None = None
        self._accepted = self._taken_back = 0
        self._offset = 0
        self._entered = self._earlier

    @property
    def waiting(self) -> int:
        """Return the number of publications that the journal still has to deliver."""
        return len(self.ledger.waiting())

    @property
    def commanded(self) -> bool:
        """Whether the gateway would send a command again if the board lost its power now."""
        return self._accepted < self.obeyed or bool(self._last_record and self._last_record[1])

    @property
    def produced(self) -> list[Publication]:
        """Return the publications of this run."""
        return self.ledger.publications[self._earlier :]

    @property
    def reports(self) -> int:
        """Return the number of status messages produced so far: one after each start."""
        return sum(senml.is_status(publication.source) for publication in self.produced)

    def look(self) -> int:
        """Record publications completed since the last call. Return the number of all readings."""
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
        # no publication leaves the board before the gateway has given it an incarnation
        if self.ledger.incarnation and self._entered < len(self.ledger.publications):
            self._enter()
        return len(self.produced) - self.reports

    def close(self, *, swapped: bool = False) -> None:
        """Read the whole ledger once more, from log and image. Record the rest of its publications,
        its contradictions, and each publication that the board still holds. Their incarnation is 0
        if the board has never received one. swapped: whether another board has this board's name by
        now. If so, the held publications do not arrive, and stay in this board's EEPROM.
        """
        self.look()
        self.ledger = Ledger.read(self._board.eeprom_log, self._board.eeprom_image, self._before)
        self._read_to = _END
        self._enter()
        for text in self.ledger.contradictions:
            self._contradict(text)
        if self.obeyed > self._accepted + 1:  # the last command's message may not be complete yet
            self._contradict(
                f"{self.obeyed} commands obeyed, and {self._accepted} messages accepted at QoS 2"
            )
        most = MARKS * len(self.produced) + MARKS_OF_A_START * (self.note_starts() + 1)
        if self.ledger.mark_writes > most + MARKS * self._taken_back:
            self._contradict(
                f"{self.ledger.mark_writes} marks written for {len(self.produced)} publications:"
                " each write wears the EEPROM"
            )
        for sequence in self.ledger.waiting():
            released, _ = self.ledger.state(sequence)
            if not released:  # if it is released, the gateway has it
                self._tell("left" if swapped else "waiting", sequence)

    def _note_release_taken_back(self, entry: Write | Start) -> None:
        """If this write begins to clear the mark of a PUBREC in a slot, record that the board will
        publish again, even if a power cut ends the write. The board clears the mark if the gateway
        answers PUBREL with 0x92 (unknown identifier).
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
            self._taken_back += 1
            self._tell("again", sequence)

    def _note_interval(self, entry: Write | Start) -> None:
        """If this write completes another interval, add an obeyed command to the history."""
        offset = entry.address - APPLICATION_AT if isinstance(entry, Write) else -1
        if not isinstance(entry, Write) or not 0 <= offset < len(self._application):
            return
        self._application[offset] = entry.value
        interval = _interval_of(bytes(self._application))
        if interval is not None and interval != self._interval:
            self._interval, self._earlier_interval = interval, self._interval
            self._first, self._obeyed_at = None, entry.cycle or 0
            self.obeyed += 1
            self._history.add(
                "board", "obeyed", device=self._device, interval=interval, cycle=entry.cycle
            )

    def _note_held(self, entry: Write | Start) -> None:
        """Check that the board accepts each QoS 2 message once: consecutive records differ in the
        identifier, unless a release is between them. A worn cell may have kept no record.
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
        found = record[0], int.from_bytes(record[1:3])
        if crc_hqx(record, 0xFFFF) or found == self._last_record:
            return
        before, self._last_record = self._last_record, found
        if not found[1]:
            return
        if before == ((found[0] - 1) & 0xFF, found[1]):
            self._contradict(f"the message with the identifier {found[1]} was accepted twice")
        else:
            self._accepted += 1

    def note_starts(self) -> int:
        """Record new starts in the history. Return the number of all starts."""
        self._adc.look()
        for start in self._adc.starts[self._starts :]:
            fields = {"device": self._device, "cause": start.cause, "cycle": start.cycle}
            self._history.add("board", "start", start.ns, **fields)
        self._starts = len(self._adc.starts)
        return self._starts

    def _enter(self) -> None:
        self.note_starts()
        self._note_gaps()
        for publication in self.ledger.publications[self._entered :]:
            kind = "status" if senml.is_status(publication.source) else "reading"
            try:
                sample = self._sample(publication)
            except ImpossibleContentError as error:
                self._contradict(f"sequence {publication.sequence}: {error}")
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
        """Check the pace, and that each gap between samples is at most 15/8 of the interval."""
        conversions = self._adc.conversions
        interval = max(self._interval, self._earlier_interval)
        for one, other in pairwise(conversions[max(self._timed - 1, 0) :]):
            gap = (other.cycle - one.cycle) * 1000 // HZ
            if (
                self._bundled
                and interval >= _REGULAR_MS
                and 8 * gap > 15 * interval
                and self._adc.life(one.cycle) == self._adc.life(other.cycle)
            ):
                self._contradict(f"no sample for {gap} ms at an interval of {interval} ms")
        self._timed = len(conversions)
        if self._bundled and self._interval >= _REGULAR_MS and not self._off_pace:
            self._note_pace()

    def _note_pace(self) -> None:
        """Check the pace of the samples since the last start or change of the interval. Sample K,
        counted from 0, must come at most K intervals after sample 0, and at least K intervals after
        the start or change. The tolerance is 7/8 of an interval.
        """
        conversions = self._adc.conversions
        for conversion in conversions[self._paced :]:
            if conversion.cycle >= self._read_to:
                break  # an earlier command may not be in the EEPROM's log yet
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
            elapsed, due = (conversion.cycle - first) * 1000 // HZ, (before + 1) * self._interval
            in_all = (conversion.cycle - begun) * 1000 // HZ
            if 8 * (elapsed - due) > 7 * self._interval or 8 * (due - in_all) > 7 * self._interval:
                self._contradict(
                    f"sample {before + 1} came {elapsed} ms after sample 0, not {due} ms after it"
                )
                self._off_pace = True  # report this only once
                break

    def _sample(self, publication: Publication) -> Sample:
        if publication.begun is None:
            raise ImpossibleContentError("no write in the log of the EEPROM")
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
    """Return the interval in milliseconds; None for a torn record. The unit is not in the record,
    but the CRC covers number and unit, or the number alone if the unit is milliseconds.
    """
    number, check = record[:2], int.from_bytes(record[2:4])
    for unit, milliseconds in enumerate(_UNITS_MS):
        if crc_hqx(number + bytes([unit] * (unit > 0)), 0xFFFF) == check:
            return int.from_bytes(number) * milliseconds
    return None
