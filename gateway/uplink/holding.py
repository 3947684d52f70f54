"""Reasons why readings are still at the gateway.

In: a spool that is not empty, the settings of the uplink, the state of its process and of the
landing place, the time. Out: a sentence for each reason, with the configuration key behind it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.config import UplinkSection
from gateway.uplink.pace import Pace
from gateway.uplink.spool import Spool


def reasons(
    spool: Spool, settings: UplinkSection | None, running: bool, outage: bool, now: float
) -> list[str]:
    """Return a sentence for each reason why the rows of the spool wait. The spool must not be
    empty. settings: None if they are not known. running: whether the uplink runs. outage: whether
    the landing place cannot be reached. now: seconds since 1970.
    """
    found = []
    if not running:
        found.append("no uplink is running: sudo systemctl start onceway-uplink")
    if outage:
        found.append("the landing place cannot be reached: see the outage")
    if settings is not None:
        found += _window(settings, now) + _rate(spool, settings, now) + _age(spool, settings, now)
    return found


def _window(settings: UplinkSection, now: float) -> list[str]:
    pace, local = Pace(settings), datetime.fromtimestamp(now).astimezone()
    if pace.open(local):
        return []
    return [f"the window is closed until {pace.opens(local):%H:%M} local time (uplink.window)"]


def _rate(spool: Spool, settings: UplinkSection, now: float) -> list[str]:
    """Return a list with one sentence if the rate limit delays the next batch, else an
    empty list.
    """
    newest, _ = next(spool.landed_batches(), (None, None))
    if settings.bytes_per_s is None or newest is None:
        return []
    free = (newest.landed or 0) / 1e6 + newest.size / settings.bytes_per_s
    if free <= now:
        return []
    key = f"uplink.bytes_per_s = {settings.bytes_per_s}"
    return [f"the rate limit delays the next batch until {_clock(free)} ({key})"]


def _age(spool: Spool, settings: UplinkSection, now: float) -> list[str]:
    """Return a list with one sentence if the next batch is neither full nor old enough, else an
    empty list.
    """
    if spool.unlanded() is not None:
        return []
    count, size = spool.waiting(settings.batch_count)
    if not count or count >= settings.batch_count or size >= settings.batch_bytes:
        return []
    received = next((row[6] for row in spool.rows(spool.last_cut()[1], 1)), None)
    if received is None:
        since = "the oldest has no time yet"
    elif now - received / 1e6 >= settings.batch_age_s:
        return []
    else:
        since = f"the oldest from {_clock(received / 1e6)}"
    return [
        f"the next batch has {count:,} of {settings.batch_count:,} messages, {since}: the batch"
        f" is cut when that message is {settings.batch_age_s:g} s old (uplink.batch_age_s)"
    ]


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S} UTC"
