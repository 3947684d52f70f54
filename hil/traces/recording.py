"""Reads a recorded link from JSON Lines or CSV, plain or gzip. Each line has a counter, a time, and
RSSI and SNR if known. In: a file whose lines are frames that arrived, or have a column `delivered`.
Out: a `Trace`. A counter that goes back has one of four causes: the frame is a copy, a later frame
has overtaken it, the counter has passed 65,535, or the sender has restarted (`_Reader`).
"""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from gateway.errors import OncewayError
from hil.traces.trace import MOST_LOST, Frame, Trace, from_rows, is_own

T = TypeVar("T")
COLUMNS = {
    "sequence": ("sequence", "seq", "fcnt", "fcntup", "counter"),
    "t": ("t", "time", "timestamp", "received"),
    "rssi": ("rssi",),
    "snr": ("snr", "lsnr"),
    "delivered": ("delivered",),
}
"""For each column, the names that a file may use for it, in small letters."""

FORMS = {
    "sequence": "a whole number, 0 or above",
    "t": "seconds, such as 12.5, or ISO 8601, such as 2026-05-01T12:00:00Z",
    "rssi": "a number",
    "snr": "a number",
}
"""Valid form of each column's values, in words."""

SAYS = {
    **dict.fromkeys(("true", "yes", "1", "1.0"), True),
    **dict.fromkeys(("false", "no", "0", "0.0"), False),
}
"""Words, in small letters, by which a recording says whether a frame was delivered."""

WINDOW = 16  # frames by which a copy or an overtaken frame may be late
WRAP = 1 << 16
MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Row:
    t: float
    sequence: int
    rssi: float | None
    snr: float | None


def own_traces() -> dict[str, Path]:
    """Return the project's synthetic traces, by name."""
    with as_file(files("hil").joinpath("traces")) as folder:
        return {path.stem: path for path in sorted(folder.glob("*.jsonl"))}


def place(name: str) -> Path:
    """Return the file of a trace: a path, or the name of one of the project's traces."""
    return own_traces().get(name, Path(name))


