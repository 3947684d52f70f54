"""Plausibility of a time of day: clocks can be wrong, even if the kernel calls them synchronised.

In: a time of day, the newest time that the gateway has believed before, and the machine's clock
chip (RTC). Out: why the time must be wrong, or None. Known causes: a machine without RTC starts in
1970, or at its last saved time; a GPS receiver of the wrong era is off by 1,024 weeks; a wrong NTP
server or a person sets any time. All times are in µs since 1970.
"""

from datetime import UTC, datetime
from pathlib import Path

DAY = 86_400_000_000
BEGIN = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
"""Earliest plausible time: the package did not exist before."""
END = BEGIN + 10 * 365 * DAY
"""Latest plausible time, as long as the gateway has never believed a time."""
MOST_AWAY = 400 * DAY
"""Longest plausible time for which a gateway was off, in µs; beyond it, the clock is doubted."""
STEP = DAY
"""Tolerance for the clock, in µs. The clock is doubted if it is behind the newest believed time, or
ahead of the clock chip's time, by more than STEP. It is also doubted if it jumps by more than STEP
while the gateway runs.
"""

_RTC = Path("/sys/class/rtc/rtc0/since_epoch")


def rtc() -> int | None:
    """Return the time of the clock chip, or None without a chip."""
    try:
        return int(_RTC.read_text(encoding="ascii")) * 1_000_000
    except (OSError, ValueError):
        return None


def doubt(utc: int, seen: int | None, chip: int | None = None) -> str | None:
    """Return why `utc` must be wrong, as a clause, or None. seen: the newest time that was
    believed. chip: time of the clock chip; a time before `seen` means that the chip has lost its
    time.
    """
    if utc < BEGIN:
        return f"that is before {day(BEGIN)}, when there was no Onceway yet"
    if seen is None:
        return f"that is after {day(END)}" if utc > END else None
    if utc < seen - STEP:
        return f"that is before {day(seen)}, which the gateway has seen already"
    if utc > seen + MOST_AWAY:
        return f"that is more than {MOST_AWAY // DAY} days after {day(seen)}, the newest known time"
    if chip is not None and seen <= chip < utc - STEP:
        return f"the machine's clock chip shows {day(chip)}"
    return None


def day(utc: int) -> str:
    """Return the date of a time, or `an impossible year` for a time outside Python's calendar."""
    try:
        return f"{datetime.fromtimestamp(utc // 1_000_000, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return "an impossible year"
