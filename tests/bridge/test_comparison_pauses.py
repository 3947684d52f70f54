"""If a bridge's connection breaks often, the bridge does not compare all retained messages each
time.
"""

from itertools import pairwise

from gateway.bridge.comparison_pauses import BYTES_PER_S, FIRST_S, FREE, ComparisonPauses

SIZE = 116_000
"""Bytes that a comparison of 1,000 topics transfers."""


def flapping(pauses: ComparisonPauses, seconds: int, every: int, size: int = SIZE) -> list[int]:
    """Return the times of the comparisons within `seconds`, if each connection lasts `every`
    seconds. size: bytes of a comparison.
    """
    compared = []
    for now in range(0, seconds, every):
        if pauses.left_s(now) < every:
            compared.append(now)
            pauses.ended(now, size, differed=False)
    return compared


def test_first_comparisons_do_not_wait() -> None:
    pauses = ComparisonPauses()
    for now in range(FREE):
        assert pauses.left_s(now) == 0
        pauses.ended(now, SIZE, differed=False)
    assert FIRST_S - 1 <= pauses.left_s(FREE) <= FIRST_S


def test_line_that_breaks_each_ten_seconds_for_a_day_reads_little() -> None:
    compared = flapping(ComparisonPauses(), 86_400, 10)
    assert len(compared) * SIZE <= 86_400 * BYTES_PER_S + (FREE + 10) * SIZE
    assert max(b - a for a, b in pairwise(compared)) <= SIZE / BYTES_PER_S
    assert flapping(ComparisonPauses(), 300, 10)[3:] == [30, 50, 90, 170]


def test_few_topics_wait_for_seconds_only() -> None:
    assert len(flapping(ComparisonPauses(), 600, 10, size=500)) == 60


def test_difference_or_a_connection_that_lasts_ends_the_pauses() -> None:
    pauses = ComparisonPauses()
    flapping(pauses, 300, 10)
    pauses.ended(300, SIZE, differed=True)
    assert pauses.left_s(301) == 0
    flapping(pauses, 300, 10)
    pauses.forgive()
    assert pauses.left_s(301) == 0


def test_years_of_vain_comparisons_are_no_error() -> None:
    pauses = ComparisonPauses()
    for now in range(5_000):
        pauses.ended(now, SIZE, differed=False)
    assert 0 < pauses.left_s(5_000) <= SIZE / BYTES_PER_S
