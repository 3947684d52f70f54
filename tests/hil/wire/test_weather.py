"""Bursts and recorded losses on a line. With the same seed, they hit the same bytes, whatever the
sizes of the pieces in which bytes arrive. Each harm is reported.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.traces import LONGEST_OUTAGE
from hil.traces.recording import load, own_traces
from hil.traces.replay import Replay
from hil.traces.trace import Frame, Trace
from hil.wire.bursts import Bursts
from hil.wire.fading import Fading
from hil.wire.noise import Harm, Weather

RECORDINGS = Path(os.environ.get("ONCEWAY_TRACES", Path(__file__).parents[4] / "shared" / "traces"))
"""Folder of real recordings (see tests/hil/traces), if there is one."""
TRACE = Trace(
    "t",
    (
        Frame(0, 0),
        Frame(3, 3, lost=2),
        Frame(4, 4),
        Frame(5, 5),
        Frame(6, 6),
        Frame(30, 30, lost=23),
    ),
)
frames = st.lists(
    st.binary(min_size=1, max_size=30).map(lambda body: body.replace(b"\0", b"x") + b"\0"),
    max_size=40,
)
cuts = st.lists(st.integers(0, 1200), max_size=20)


def make_bursts(seed: str) -> Weather:
    return Bursts(50, 10, seed)


def make_fading(seed: str) -> Weather:
    return Fading(TRACE, None, seed)


@pytest.mark.parametrize("make", [make_bursts, make_fading])
@given(sent=frames, cuts=cuts, seed=st.text(max_size=5))
def test_pieces_do_not_matter(
    make: Callable[[str], Weather], sent: list[bytes], cuts: list[int], seed: str
) -> None:
    data = b"".join(sent)
    expected = make(seed).feed(data, 0.0)
    weather = make(seed)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    got, harms = b"", []
    for start, end in itertools.pairwise(edges):
        arrived, done = weather.feed(data[start:end], 0.0)
        got += arrived
        harms += done
    assert (got, harms) == expected


@pytest.mark.parametrize("seed", "abcdef")
def test_a_recording_that_loses_little_loses_it_soon(seed: str) -> None:
    rare = Trace(
        "rare",
        tuple(Frame(float(number), number, lost=int(number == 500)) for number in range(1000)),
    )
    _, harms = Fading(rare, None, seed).feed(b"frame\0" * 200, 0.0)
    assert len(harms) == 1


@given(data=st.binary(max_size=3000), seed=st.text(max_size=5))
def test_bytes_outside_of_bursts_arrive_as_they_were(data: bytes, seed: str) -> None:
    arrived, harms = make_bursts(seed).feed(data, 0.0)
    harmed = {offset for harm in harms for offset in range(harm.offset, harm.offset + harm.length)}
    assert len(arrived) == len(data)
    assert {offset for offset in range(len(data)) if arrived[offset] != data[offset]} <= harmed


def test_bursts_are_as_long_and_as_far_apart_as_asked() -> None:
    data = bytes(200_000)
    arrived, harms = Bursts(400, 25, "seed").feed(data, 0.0)
    assert 420 < len(harms) < 520  # one in every 425 bytes
    assert 22 < sum(harm.length for harm in harms) / len(harms) < 28
    assert 0.45 < sum(map(bool, arrived)) / sum(harm.length for harm in harms) < 0.55


@given(sent=frames, seed=st.text(max_size=5))
def test_frames_arrive_whole_or_not_at_all(sent: list[bytes], seed: str) -> None:
    arrived, harms = make_fading(seed).feed(b"".join(sent), 0.0)
    offsets = list(itertools.accumulate(map(len, sent), initial=0))
    lost = {offsets.index(harm.offset) for harm in harms}
    assert all(
        harm == Harm(offsets[n], "fade", length=len(sent[n]))
        for n, harm in zip(sorted(lost), harms, strict=True)
    )
    assert arrived == b"".join(frame for number, frame in enumerate(sent) if number not in lost)


def test_frame_by_frame_as_many_are_lost_as_in_the_recording() -> None:
    trace = load("bursts")
    _, harms = Fading(trace, None, "seed").feed(b"frame\0" * trace.sent * 3, 0.0)
    assert len(harms) == 3 * trace.lost


def test_at_a_pace_a_frame_has_the_fate_of_that_moment() -> None:
    fading = Fading(TRACE, 10.0, "any")
    fading.replay._begin = 0

    def arrives(t: float) -> bool:
        return fading.feed(b"frame\0", 100.0 + t / 10)[0] == b"frame\0"

    assert [arrives(t) for t in (0.0, 0.5, 1.5, 2.5, 3.5, 6.0)] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert [arrives(t) for t in (6.5, 18.0, 29.9)] == [False] * 3  # an outage
    assert [arrives(t) for t in (30.5, 31.5)] == [True, False]  # the recording starts over


DAYS = 86_400.0
LONG = Trace(
    "long",
    (
        *(Frame(60.0 * n, n, lost=int(n % 10 == 0)) for n in range(100)),
        Frame(6000 + 3 * DAYS, 4420, lost=4320),
        *(Frame(6060 + 3 * DAYS + 60 * n, 4421 + n, lost=int(n % 10 == 0)) for n in range(900)),
    ),
)
"""A recording of a link that loses every tenth frame, and was silent for three days."""


def first_losses(seed: int) -> int:
    """Return the length of the first series of lost frames."""
    lost = [arrived == b"" for arrived, _ in feeds(Fading(LONG, None, str(seed)), 150)]
    first = lost.index(True)
    return lost[first:].index(False)


def feeds(fading: Fading, frames: int) -> list[tuple[bytes, list[Harm]]]:
    return [fading.feed(b"frame\0", float(number)) for number in range(frames)]


def test_a_recording_begins_before_a_loss_and_long_bursts_do_not_dominate() -> None:
    """The start is drawn neither from the lost frames nor from the time. If it were drawn from the
    lost frames, 49 of 50 runs would begin in the long burst. If it were drawn from the time, four
    of five runs would.
    """
    for seed in range(40):
        arrived, _ = Fading(LONG, None, str(seed)).feed(b"frame\0", 0.0)
        assert arrived == b"frame\0"
    assert sum(first_losses(seed) > 1 for seed in range(40)) <= 8


def test_outage_of_days_is_shortened_and_reported_in_the_summary() -> None:
    fading = Fading(LONG, None, "1", longest_outage=5)
    harmed = [bool(harms) for _, harms in feeds(fading, 3000)]
    longest = max(len(list(run)) for lost, run in itertools.groupby(harmed) if lost)
    assert longest == 5
    summary = fading.summary()
    assert (summary["shortened"], summary["longest_outage"]) == (1, 5)
    assert (summary["frames"], summary["lost"]) == (3000, sum(harmed))
    assert summary["of"] == pytest.approx(LONG.seconds)
    assert summary["seconds"] > 2 * LONG.seconds


def test_at_a_pace_an_outage_of_days_lasts_as_long_as_it_may() -> None:
    fading = Fading(LONG, 60.0, "1", longest_outage=10)
    silent = [harms != [] for _, harms in feeds(fading, 2000)]  # a frame each second
    longest = max(len(list(run)) for lost, run in itertools.groupby(silent) if lost)
    assert 9 <= longest <= 11
    summary = fading.summary()
    assert summary["run_s"] == 1999
    assert summary["run_s"] - summary["up_s"] == pytest.approx(sum(silent), rel=0.1)
    assert summary["seconds"] > LONG.seconds


@pytest.mark.parametrize("name", [*own_traces(), *map(str, sorted(RECORDINGS.glob("*")))])
def test_every_recording_lets_frames_through_and_loses_some_wherever_it_begins(name: str) -> None:
    trace = load(name)
    for seed in range(10):
        harmed = [bool(harms) for _, harms in feeds(Fading(trace, None, str(seed)), 300)]
        assert any(harmed)
        assert harmed.count(False) > 100
        longest = max(len(list(run)) for lost, run in itertools.groupby(harmed) if lost)
        assert longest <= LONGEST_OUTAGE


@given(pace=st.none() | st.floats(0.1, 1000), seed=st.text(max_size=3), longest=st.floats(1, 100))
def test_every_recording_begins_with_a_frame_that_arrives(
    pace: float | None, seed: str, longest: float
) -> None:
    for trace in (TRACE, LONG, Trace("one", (Frame(0.0, 1),))):
        assert Fading(trace, pace, seed, longest).feed(b"frame\0", 5.0)[0] == b"frame\0"


def test_a_trace_in_which_nothing_arrives() -> None:
    with pytest.raises(ValueError, match="no frame of this trace arrived"):
        Fading(Trace("t", ()), None, "seed")


def test_a_recording_whose_sender_was_silent_begins_anywhere_frame_by_frame() -> None:
    """The start is drawn from the frames. If it were drawn from the time, nearly each run would
    begin in the silence.
    """
    before = [Frame(n / 10, n, n % 5 == 4) for n in range(200)]
    behind = [Frame(100_000 + n / 10, n + 200, n % 5 == 4) for n in range(200)]
    trace = Trace("silent", (*before, *behind))
    assert trace.outages() == []
    assert len({Replay(trace, None, f"seed {n}")._begin for n in range(200)}) > 50
