"""Line noise is reproducible, has the requested rate, and does every harm that it reports."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.wire.noise import KINDS, Harm, Noise


@given(
    data=st.binary(max_size=2000),
    cuts=st.lists(st.integers(0, 2000), max_size=20),
    seed=st.text(max_size=8),
)
def test_pieces_do_not_matter(data: bytes, cuts: list[int], seed: str) -> None:
    whole = Noise(0.05, seed)
    expected = whole.feed(data)
    pieces = Noise(0.05, seed)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    got, harms = b"", []
    for start, end in itertools.pairwise(edges):
        arrived, done = pieces.feed(data[start:end])
        got += arrived
        harms += done
    assert (got, harms) == expected


@given(data=st.binary(max_size=2000), rate=st.floats(0, 0.9), seed=st.integers())
def test_the_report_explains_what_arrived(data: bytes, rate: float, seed: int) -> None:
    arrived, harms = Noise(rate, str(seed)).feed(data)
    assert arrived == replay(data, harms)
    for harm in harms:
        if harm.kind == "corrupt":
            assert harm.sent == data[harm.offset]
            assert harm.arrived != harm.sent


def replay(data: bytes, harms: list[Harm]) -> bytes:
    by_offset = {harm.offset: harm for harm in harms}
    assert len(by_offset) == len(harms)
    out = bytearray()
    for offset, byte in enumerate(data):
        harm = by_offset.get(offset)
        if harm is None:
            out.append(byte)
        elif harm.kind == "insert":
            out += bytes((harm.arrived or 0, byte))
        elif harm.kind == "corrupt":
            out.append(harm.arrived or 0)
    return bytes(out)


def test_rate_and_kinds() -> None:
    data = random.Random(1).randbytes(100_000)
    _, harms = Noise(0.01, "7").feed(data)
    assert 800 < len(harms) < 1200
    for kind in KINDS:
        assert abs(sum(harm.kind == kind for harm in harms) - len(harms) / 3) <= 1


def test_every_three_harms_hold_each_kind() -> None:
    _, harms = Noise(0.1, "3").feed(bytes(1000))
    for start in range(0, len(harms) - 2, 3):
        assert {harm.kind for harm in harms[start : start + 3]} == set(KINDS)


def test_seeds_differ_and_repeat() -> None:
    data = bytes(5000)
    assert Noise(0.01, "1").feed(data) == Noise(0.01, "1").feed(data)
    assert Noise(0.01, "1").feed(data) != Noise(0.01, "2").feed(data)


def test_no_noise() -> None:
    assert Noise(0, "1").feed(b"clean" * 100) == (b"clean" * 100, [])


@pytest.mark.parametrize("rate", [-0.1, 1, 2])
def test_impossible_rate(rate: float) -> None:
    with pytest.raises(ValueError, match="noise rate"):
        Noise(rate, "1")
