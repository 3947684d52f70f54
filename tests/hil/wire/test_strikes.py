"""Single faults of a line: each strikes at its byte, harms the requested number of bytes, and is
reported when it is done.
"""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.wire.line import Line
from hil.wire.noise import Harm
from hil.wire.strike import Action, Command, misread

BAUD = 100_000  # ten bytes take a millisecond
SENT = bytes(random.Random(1).randrange(1, 256) for _ in range(1000))
COMMAND = Command("uno-1/x-1", "lose", "up", after=100, length=50)


def carry(command: Command, step: int = 7) -> tuple[bytes, list[dict[str, object]], list[float]]:
    """Send SENT in pieces of `step` bytes over a line that carries out this command. Return all
    bytes that arrive, the events, and the arrival time of each byte. Times count in seconds from
    the first byte sent.
    """
    line = Line("up", BAUD)
    line.strike(command)
    out, events, times = b"", [], []
    line.send(SENT, 0.0)
    for tick in range(1, 5000 // step):
        now = tick * step / 10_000
        data, done = line.arrive(now)
        out += data
        times += [now] * len(data)
        events += done
        if not line.busy:
            break
    return out, events, times


def struck(command: Command, offset: int, count: int) -> list[dict[str, object]]:
    named = {"fault": command.fault, "action": command.action, "direction": "up"}
    place = {"publication": 0, "after": command.after, "over": 0, "behind": None}
    return [{"event": "struck", **named, **place, "offset": offset, "bytes": count}]


def test_second_strike_begins_behind_the_first_and_reports_it() -> None:
    line = Line("up", 115200)
    for number, after in enumerate((4, 0), 1):
        line.strike(Command(f"uno-1/x-{number}", "lose", "up", after=after, length=2))
    line.send(b"0123456789", 0.0)
    out, events = line.arrive(1.0)
    assert out == b"01236789"
    line.send(b"abcdef", 1.0)
    out, more = line.arrive(2.0)
    assert out == b"cdef"
    told = [(event["fault"], event["offset"], event["behind"]) for event in [*events, *more]]
    assert told == [("uno-1/x-1", 4, None), ("uno-1/x-2", 10, "uno-1/x-1")]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("lose", SENT[:100] + SENT[150:]),
        ("duplicate", SENT[:150] + SENT[100:150] + SENT[150:]),
        ("delay", SENT),
    ],
)
@given(step=st.integers(1, 300))
def test_bytes_are_struck_at_their_place(action: Action, expected: bytes, step: int) -> None:
    command = replace(COMMAND, action=action)
    out, events, _ = carry(command, step)
    assert out == expected
    assert events == struck(command, 100, 50)


def test_a_delay_holds_up_what_follows_and_nothing_before() -> None:
    _, _, times = carry(replace(COMMAND, action="delay", seconds=0.02))
    assert times == sorted(times)
    assert times[99] < 0.012
    assert 0.029 < times[100] < 0.033
    assert 0.034 < times[200] < 0.036  # right after byte 149
    assert times[900] < 0.095


def test_a_stall_keeps_everything_waiting() -> None:
    command = replace(COMMAND, action="stall", length=0, seconds=0.02)
    out, events, times = carry(command)
    assert out == SENT
    assert 0.029 < times[120] < 0.034
    assert times[-1] > 0.119
    assert events == struck(command, 100, 1000 - 105)


def test_a_flood_takes_its_time_on_the_line() -> None:
    command = replace(COMMAND, action="flood", length=300)
    out, events, times = carry(command)
    assert len(out) == 1300
    assert out[:100] == SENT[:100]
    assert out[400:] == SENT[100:]
    assert out[100:400] not in (SENT[100:400], bytes(300))
    assert times[-1] > 0.125
    assert events == struck(command, 100, 300)


def test_garbled_bytes_are_others() -> None:
    command = replace(COMMAND, action="garble")
    out, events, _ = carry(command, step=1000)
    assert out[:100] == SENT[:100]
    assert out.endswith(SENT[150:])
    assert 10 <= len(out) - 950 <= 30  # about one byte is read for two that were sent
    assert events == struck(command, 100, 50)


@given(data=st.binary(max_size=200))
def test_at_the_right_bit_rate_every_byte_is_read(data: bytes) -> None:
    assert misread(data, 1.0) == data


def test_a_nul_read_at_double_the_bit_rate() -> None:
    """0x00 is nine low bits and one high bit. A reader at twice the rate sees two bytes 0x00."""
    assert misread(b"\0", 2.0)[0] == 0
    assert misread(b"\xff", 0.5) == b"\xff"


class Halving:
    """Weather in which every other byte is lost."""

    kinds = ("lose",)

    def __init__(self) -> None:
        self._fed = 0

    def feed(self, data: bytes, now: float) -> tuple[bytes, list[Harm]]:
        first, self._fed = self._fed % 2, self._fed + len(data)
        return data[first::2], []


@pytest.mark.parametrize(("weather", "step"), [((), 1), ((Halving,), 2)])
@given(pieces=st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_a_place_is_measured_on_the_line_from_the_end_of_its_publication(
    weather: tuple[type[Halving], ...], step: int, pieces: list[int]
) -> None:
    """A place counts the bytes that remain after the noise of the line, whatever the sizes of the
    pieces in which they arrive.
    """
    line = Line("up", BAUD, [one() for one in weather])
    line.send(b"old " * 10, 0.0)
    line.published(6)
    line.send(b"new " * 10, 0.0)
    line.published(7)
    line.strike(Command("uno-1/x-1", "lose", "up", after=3, length=2, publication=7))
    line.send(b"abcdefghijklmnopqrst", 0.0)
    out, told, sent = b"", [], 0
    for piece in itertools.cycle(pieces):
        sent += piece
        data, events = line.arrive(sent / 10_000)
        out, told = out + data, told + events
        if not line.busy:
            break
    left = b"abcdefghijklmnopqrst"[::step]
    assert out.endswith(left[:3] + left[5:])
    assert [(one["publication"], one["after"], one["offset"]) for one in told] == [
        (7, 3, 80 // step + 3)
    ]


def test_bytes_that_are_gone_with_an_unplugged_port_leave_no_publication_behind() -> None:
    line = Line("up", BAUD)
    line.send(b"gone", 0.0)
    line.published(1)
    line.clear()
    line.strike(Command("uno-1/x-1", "lose", "up", after=1, length=1, publication=1))
    line.send(b"abc", 0.0)
    out, [told] = line.arrive(1.0)
    assert (out, told["publication"], told["after"]) == (b"ac", 1, 1)


def test_a_place_that_is_not_reached_is_not_reported() -> None:
    assert carry(replace(COMMAND, after=1000))[1] == []
    assert carry(replace(COMMAND, after=990, length=11))[1] == []
