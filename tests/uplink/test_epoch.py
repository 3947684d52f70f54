"""The batches of an epoch are searched by spool id, with few reads of the landing place."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.uplink.batch import Row
from gateway.uplink.epoch import Feed


class Landed(Feed):
    """Batches in memory. firsts: spool id of each batch's first row."""

    def __init__(self, firsts: list[int]) -> None:
        self.firsts = firsts
        self.reads = 0

    def _batch(self, number: int) -> list[Row]:
        self.reads += 1
        if not 1 <= number <= len(self.firsts):
            return []
        row: Any = (*[None] * 9, self.firsts[number - 1])
        return [row]


@given(st.lists(st.integers(1, 1 << 53), unique=True, max_size=300).map(sorted), st.data())
def test_batch_before_a_spool_id_is_the_last_that_begins_by_it(
    firsts: list[int], data: st.DataObject
) -> None:
    ids = st.sampled_from([*firsts, *(one - 1 for one in firsts)]) if firsts else st.just(1)
    wanted = data.draw(ids | st.integers(1, 1 << 53))
    feed = Landed(firsts)
    assert feed.batch_before(wanted) == max(1, sum(one <= wanted for one in firsts))
    assert feed.reads <= 2 * (len(firsts) + 2).bit_length()
