"""Payloads that are decoded all at once give the same result as payloads that are decoded one by
one.
"""

import cbor2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.ingest.payload import decoded, skeletons
from tests.uplink.readings import sensor_rows

RECEIVED = 1_760_000_000_000_000

texts = st.sampled_from(["a", "b9", "a-:", "-", "ab ", "", "é", "\ud7ff", "b" * 24])
numbers = st.sampled_from(
    [1.5, 300, 2**16, 2**28 - 1, 2**28, 2**40, 2**64 - 1, 7, -1, 1e300, float("nan"), float("inf")]
) | st.floats(width=32)
others = st.sampled_from([True, None, b"x", "1", 2**70])
labels = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -2, -3, -4, -5, -6, "x", "x_"])
plain = st.fixed_dictionaries(
    {0: texts, 2: numbers},
    optional={-2: texts, 1: texts, 6: numbers, -3: numbers, "tu": numbers, "x_": numbers},
)
packs = st.lists(plain, min_size=1, max_size=1) | st.lists(
    st.dictionaries(labels, texts | numbers | others, max_size=4), max_size=2
)
changes = st.none() | st.none() | st.tuples(st.integers(0, 20), st.integers(0, 255))


def columns(payloads: list[bytes], nulls: list[bool]) -> tuple[list[object], list[object]]:
    received = pa.array([None if null else RECEIVED for null in nulls], pa.timestamp("us", "UTC"))
    devices = pa.array(["c"] * len(payloads), pa.string())
    readings, reasons = decoded.columns(devices, pa.array(payloads, pa.binary()), received)
    readings.validate(full=True)
    return readings.to_pylist(), reasons.to_pylist()


@settings(max_examples=300)
@given(
    st.lists(packs, min_size=1, max_size=3),
    st.lists(st.tuples(changes, st.booleans()), min_size=1, max_size=20),
)
def test_many_at_once_say_what_each_says_alone(
    kinds: list[object], drawn: list[tuple[tuple[int, int] | None, bool]]
) -> None:
    payloads = []
    for number, (change, _) in enumerate(drawn):
        payload = bytearray(cbor2.dumps(kinds[number % len(kinds)]))
        if change is not None and change[0] < len(payload):
            payload[change[0]] = change[1]
        payloads.append(bytes(payload))
    nulls = [null for _, null in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skeletons, "FEWEST", 1)
        together = columns(payloads, nulls)
        patch.setattr(skeletons, "FEWEST", 10**9)
        assert together == columns(payloads, nulls)


PLAIN = bytes.fromhex("81 a4 21 62 643a 00 61 61 01 61 56 02 fa 3fc00000")  # d:a is 1.5 V


@pytest.mark.parametrize(
    "odd",
    [
        PLAIN + b"\x00",
        PLAIN[:-1],
        PLAIN.replace(b"\x00\x61a\x01\x61V", b"\x00\x61\xff\x00\x61a"),  # the same label twice
        PLAIN.replace(b"\x01\x61V", b"\x05\x61V"),
        PLAIN.replace(b"\x01\x61V", b"\x01\x61\xff"),
        PLAIN.replace(b"\x01\x61V", b"\x01\x41V"),
        PLAIN.replace(b"d:", b"-:"),
        PLAIN.replace(b"\x61a", b"\x61?"),
        PLAIN.replace(b"\x3f\xc0", b"\x7f\x80"),
        PLAIN.replace(b"\x3f\xc0", b"\x7f\xc0"),
        PLAIN.replace(b"\xfa", b"\x1a"),
        PLAIN.replace(b"\x81\xa4", b"\x82\xa4"),
        PLAIN.replace(b"\x81\xa4", b"\x81\xa3"),
        PLAIN.replace(b"\x81\xa4", b"\x81\xa5"),  # one field more than there are
        PLAIN.replace(b"\x01\x61V", b"\x61u\x60"),  # a text under a label of nobody
        PLAIN.replace(b"\x01\x61V", b"\x61u\x77"),
        b"\x81" * len(PLAIN),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_odd_ones_among_plain_ones(odd: bytes, first: bool) -> None:
    ((alone,), (reason,)) = columns([odd], [False])
    ((plain,), _) = columns([PLAIN], [False])
    readings, reasons = columns([odd, PLAIN] * 20 if first else [PLAIN, odd] * 20, [False] * 40)
    assert (readings[not first :: 2], reasons[not first :: 2]) == ([alone] * 20, [reason] * 20)
    assert (readings[first::2], reasons[first::2]) == ([plain] * 20, [None] * 20)


def test_a_label_that_is_not_of_the_standard_costs_nothing() -> None:
    """The label "tu" is not in the SenML standard. With it, boards state the possible error of
    their time in seconds.
    """
    payloads = [cbor2.dumps([{0: "a", "tu": 3 + 9 * (n % 3), 2: n + 300}]) for n in range(300)]
    found = list(skeletons.find(pa.array(payloads, pa.binary())))
    assert sum(len(one.positions) for one in found) == 300
    readings, _ = columns(payloads, [False] * 300)
    assert [one["value"] for (one,) in readings] == [n + 300 for n in range(300)]


def test_no_payloads() -> None:
    assert columns([], []) == ([], [])
    assert columns([b""] * 20, [False] * 20) == ([None] * 20, ["empty"] * 20)


def test_sensor_payloads_are_decoded_in_one_pass() -> None:
    payloads = pa.array([one[5] for one in sensor_rows(1000, devices=100)], pa.binary())
    assert sorted(np.concatenate([found.positions for found in skeletons.find(payloads)])) == list(
        range(1000)
    )
    part = payloads.slice(100, 500)
    assert sorted(np.concatenate([found.positions for found in skeletons.find(part)])) == list(
        range(500)
    )


def test_several_kinds_of_sensors_are_each_decoded_at_once() -> None:
    kinds = [
        {0: "a", 2: 1.5},
        {0: "b", 1: "Cel", 2: 7000},
        {-2: "c:", 0: "d", 2: 1.5, 6: 1_700_000_000},
    ]
    payloads = [cbor2.dumps([kinds[n % 3] | {2: n + 300}]) for n in range(300)]
    found = list(skeletons.find(pa.array(payloads, pa.binary())))
    assert sorted(len(one.positions) for one in found) == [100, 100, 100]
    readings, _ = columns(payloads, [False] * 300)
    assert [(one["name"], one["unit"], one["value"]) for (one,) in readings[:3]] == [
        ("a", None, 300),
        ("b", "Cel", 301),
        ("d", None, 302),
    ]
