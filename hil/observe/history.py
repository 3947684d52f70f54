"""The history of a run: every event at every hop, in one JSON Lines file. The schema is in
hil/HISTORY.md. In: events as they are observed, from any thread, with monotonic nanoseconds. Out: a
file, and the same events read back. A history with a torn last line was cut off by a crash; it can
be read up to that line, and has no `end` event.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from gateway.errors import OncewayError

HOPS = ("board", "spool", "batch", "table")
"""Hops of a publication, in order."""
READINGS = "readings"
"""Hop after those in HOPS: the table of readings, one row per record."""
KEY = ("device", "incarnation", "sequence")
COLUMNS = ("client", "topic", "received", "boot", "monotonic")
"""Columns that the row of a publication has besides KEY. received: µs UTC. monotonic: µs."""
NO_HISTORY = "Is this a history.jsonl of a run?"
COMMAND = "command"
"""A command. It has a place in the plan, like a fault, but breaks nothing."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event. t: nanoseconds of the machine's monotonic clock. hop: one of HOPS, or the part that
    the event is about (`rig`, `wire`, `gateway` …).
    """

    t: int
    hop: str
    event: str
    data: dict[str, Any] = field(default_factory=dict)
    line: int = field(default=0, compare=False)
    """Line number in the file; 0 if the event was not read from a file."""

    def to_line(self) -> str:
        return (
            json.dumps(
                {"t": self.t, "hop": self.hop, "event": self.event, **self.data},
                separators=(",", ":"),
                default=str,
            )
            + "\n"
        )

    @classmethod
    def from_line(cls, line: str, number: int = 0) -> "Event":
        """Return the event of a line. Raises ValueError or KeyError for an invalid line."""
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        return cls(int(data.pop("t")), str(data.pop("hop")), str(data.pop("event")), data, number)


class History:
    """A history being written. When `add` returns, the event is in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file: TextIO = path.open("x", encoding="utf-8")

    def add(self, hop: str, event: str, t: int | None = None, **data: Any) -> None:
        made = Event(time.monotonic_ns() if t is None else t, hop, event, data)
        with self._lock:
            self._file.write(made.to_line())
            self._file.flush()

    def close(self) -> None:
        self._file.close()


@contextmanager
def taking(event: Event) -> Iterator[None]:
    """Context for code that reads an event. Raises OncewayError if the event breaks the schema."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        text = f"{type(error).__name__}: {error}"
        raise OncewayError(
            f"an event `{event.event}` of hop `{event.hop}` breaks hil/HISTORY.md ({text})"
        ) from error


def read(path: Path) -> Iterator[Event]:
    """Yield the events of a file, in order. Raises OncewayError for an invalid file or line."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return
                try:
                    yield Event.from_line(line, number)
                except KeyError as error:
                    raise OncewayError(
                        f"line {number} has no key {error}", str(path), NO_HISTORY
                    ) from error
                except (ValueError, TypeError) as error:
                    raise OncewayError(
                        f"line {number} is not an event ({error})", str(path), NO_HISTORY
                    ) from error
    except OSError as error:
        raise OncewayError(
            f"cannot read the history ({error.strerror})",
            str(path),
            "Name the folder of a run. A run that holds leaves one only with --keep",
        ) from error
    except UnicodeDecodeError as error:
        raise OncewayError("this is not text", str(path), NO_HISTORY) from error


def sighting(row: Mapping[str, Any], origin: str, **more: Any) -> dict[str, Any]:
    """Return the fields of the event `publication` for a row. row: all columns, including
    `spool_id` and `payload`. origin: `GATEWAY/EPOCH`. more: further fields.
    """
    return {
        **{name: row[name] for name in (*KEY, *COLUMNS)},
        "origin": origin,
        "position": row["spool_id"],
        "payload": row["payload"].hex(),
        **more,
    }
