import itertools

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.ingest.dedup.claim import claim
from gateway.ingest.dedup.ranges import Key, Ranges, SeenRanges, Span
from tests.ingest.files import ranges_of

KEY, OTHER = ("dev", 7), ("other", -1)
spans = st.tuples(st.integers(0, 60), st.integers(0, 11)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)
keyed = st.tuples(st.sampled_from([KEY, OTHER, ("dev", 8)]), spans)


def columns(*ranges: tuple[Key, Span]) -> Ranges:
    keys, ends = zip(*ranges, strict=True) if ranges else ((), ())
    first, last = np.array(ends, np.int64).reshape(-1, 2).T
    return ranges_of(list(keys), first, last)


def filled(added: list[list[tuple[Key, Span]]]) -> tuple[SeenRanges, set[tuple[Key, int]]]:
    """Make new ranges by one call of `add` for each inner list. Return them, and the set of all
    numbers in them as a model.
    """
    ranges, model = SeenRanges(), set[tuple[Key, int]]()
    for some in added:
        ranges.add(columns(*some))
        model.update(
            (key, number) for key, (first, last) in some for number in range(first, last + 1)
        )
    return ranges, model


@given(st.lists(st.lists(keyed)), st.lists(keyed))
@example([[(KEY, (0, 1))], [(KEY, (5, 6))], [(KEY, (20, 21))]], [(KEY, (3, 4)), (KEY, (7, 20))])
def test_overlaps_are_what_a_set_says(
    added: list[list[tuple[Key, Span]]], asked: list[tuple[Key, Span]]
) -> None:
    ranges, model = filled(added)
    found = dict(ranges.overlaps(columns(*asked)))
    for index, (key, (first, last)) in enumerate(asked):
        inside = [number for number in range(first, last + 1) if (key, number) in model]
        assert [
            number for low, high in found.get(index, []) for number in range(low, high + 1)
        ] == inside
    assert all(low <= high for parts in found.values() for low, high in parts)
    assert all(found.values())
    assert (len(ranges), ranges.devices) == (len(model), len({key for key, _ in model}))


@given(st.lists(st.lists(keyed)))
def test_ranges_stay_sorted_apart_and_not_empty(added: list[list[tuple[Key, Span]]]) -> None:
    ranges, model = filled(added)
    for wanted in {key for key, _ in model}:
        ends = [(first, last) for key, first, last in ranges.as_ranges() if key == wanted]
        assert all(first <= last for first, last in ends)
        assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(ends))


@given(st.lists(st.lists(keyed)))
def test_ranges_outlive_a_table(added: list[list[tuple[Key, Span]]]) -> None:
    ranges, _ = filled(added)
    again = SeenRanges()
    again.add(Ranges.of(ranges.as_ranges().table()))
    assert sorted(again.as_ranges()) == sorted(ranges.as_ranges())


def test_a_device_that_counts_upwards_takes_one_range() -> None:
    ranges, _ = filled([[(KEY, (number, number))] for number in range(1, 1000)])
    assert list(ranges.as_ranges()) == [(KEY, 1, 999)]


def test_sequences_as_large_as_they_can_be() -> None:
    largest = 2**63 - 1
    ranges, _ = filled(
        [[(KEY, (largest - 1, largest))], [(KEY, (0, 0))], [(KEY, (largest, largest))]]
    )
    assert list(ranges.as_ranges()) == [(KEY, 0, 0), (KEY, largest - 1, largest)]
    assert list(ranges.overlaps(columns((KEY, (5, largest)), (OTHER, (0, largest))))) == [
        (0, [(largest - 1, largest)])
    ]


def chunks_of(held: list[Span]) -> list[tuple[int, Ranges]]:
    return [(number, columns((KEY, span))) for number, span in enumerate(held)]


@given(st.lists(spans), st.lists(spans))
def test_claim_drops_exactly_what_was_seen_or_came_in_an_earlier_chunk(
    before: list[Span], held: list[Span]
) -> None:
    ranges, model = filled([[(KEY, span) for span in before]])
    claimed = claim(chunks_of(held), ranges)
    rows = [(KEY, number) for first, last in held for number in range(first, last + 1)]
    assert (claimed.rows, claimed.new) == (len(rows), len(set(rows) - model))
    assert {
        (key, number)
        for key, first, last in claimed.pending.as_ranges()
        for number in range(first, last + 1)
    } == set(rows)


@given(st.lists(spans), st.lists(spans, max_size=4, unique=True))
def test_rows_after_the_drops_are_new_and_unique(before: list[Span], held: list[Span]) -> None:
    ranges, model = filled([[(KEY, span) for span in before]])
    claimed = claim(chunks_of(held), ranges)
    dropped = {
        (chunk, number)
        for chunk, _, _, first, last in claimed.drop
        for number in range(first, last + 1)
    }
    rows = [
        (chunk, number)
        for chunk, (first, last) in enumerate(held)
        for number in range(first, last + 1)
    ]
    kept = [number for chunk, number in rows if (chunk, number) not in dropped]
    assert sorted(kept) == sorted({number for _, number in rows} - {number for _, number in model})
    # each number once
    assert len(dropped) == sum(last - first + 1 for *_, first, last in claimed.drop)
