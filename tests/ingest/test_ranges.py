import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.ingest.dedup import claim
from gateway.ingest.ranges import SeenRanges

KEY = ("dev", 7)
spans = st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def filled(added: list[tuple[int, int]]) -> tuple[SeenRanges, set[int]]:
    ranges, model = SeenRanges(), set[int]()
    for start, end in added:
        ranges.add(KEY, start, end)
        model.update(range(start, end))
    return ranges, model


@given(st.lists(spans), spans)
def test_overlap_is_what_a_set_says(added: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    ranges, model = filled(added)
    found = ranges.overlap(KEY, *asked)
    assert {number for span in found for number in range(*span)} == model & set(range(*asked))
    assert len(ranges) == len(model)


@given(st.lists(spans))
def test_ranges_stay_sorted_apart_and_not_empty(added: list[tuple[int, int]]) -> None:
    ranges, _ = filled(added)
    bounds = [bound for _, start, end in ranges for bound in (start, end)]
    assert all(low < high for low, high in itertools.pairwise(bounds))


def test_keys_are_apart() -> None:
    ranges, _ = filled([(1, 5)])
    assert ranges.overlap(("dev", 8), 1, 5) == []
    assert ranges.overlap(("other", 7), 1, 5) == []


def test_a_device_that_counts_upwards_takes_one_range() -> None:
    ranges, _ = filled([(number, number + 1) for number in range(1, 1000)])
    assert list(ranges) == [(KEY, 1, 1000)]


@given(st.lists(spans), st.lists(st.tuples(st.integers(0, 3), spans)))
def test_claim_drops_exactly_what_was_seen_or_came_in_an_earlier_chunk(
    before: list[tuple[int, int]], held: list[tuple[int, tuple[int, int]]]
) -> None:
    ranges, model = filled(before)
    chunks = sorted(held)
    claimed = claim([(chunk, *KEY, start, end - 1) for chunk, (start, end) in chunks], ranges)
    rows = [(position, number) for position, (_, span) in enumerate(chunks) for number in range(*span)]
    new: list[int] = []
    for _, number in rows:
        if number not in model and number not in new:
            new.append(number)
    assert (claimed.rows, claimed.new) == (len(rows), len(new))
    assert {number for _, start, end in claimed.pending for number in range(start, end)} == {number for _, number in rows}


@given(st.lists(spans), st.lists(spans, max_size=4, unique=True))
def test_what_is_left_after_the_drops_is_new_and_once(before: list[tuple[int, int]], chunks: list[tuple[int, int]]) -> None:
    ranges, model = filled(before)
    claimed = claim([(chunk, *KEY, start, end - 1) for chunk, (start, end) in enumerate(chunks)], ranges)
    dropped = {(chunk, number) for chunk, _, _, first, last in claimed.drop for number in range(first, last + 1)}
    kept = [number for chunk, span in enumerate(chunks) for number in range(*span) if (chunk, number) not in dropped]
    assert sorted(kept) == sorted({number for span in chunks for number in range(*span)} - model)
