"""The batches of an epoch are searched by spool id, with few reads of the landing place."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.uplink import runner
from gateway.uplink.batch import Row
from gateway.uplink.epoch import Feed
from gateway.uplink.lander import NumberLost
from gateway.uplink.landing import Landing, Unreachable, open_landing
from gateway.uplink.spool import Cut
from tests.uplink.conftest import GatewayData
from tests.uplink.twins import land


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


def test_number_that_is_lost_twice_in_a_row_waits_for_the_next_try(
    data: GatewayData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new epoch for each try would fill the landing place with epochs."""

    def loses(cut: Cut, *_: object) -> None:
        raise NumberLost(f"batch {cut.number} cannot land")

    def connect() -> Landing:
        return open_landing(str(tmp_path / "landing"))

    data.add(5)
    with monkeypatch.context() as broken:
        broken.setattr(runner, "land", loses)
        error = land(data, connect)
    assert isinstance(error, Unreachable)
    assert error.what == "batch 1 cannot land"
    assert data.meta("epoch") != "00c0ffee"
    assert len(data.spool_ids()) == 5
    assert land(data, connect) is None
    assert data.spool_ids() == []
