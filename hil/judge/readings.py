"""Checks the table of readings: it must have each record of each payload in the table of
publications, once. In: rows of the two tables. Out: outcome and mistake of a publication.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from hil.judge.publication import Outcome, Sighting
from hil.judge.senml import Record

GOOD = "good"
FAULT = ".fault"
"""Ending of the name of a record whose value is a sensor's fault (`firmware/SENSORS.md`)."""
YEARS = range(2000, 2100)
"""Years of the column `time`. A time in another year is only in `time_stated`, as text."""
QUALITIES = (
    "good/absent/shorted/garbled/out of range/unsteady/other sensor/several sensors/not measured"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of readings. index: position in the payload. time, received: µs UTC."""

    index: int
    name: str | None
    unit: str | None
    value: float | None
    time: int | None
    time_certainty: str | None
    time_stated: str | None
    gateway: str | None
    topic: str | None
    received: int | None
    text: str | None
    flag: bool | None
    data: str | None
    """Data in hexadecimal digits."""
    sum: float | None
    quality: str | None = GOOD

    def __str__(self) -> str:
        return f"{self.name}={self.value} {self.unit or ''}".rstrip() + f" at {self.time}"


@dataclass(slots=True)
class Seen:
    """The rows of one publication in the table of readings."""

    rows: list[Row] = field(default_factory=list)

    def take(self, data: dict[str, Any]) -> None:
        self.rows.append(Row(**{column.name: data[column.name] for column in fields(Row)}))


def wanted(device: str, published: Sighting) -> list[Row]:
    """Return the readings expected for a row of the table of publications. If a record has no time,
    the reading has the time of receipt, and the certainty `unknown`. A relative time is added to
    the time of receipt.
    """
    received = published.columns.get("received")
    return [
        Row(
            index,
            record.name.removeprefix(f"{device}:"),
            record.unit,
            record.value,
            *_moment(record, received),
            published.origin.partition("/")[0],
            published.columns.get("topic"),
            received,
            record.text,
            record.flag,
            record.data,
            record.sum,
            _quality(record),
        )
        for index, record in enumerate(published.records or ())
    ]


def _quality(record: Record) -> str:
    if not record.name.endswith(FAULT) or record.value is None:
        return GOOD
    words = QUALITIES.split("/")
    known = record.value in range(len(words))
    return words[int(record.value)] if known else "unknown fault"


def _moment(record: Record, received: int | None) -> tuple[int | None, str, str | None]:
    """Return a reading's time in µs UTC, its certainty, and the text of a time out of YEARS."""
    if record.time is not None and not record.relative:
        time: int | None = round(record.time * 1_000_000)
        certainty = "synchronised"
    elif received is None or not record.time:
        time, certainty = received, "unknown"
    else:
        time, certainty = received + round(record.time * 1_000_000), "reckoned"
    if time is None:
        return None, certainty, None
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=time)
    except OverflowError:
        return None, certainty, "no time of this calendar"
    if moment.year in YEARS:
        return time, certainty, None
    return None, certainty, f"{moment.isoformat()}Z"


def judge(device: str, published: Iterable[Sighting], seen: Seen) -> tuple[Outcome, str] | None:
    """Judge a publication's rows in the table of readings (`seen`). Return outcome and mistake, or
    None if the rows are right. published: its rows in the table of publications.
    """
    due = wanted(device, next(iter(published)))
    counts = Counter(row.index for row in seen.rows)
    found = {row.index: row for row in seen.rows}
    missing = [row for row in due if row.index not in counts]
    if missing:
        return Outcome.LOST, f"no row for {missing[0]}"
    duplicates = [found[index] for index, count in counts.items() if count > 1]
    if duplicates:
        return Outcome.DUPLICATE, f"{counts[duplicates[0].index]} rows for {duplicates[0]}"
    if len(found) > len(due):
        return Outcome.PHANTOM, f"a row more than expected: {found[max(found)]}"
    for row in due:
        if not _same(row, found[row.index]):
            return Outcome.ALTERED, _difference(found[row.index], row)
    return None


def _same(due: Row, found: Row) -> bool:
    """Whether two rows are equal to the last bit: minus zero differs from zero."""
    return due == found and all(
        math.copysign(1, one) == math.copysign(1, other)
        for one, other in ((due.value, found.value), (due.sum, found.sum))
        if one is not None and other is not None
    )


def _difference(found: Row, due: Row) -> str:
    if str(found) != str(due):
        return f"{found}, but the payload says {due}"
    wanted = asdict(due)
    name = next(name for name, value in asdict(found).items() if repr(value) != repr(wanted[name]))
    return f"the {name} of {found} is {getattr(found, name)!r}, not {wanted[name]!r}"
