from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gateway.ingest.landing.batch import SCHEMA
from gateway.ingest.landing.place import Announced
from gateway.ingest.sink import merged_batches
from tests.ingest.batches import EPOCH, row

keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 30))


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, one, strict=True)) for one in rows], schema=SCHEMA
    )


def announced(number: int) -> Announced:
    return Announced(f"site/{EPOCH}", number)


@given(st.lists(st.lists(keys, min_size=1, max_size=20), min_size=1, max_size=3))
def test_each_key_once_and_ranges_that_hold_exactly_these_keys(
    batches: list[list[tuple[str, int, int]]],
) -> None:
    tables = [
        (
            announced(number),
            table([row(device, sequence, incarnation) for device, incarnation, sequence in held]),
        )
        for number, held in enumerate(batches, 1)
    ]
    built = merged_batches.build(tables, 5)
    assert built is not None
    rows = built.to_pylist()
    found = [(one["device"], one["incarnation"], one["sequence"]) for one in rows]
    expected: dict[tuple[str, int, int], int] = {}
    for number, held in enumerate(batches, 1):
        for key in held:
            expected.setdefault(key, number)
    assert found == list(expected)  # the first row of each key, in order of arrival
    assert [one["batch"] for one in rows] == list(expected.values())
    header = rows[0]["header"]
    assert [(feed["batch"], feed["taken"], feed["rows"]) for feed in header["feeds"]] == [
        (number, len(held), list(expected.values()).count(number))
        for number, held in enumerate(batches, 1)
    ]
    of_devices = Counter(key[:2] for held in batches for key in held)
    of_devices.subtract(key[:2] for key in expected)
    assert {(one["device"], one["incarnation"]): one["rows"] for one in header["doubles"]} == dict(
        +of_devices
    )
    ranges = [(*key, first, last) for key, first, last in merged_batches.ranges_of(header)]
    assert sorted(
        (device, incarnation, sequence)
        for device, incarnation, first, last in ranges
        for sequence in range(first, last + 1)
    ) == sorted(expected)
    runs = sum(
        (device, incarnation, sequence - 1) not in expected
        for device, incarnation, sequence in expected
    )
    assert len(ranges) == runs
    assert all(one["header"] is None for one in rows[1:])
    assert {one["chunk"] for one in rows} == {5}


def test_origin_and_times_of_a_row() -> None:
    built = merged_batches.build(
        [(announced(3), table([row("dev", 9), row("dev", 10, received=None)]))], 0
    )
    assert built is not None
    one, other = built.to_pylist()
    assert (one["gateway"], one["epoch"], one["batch"], one["spool_id"]) == ("site", EPOCH, 3, 9)
    assert (one["received"].isoformat(), other["received"]) == ("2025-10-09T08:53:20+00:00", None)


def test_sequences_as_large_as_they_can_be() -> None:
    largest = 2**63 - 1
    built = merged_batches.build(
        [(announced(1), table([row("dev", 0), row("dev", largest), row("dev", largest - 1)]))], 0
    )
    assert built is not None
    assert list(merged_batches.ranges_of(built.to_pylist()[0]["header"])) == [
        (("dev", 7), 0, 0),
        (("dev", 7), largest - 1, largest),
    ]


def test_payload_conflict_within_a_task_is_a_separate_chunk() -> None:
    batches = [
        (announced(1), table([row("a", 1), row("a", 2, payload=b"x")])),
        (announced(2), table([row("a", 1), row("a", 2, payload=b"y"), row("b", 2)])),
        (announced(3), table([row("a", 2, payload=b"x")])),
    ]
    other = merged_batches.contradicting(batches, 9)
    assert other is not None
    (one,) = other.to_pylist()
    assert (one["device"], one["sequence"], one["payload"], one["batch"]) == ("a", 2, b"y", 2)
    (feed,) = one["header"]["feeds"]
    assert (feed["batch"], feed["taken"], feed["rows"]) == (2, 0, 1)
    assert one["header"]["doubles"] == [{"device": "a", "incarnation": 7, "rows": -1}]
    assert merged_batches.contradicting(batches[:1] + batches[2:], 9) is None


def test_equal_keys_of_other_devices_are_no_conflict() -> None:
    batches = [(announced(1), table([row("a", 1), row("b", 1, payload=b"x"), row("a", 2)]))]
    assert merged_batches.contradicting(batches, 9) is None


def test_batches_without_rows_make_no_chunk() -> None:
    assert merged_batches.build([(announced(1), table([]))], 0) is None
    assert merged_batches.build([], 0) is None


def test_a_damaged_batch_is_one_row_without_a_key() -> None:
    (one,) = merged_batches.damaged(announced(4), "checksum does not match").to_pylist()
    assert (
        one["gateway"],
        one["epoch"],
        one["batch"],
        one["flaw"],
        one["chunk"],
        one["device"],
    ) == (
        "site",
        EPOCH,
        4,
        "checksum does not match",
        -1,
        None,
    )
