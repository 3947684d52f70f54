"""The truth of a simulated board's publications, as its simulator knows it: which voltage stood at
the ADC when, and why and how often the board has started.

In: the simulator's log of the ADC; of a publication only when its slot in the EEPROM began to be
written. Out: what the publication must say, and when it was sampled. Value, name and time in the
EEPROM play no part. What cannot be is told as a contradiction.
"""

from dataclasses import dataclass

from hil.boards.adc_log import AdcLog
from hil.boards.simulator import HZ
from hil.judge.senml import BOOT_MASK, Record

MOST_MISSED = 0xFF  # the firmware counts no further
CAUSES = {"power-on": 0, "brown-out": 1, "external": 2, "watchdog": 3}
"""As a status tells them (firmware/src/ow_hal.h)."""
EXTERNAL = CAUSES["external"]


class ContradictionError(Exception):
    """A publication that says what cannot be; the text says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """ns: of this machine's monotonic clock; cycle: board time. records: without a time."""

    ns: int
    cycle: int
    topic: str
    records: tuple[Record, ...]


class Samples:
    """device: the name under which the board publishes. tells: it is known to tell its starts, the
    first one too. earlier: how often it had started before, modulo 2^16. Publications are asked for
    in the order in which they were journalled.
    """

    def __init__(self, device: str, log: AdcLog, *, tells: bool = False, earlier: int = 0) -> None:
        self._device = device
        self._log = log
        self._tells = tells
        self._used = -1  # index of the last conversion that has become a reading
        self._earlier = earlier
        self._told = (earlier & BOOT_MASK, 0)  # boot and cause in the last status
        self._ran = -1  # index of the start that it was of

    def reading(self, begun: int) -> Sample:
        """The conversion that came last before the slot began to be written; each serves once. A
        board that tells its starts tells each before it samples. Raises ContradictionError.
        """
        index = self._log.newest(begun)
        if index <= self._used:
            raise ContradictionError("no conversion of the ADC of its own")
        conversion = self._log.conversions[index]
        life = self._log.life(conversion.cycle)
        if self._ran < self._log.life(begun) and (self._tells or self._ran >= 0):
            raise ContradictionError("no status of its start before it")
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
        """Of a start, which has a higher number than the one before. Only the program knows which
        starts it has survived long enough to count; and it reserves numbers ahead, at most as many
        as it has used. Another status of the same start says the same. Raises ContradictionError.
        """
        life = self._log.life(begun)
        if life < 0:
            raise ContradictionError("the board had not started")
        start = self._log.starts[life]
        if life != self._ran:
            self._check(life, boot, cause)
        elif (boot, cause) != self._told:
            raise ContradictionError(f"boot and cause {boot, cause} after {self._told}")
        self._told, self._ran = (boot, cause), life
        records = (
            Record(f"{self._device}:boot", boot, None),
            Record(f"{self._device}:cause", cause, None),
        )
        ns = start.ns + (begun - start.cycle) * 1_000_000_000 // HZ
        return Sample(ns, begun, f"sensors/{self._device}/status", records)

    def _check(self, life: int, boot: int, cause: int) -> None:
        before, _ = self._told
        if not self._counted(before) < self._counted(boot) <= 2 * (life + 1):
            raise ContradictionError(
                f"start {boot} after start {before}, and it has started {life + 1} times"
            )
        if cause not in self._causes(self._ran, life):
            said = self._log.starts[life].cause
            raise ContradictionError(f"cause {cause}, and it started by {said}")

    def _counted(self, boot: int) -> int:
        """How many starts there were by then, those before the run left out."""
        return (boot - self._earlier) & BOOT_MASK

    def _causes(self, ran: int, life: int) -> set[int]:
        """What the program may say. The boot loader takes the cause away and leaves it RAM: so it
        knows a power-on by its mark in RAM being gone, and takes all else for the reset button. The
        mark may be gone from a power-on just before this start.
        """
        said = self._log.starts[life].cause
        if said == "power-on":
            return {CAUSES[said]}
        lost = any(start.cause == "power-on" for start in self._log.starts[ran + 1 : life])
        return {CAUSES[said], EXTERNAL} | ({CAUSES["power-on"]} if lost else set())
