"""Replays a recorded link: a frame is lost if the recording lost it.

In: a trace, a pace or none, a seed, and the time of each frame. Out: whether the frame arrives; at
the end, the part of the recording used. Without a pace, each frame has the fate of the next
recorded frame. With a pace, each frame has the fate of the frame recorded at the same moment, and
in an outage no frame arrives.

Recordings have outages of hours and days, which no run can wait for: outages longer than
`longest_outage` are shortened to it. The seed draws the frame with which a replay begins: without a
pace, a frame that arrived; with a pace, the next such frame after a moment of the recording. If the
next loss is more than MOST_BEFORE frames away, the replay begins later, because most recordings
have long stretches without a loss. After the end of the recording its beginning follows.
"""

import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hil.traces import LONGEST_OUTAGE
from hil.traces.trace import Trace

MOST_BEFORE = 100  # frames from the beginning to the next loss


@dataclass(frozen=True, slots=True)
class _Fate:
    """The fate of a frame. recorded: its time in s. t: this time after outages were shortened."""

    recorded: float
    t: float
    arrived: bool


class Replay:
    """One direction of one link. pace: seconds of the recording in one second of the run; None:
    each frame has the fate of the next recorded one. longest_outage: in seconds of the run; in
    frames if `pace` is None. Raises ValueError for a trace without a frame that arrived.
    """

    def __init__(
        self, trace: Trace, pace: float | None, seed: str, longest_outage: float = LONGEST_OUTAGE
    ) -> None:
        if not trace.frames:
            raise ValueError("no frame of this trace arrived")
        self._trace = trace
        self._pace = pace
        self._longest = longest_outage
        self._shortened = 0
        self._silences: list[tuple[float, float]] = []
        self._fates = self._by_frame() if pace is None else self._by_time(pace * longest_outage)
        self._times = [fate.t for fate in self._fates]
        self._frame = self._begin = self._drawn(random.Random(seed))
        self._begun_at: float | None = None
        self._now = 0.0
        self._frames = self._lost_frames = 0
        self._down_since: float | None = None
        self._down = 0.0

    def _by_frame(self) -> list[_Fate]:
        """Return the fate of each frame. Bursts of losses are cut to `longest_outage` frames."""
        fates: list[_Fate] = []
        burst = 0
        for t, arrived in self._trace.fates():
            burst = 0 if arrived else burst + 1
            if burst <= self._longest:
                fates.append(_Fate(t, t, arrived))
            self._shortened += burst == int(self._longest) + 1
        return fates

    def _by_time(self, longest: float) -> list[_Fate]:
        """Return the fate of each frame outside outages. Shorten outages to `longest` seconds."""
        frames = self._trace.frames
        silent = {outage.t for outage in self._trace.outages()}
        newest = start = frames[0].t
        fates = [_Fate(start, start, True)]
        cut = 0.0
        for before, frame in pairwise(frames):
            gap = frame.t - before.t
            if before.t in silent:
                too_long = max(0.0, gap - longest)
                self._shortened += too_long > 0
                self._silences.append((before.t - cut, before.t - cut + gap - too_long))
                cut += too_long
            else:
                for number in range(1, frame.lost + 1):
                    lost_at = before.t + gap * number / (frame.lost + 1)
                    fates.append(_Fate(lost_at, max(newest, lost_at - cut), False))
            # an overtaken frame may be later than the one after it
            newest = max(newest, frame.t - cut)
            fates.append(_Fate(frame.t, newest, True))
        return fates

    def _drawn(self, rng: random.Random) -> int:
        """Return the index of the frame to begin with. Draw a place: a frame that arrived; with a
        pace, the next one that arrived after a drawn moment. From there, go on to 1 to MOST_BEFORE
        frames (drawn, too) before the next loss or silence.
        """
        count = len(self._fates)
        if self._pace is None:
            drawn = rng.choice([index for index in range(count) if self._fates[index].arrived])
        else:
            last = max(fate.recorded for fate in self._fates)
            moment = rng.uniform(self._fates[0].recorded, last)
            drawn = next(
                (index for index, fate in enumerate(self._fates) if fate.recorded >= moment), 0
            )
        begin = next(
            index
            for index in ((drawn + step) % count for step in range(count))
            if self._fates[index].arrived
        )
        losses = [index for index, fate in enumerate(self._fates) if not fate.arrived]
        losses += [bisect_right(self._times, start) for start, _ in self._silences]
        if not losses:
            return begin
        losses.sort()
        after = bisect_left(losses, begin + 1)
        loss = losses[after] if after < len(losses) else losses[0] + count
        back = min(loss - begin, rng.randint(1, MOST_BEFORE))
        return (loss - back) % count

    def pass_to(self, now: float) -> None:
        """Note the present time of the run. now: seconds of a clock that never goes back."""
        self._begun_at = now if self._begun_at is None else self._begun_at
        self._now = now

    def arrives(self, now: float) -> bool:
        """Return whether a frame that begins at `now` arrives. Call this once for each frame."""
        self.pass_to(now)
        return self._note(self._next(now))

    def summary(self) -> dict[str, Any]:
        """Describe the part of the recording that was used, up to the last frame. trace: name of
        the recording. begin, seconds: start and length of this part. of: length of the recording.
        These three are in the recording's seconds. frames: frames of the run. lost: those that did
        not arrive. run_s: seconds of the run. up_s: seconds without those from a lost frame to the
        next frame that arrived. shortened: number of outages cut to `longest_outage` (`Replay`).
        """
        run = self._now - (self._begun_at if self._begun_at is not None else self._now)
        down = self._down + (self._now - self._down_since if self._down_since is not None else 0)
        return {
            "trace": self._trace.name,
            "begin": round(self._fates[self._begin].recorded, 3),
            "seconds": round(self._replayed(run), 3),
            "of": round(self._trace.seconds, 3),
            "frames": self._frames,
            "lost": self._lost_frames,
            "run_s": round(run, 3),
            "up_s": round(run - down, 3),
            "longest_outage": self._longest,
            "shortened": self._shortened,
        }

    def _replayed(self, run: float) -> float:
        """Return the length of the used part of the recording, in the recording's seconds."""
        if self._pace is not None:
            begin, span = self._times[self._begin], self._times[-1]
            laps, t = divmod(begin + run * self._pace, span) if span > 0 else (0, 0.0)
            end = max(0, bisect_right(self._times, t) - 1)
        else:
            laps, end = divmod(self._begin + self._frames, len(self._fates))
        whole = self._fates[-1].recorded - self._fates[0].recorded
        return laps * whole + self._fates[end].recorded - self._fates[self._begin].recorded

    def _note(self, arrives: bool) -> bool:
        self._frames += 1
        self._lost_frames += not arrives
        if not arrives and self._down_since is None:
            self._down_since = self._now
        elif arrives and self._down_since is not None:
            self._down += self._now - self._down_since
            self._down_since = None
        return arrives

    def _next(self, now: float) -> bool:
        if self._pace is None:
            arrives = self._fates[self._frame].arrived
            self._frame = (self._frame + 1) % len(self._fates)
            return arrives
        assert self._begun_at is not None  # noqa: S101 - pass_to has set it
        t = self._times[self._begin] + (now - self._begun_at) * self._pace
        t = t % self._times[-1] if self._times[-1] > 0 else 0.0
        if any(start < t < end for start, end in self._silences):
            return False
        return self._fates[max(0, bisect_right(self._times, t) - 1)].arrived
