"""Expected content of a simulated board's publications: the voltage at the ADC at each time, and
cause and number of the board's starts. In: the simulator's log of the ADC, and for each publication
the time at which the write of its slot began. Out: the content that the publication must have, and
its sample time. Value, name and time in the EEPROM are not used. If the content is impossible, that
is reported as a contradiction.
"""

from dataclasses import dataclass

from hil.boards.adc_log import AdcLog
from hil.boards.simulator import HZ
from hil.judge.senml import BOOT_MASK, Record

MOST_MISSED = 0xFF  # the firmware counts no further
CAUSES = {"power-on": 0, "brown-out": 1, "external": 2, "watchdog": 3}
"""Causes in a status (firmware/src/ow_hal.h)."""
EXTERNAL = CAUSES["external"]


class ImpossibleContentError(Exception):
    """A publication with impossible content; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample. ns: monotonic time. cycle: board time in cycles. records: SenML without times."""

    ns: int
    cycle: int
    topic: str
    records: tuple[Record, ...]


class Samples:
    """The expected samples of one board, in the order of its journal. device: the name under which
    the board publishes. tells: whether the board must report every start; if False, only the starts
    after its first status. earlier: number of the board's starts before this run, modulo 2^16.
    """

    def __init__(self, device: str, log: AdcLog, *, tells: bool = False, earlier: int = 0) -> None:
        self._device = device
        self._log = log
        self._tells = tells
        self._used = -1  # index of the last conversion that has become a reading
        self._earlier = earlier
        self._reported = (earlier & BOOT_MASK, 0)  # boot and cause in the last status
        self._ran = -1  # index of the start in the last status

    def reading(self, begun: int) -> Sample:
        """Return the sample of the last conversion before `begun`, the board time at which the
        write of the slot began. Raises ImpossibleContentError if this conversion was returned
        before, or if the board has not reported its start before this reading.
        """
        index = self._log.newest(begun)
        if index <= self._used:
            raise ImpossibleContentError("no new ADC conversion for this reading")
        conversion = self._log.conversions[index]
        life = self._log.life(conversion.cycle)
        if self._ran < self._log.life(begun) and (self._tells or self._ran >= 0):
            raise ImpossibleContentError("the board has not reported its start before this reading")
        since = self._log.starts[life].cycle if life >= 0 else 0
        first = max(self._used, self._log.newest(since))
        missed = min(index - first - 1, MOST_MISSED)
        self._used = index
        name = f"{self._device}:adc{conversion.channel}"
        records = [Record(name, conversion.volts, None, "V")]
        if missed:
            records.append(Record(f"{self._device}:missed", missed, None))
        topic = f"sensors/{self._device}/adc{conversion.channel}"
        return Sample(conversion.ns, conversion.cycle, topic, tuple(records))

    def status(self, begun: int, boot: int, cause: int) -> Sample:
        """Return the status message of the newest start before `begun`. begun: board time at which
        the write of the slot began. boot, cause: number and cause of the start, as the board
        reports them. `boot` must be higher than for earlier starts. It may be up to twice the
        number of starts, because the program reserves numbers ahead. A second status of one start
        must be the same. Raises ImpossibleContentError.
        """
        life = self._log.life(begun)
        if life < 0:
            raise ImpossibleContentError("the board had not started")
        start = self._log.starts[life]
        if life != self._ran:
            self._check(life, boot, cause)
        elif (boot, cause) != self._reported:
            raise ImpossibleContentError(f"boot and cause were {self._reported}, now {boot, cause}")
        self._reported, self._ran = (boot, cause), life
        records = (
            Record(f"{self._device}:boot", boot, None),
            Record(f"{self._device}:cause", cause, None),
        )
        ns = start.ns + (begun - start.cycle) * 1_000_000_000 // HZ
        return Sample(ns, begun, f"sensors/{self._device}/status", records)

    def _check(self, life: int, boot: int, cause: int) -> None:
        before, _ = self._reported
        if not self._counted(before) < self._counted(boot) <= 2 * (life + 1):
            raise ImpossibleContentError(
                f"start {boot} follows start {before}, but this run started the board {life + 1} ×"
            )
        if cause not in self._causes(self._ran, life):
            real = self._log.starts[life].cause
            raise ImpossibleContentError(f"reported cause {cause}, but the real one was {real}")

    def _counted(self, boot: int) -> int:
        """Return the number of starts from the beginning of the run up to start number `boot`."""
        return (boot - self._earlier) & BOOT_MASK

    def _causes(self, ran: int, life: int) -> set[int]:
        """Return the causes of a start that the program may report. The boot loader clears the
        cause and keeps RAM. The program therefore recognises a power-on by a missing mark in RAM,
        and reports each other start as a press of the reset button. The mark may also be missing
        because of a power-on just before this start.
        """
        real = self._log.starts[life].cause
        if real == "power-on":
            return {CAUSES[real]}
        lost = any(start.cause == "power-on" for start in self._log.starts[ran + 1 : life])
        return {CAUSES[real], EXTERNAL} | ({CAUSES["power-on"]} if lost else set())
