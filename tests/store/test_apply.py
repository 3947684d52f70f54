"""A commit deletes exactly the rows of the queues that it names."""

import sqlite3
from contextlib import closing

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.broker.store_rows import Commit
from gateway.store.apply import apply
from gateway.store.schema import prepare

KEYS = st.sets(st.tuples(st.integers(1, 2), st.integers(1, 12)), max_size=24)


@given(KEYS, KEYS)
@example({(1, 1), (2, 2)}, {(1, 1), (2, 2)})
def test_finished_rows_leave_the_queues_and_the_rest_stays(
    queued: set[tuple[int, int]], finished: set[tuple[int, int]]
) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        prepare(database, "site")
        first, second = Commit(1, 1, None), Commit(2, 1, None)
        first.queue = [(session, number, 1, 1, 0, 2, b"", "", 1) for session, number in queued]
        second.finished = sorted(finished, reverse=True)
        apply(database, first)
        apply(database, second)
        left = set(database.execute("SELECT session, first FROM queue"))
    assert left == queued - finished