def load(name: str) -> Trace:
    """Return a trace. name: a path, or the name of a project's trace. Raises OncewayError."""
    path = place(name)
    text = _text(path)
    stem = path.name.partition(".")[0]
    if not text.lstrip().startswith("{"):
        rows = enumerate(csv.DictReader(text.splitlines()), 2)
        return recognise(stem, _delivered(rows, path), path)
    lines = [
        (number, _json(line, path, number))
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if is_own(lines[0][1]):
        trace = from_rows([row for _, row in lines], path)
        if not trace.frames:
            raise OncewayError("no frame of this recording was delivered", str(path))
        return trace
    if _find(lines[0][1], "sequence") is None:  # a header about the whole recording
        lines = lines[1:]
    return recognise(stem, _delivered(lines, path), path)


def _delivered(rows: Iterable[tuple[int, Mapping[str, Any]]], path: Path) -> list[_Row]:
    """Return the frames that arrived, in the order of the lines. If no line has a column
    `delivered`, all arrived.
    """
    read = [(_row(row, path, number), _arrived(row, path, number)) for number, row in rows]
    if read and not any(arrived for _, arrived in read):
        raise OncewayError("no frame of this recording was delivered", str(path))
    return [row for row, arrived in read if arrived]


def _arrived(row: Mapping[str, Any], path: Path, number: int) -> bool:
    for name, value in row.items():
        if str(name).strip().lower() in COLUMNS["delivered"]:
            arrived = SAYS.get(str(value).strip().lower())
            if arrived is None:
                raise OncewayError(
                    f"line {number} says delivered = {value!r}, which is neither true nor false",
                    str(path),
                    "Write true or false, 1 or 0, yes or no",
                )
            return arrived
    return True


def recognise(name: str, rows: list[_Row], path: Path) -> Trace:
    """Return the trace of some rows. Copies, overtaken frames, overflows and resets of the counter
    are recognised. Raises OncewayError if there is no row.
    """
    if not rows:
        raise OncewayError("the recording holds no frame", str(path))
    reader = _Reader(_interval(rows))
    for row in rows:
        reader.take(row)
    return Trace(name, tuple(reader.frames(rows[0].t)), reader.repeats, len(reader.runs) - 1)


@dataclass(slots=True)
class _Reader:
    """Reader of the counter in recorded frames. interval: usual seconds from one count to the next.
    runs: frames by count, one dictionary for each start of the sender.
    """

    interval: float
    runs: list[dict[int, _Row]] = field(default_factory=lambda: [{}])
    repeats: int = 0
    _newest: int = -1
    _overflow: int = 0

    def take(self, row: _Row) -> None:
        run = self.runs[-1]
        count = row.sequence + self._overflow
        if count <= self._newest - WRAP // 2 and self._in_time(count + WRAP, row):
            self._overflow += WRAP
            count += WRAP
        elif self.runs[-1] and not (
            self._in_time(count, row) if count > self._newest else self._late(count, row)
        ):
            self.runs.append({})
            run, count, self._overflow, self._newest = self.runs[-1], row.sequence, 0, -1
        if count in run:
            self.repeats += 1
        else:
            run[count] = row
            self._newest = max(self._newest, count)

    def _in_time(self, count: int, row: _Row) -> bool:
        """Whether a sender may have reached this count without a restart: it has advanced by at
        most MOST_LOST, and by at most twice what the time allows, plus WINDOW.
        """
        allowed = WINDOW + 2 * (row.t - self.runs[-1][self._newest].t) / max(self.interval, 1e-9)
        return count - self._newest <= min(allowed, MOST_LOST)

    def _late(self, count: int, row: _Row) -> bool:
        """Whether a frame with an old count is a duplicate or was overtaken. If so, its count is at
        most WINDOW below the newest, and it comes too soon after the newest for a new start.
        """
        newest = self.runs[-1][self._newest]
        return self._newest - count <= WINDOW and row.t - newest.t < max(self.interval, 1e-9)

    def frames(self, start: float) -> list[Frame]:
        found = []
        for run in self.runs:
            before = None
            for count in sorted(run):
                row = run[count]
                # losses around a reset are unknown
                lost = 0 if before is None else count - before - 1
                found.append(Frame(round(row.t - start, 6), row.sequence, lost, row.rssi, row.snr))
                before = count
        return found


def _interval(rows: list[_Row]) -> float:
    steps = [
        (b.t - a.t) / (b.sequence - a.sequence)
        for a, b in pairwise(rows)
        if b.sequence > a.sequence
    ]
    return median(steps) if steps else 0.0


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if zipped else path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise OncewayError(f"the recording is larger than {MAX_BYTES >> 20} MiB", str(path))
        return data.decode("utf-8-sig")
    except OSError as error:
        known = ", ".join(own_traces())
        hint = f"Traces that come with the project: {known}"
        raise OncewayError(
            f"cannot read the recording ({error.strerror or error})", str(path), hint
        ) from error
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise OncewayError(f"the recording is damaged ({error})", str(path)) from error


def _json(line: str, path: Path, number: int) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise OncewayError(f"line {number} is not JSON ({error})", str(path)) from error
    if not isinstance(row, dict):
        raise OncewayError(f"line {number} is not a JSON object", str(path))
    return row


def _find(row: Mapping[str, Any], column: str) -> tuple[str, Any] | None:
    """Return the name that a row uses for a column, and the value; None if the row has no value."""
    named = {str(name).strip().lower(): (str(name), value) for name, value in row.items()}
    found = (named[name] for name in COLUMNS[column] if name in named)
    return next((one for one in found if one[1] not in (None, "")), None)


def _row(row: Mapping[str, Any], path: Path, number: int) -> _Row:
    def value(column: str, read: Callable[[Any], T]) -> T | None:
        found = _find(row, column)
        if found is None:
            return None
        try:
            return read(found[1])
        except (TypeError, ValueError, OverflowError) as error:
            raise OncewayError(
                f"line {number} says {found[0]} = {found[1]!r}, which cannot be read",
                str(path),
                f"Write {FORMS[column]}",
            ) from error

    sequence, time = value("sequence", _count), value("t", _seconds)
    if sequence is None or time is None:
        wanted = " and one of ".join(", ".join(COLUMNS[column]) for column in ("sequence", "t"))
        joined = any(mark in str(name) for name in row for mark in ";\t|")
        raise OncewayError(
            f"line {number} lacks the counter or the time",
            str(path),
            "Separate the columns by commas" if joined else f"It needs one of the columns {wanted}",
        )
    return _Row(time, sequence, value("rssi", float), value("snr", float))


def _count(text: Any) -> int:
    if (count := int(text)) < 0:
        raise ValueError("the counter is negative")
    return count


def _seconds(time: Any) -> float:
    """Return a time in seconds. time: a number, or an ISO 8601 time, in UTC by default."""
    try:
        return float(time)
    except ValueError:
        moment = datetime.fromisoformat(str(time))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
