"""A trace: the frames of a recorded link that arrived, and the number lost before each. In: a file
in the rig's own form, written by `save`. Out: a `Trace` and its description. `recording.py` reads
other forms. The form is JSON Lines: a header `{"onceway_trace": 1, "name", "repeats", "resets"}`,
then a line for each frame that arrived, `{"t", "sequence", "lost", "rssi", "snr"}`: seconds from
the first frame, the sender's counter, frames lost just before, dBm, dB.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from gateway.errors import OncewayError

VERSION = 1
MOST_LOST = 100_000  # frames in a row
OUTAGE_INTERVALS = 5  # a silence of more usual intervals than this is an outage


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that arrived. t: seconds since the first frame. sequence: the sender's number for the
    frame. lost: number of frames lost just before this one.
    """

    t: float
    sequence: int
    lost: Annotated[int, Field(ge=0, le=MOST_LOST)] = 0
    rssi: float | None = None
    snr: float | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A gap without arrivals. t: last arrival before the gap, in s. lost: number of lost frames."""

    t: float
    seconds: float
    lost: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded link. frames: in the order sent. repeats: number of copies that were left out.
    resets: number of times that the sender restarted its count.
    """

    name: str
    frames: tuple[Frame, ...]
    repeats: int = 0
    resets: int = 0

    @property
    def sent(self) -> int:
        return len(self.frames) + self.lost

    @property
    def lost(self) -> int:
        return sum(frame.lost for frame in self.frames)

    @property
    def seconds(self) -> float:
        return self.frames[-1].t - self.frames[0].t if self.frames else 0.0

    @property
    def interval(self) -> float:
        """Return the median time from one sent frame to the next, in seconds."""
        steps = [(after.t - before.t) / (after.lost + 1) for before, after in pairwise(self.frames)]
        return median(steps) if steps else 0.0

    def bursts(self) -> Counter[int]:
        """Return the number of bursts of lost frames, by length."""
        return Counter(frame.lost for frame in self.frames if frame.lost)

    def outages(self) -> list[Outage]:
        """Return the silences that are longer than OUTAGE_INTERVALS times `interval`, in order.
        Silences in which no frame was lost are left out: the sender was silent, not the link.
        """
        longest = OUTAGE_INTERVALS * self.interval
        pairs = pairwise(self.frames)
        return [
            Outage(before.t, after.t - before.t, after.lost)
            for before, after in pairs
            if after.t - before.t > longest > 0 and after.lost
        ]

    def fates(self) -> Iterator[tuple[float, bool]]:
        """Yield for every sent frame its time in s, and whether it arrived. Times of lost frames
        are spread evenly between the frames that arrived.
        """
        before = self.frames[0].t if self.frames else 0.0
        for frame in self.frames:
            step = (frame.t - before) / (frame.lost + 1)
            for number in range(1, frame.lost + 1):
                yield before + number * step, False
            yield frame.t, True
            before = frame.t

    def save(self, path: Path) -> None:
        header = {
            "onceway_trace": VERSION,
            "name": self.name,
            "repeats": self.repeats,
            "resets": self.resets,
        }
        rows = [
            {name: value for name, value in asdict(frame).items() if value is not None}
            for frame in self.frames
        ]
        try:
            path.write_text(
                "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in (header, *rows))
            )
        except OSError as error:
            raise OncewayError(f"cannot write the trace ({error.strerror})", str(path)) from error


_FRAMES = TypeAdapter(tuple[Frame, ...])


def is_own(first: object) -> bool:
    """Whether the parsed first line of a file is the header of a trace in the rig's own form."""
    return isinstance(first, dict) and "onceway_trace" in first


def from_rows(rows: list[Any], path: Path) -> Trace:
    """Return a trace from the lines of the rig's own form. Raises OncewayError."""
    try:
        header, *rest = rows
        frames = _FRAMES.validate_python(rest)
        if header["onceway_trace"] != VERSION:
            raise OncewayError(
                f"this trace is of version {header['onceway_trace']}, this program reads {VERSION}",
                str(path),
            )
        return Trace(str(header["name"]), frames, int(header["repeats"]), int(header["resets"]))
    except (KeyError, TypeError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        raise OncewayError(f"the trace is damaged ({error})", str(path)) from error
