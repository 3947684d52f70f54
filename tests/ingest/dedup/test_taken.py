"""The progress of each feed, read from the commits of a table to which others also write."""

import json

from gateway.ingest.dedup.taken import WHOLE_EVERY, Taken
from gateway.ingest.delta.commits import CommitLog
from tests.ingest.files import Files


class Table:
    """A commit log in memory, with commits like those of the ingest."""

    def __init__(self) -> None:
        self.files = Files()
        self.head = -1
        self.commit("CREATE TABLE")

    def open(self, rows: dict[str, int] | None = None) -> Taken:
        """Return the progress as a new process reads it. rows: the progress according to the
        table's rows; None: the rows must not be read.
        """

        def from_rows(version: int) -> dict[str, int]:
            assert rows is not None, "the rows were asked"
            return rows

        taken = Taken(CommitLog(self.files), from_rows)
        taken.load(self.head)
        return taken

    def commit(self, operation: str, note: object = None, **parameters: object) -> int:
        self.head += 1
        info = {
            "operation": operation,
            "operationParameters": parameters,
            "userMetadata": json.dumps({"onceway": note}) if note else None,
        }
        self.files[f"{self.head:020d}.json"] = json.dumps({"commitInfo": info}).encode()
        return self.head

    def take(self, taken: Taken, **feeds: int) -> None:
        note = {"micro_batch": 0, **taken.note(feeds)}
        taken.landed(note, self.commit("WRITE", note))


def test_a_new_process_knows_what_the_last_one_took() -> None:
    table = Table()
    first = table.open()
    for number in range(1, 2 * WHOLE_EVERY):
        table.take(first, a=number, **({"b": 7} if number == 3 else {}))
    assert table.open().feeds == first.feeds == {"a": 2 * WHOLE_EVERY - 1, "b": 7}


def test_a_log_that_was_cleaned_still_says_it_of_all_feeds() -> None:
    table = Table()
    first = table.open()
    table.take(first, b=7)
    for number in range(1, 2 * WHOLE_EVERY):
        table.take(first, a=number)
    for version in range(table.head - WHOLE_EVERY):
        del table.files[f"{version:020d}.json"]
    assert table.open().feeds == first.feeds


def test_a_restored_table_has_taken_what_it_had_then() -> None:
    table = Table()
    taken = table.open()
    table.take(taken, a=1, b=1)
    then = table.head
    table.take(taken, a=2, c=1)
    table.commit("RESTORE", version=str(then))
    assert table.open().feeds == {"a": 1, "b": 1}
    taken.catch_up(table.head)
    assert taken.feeds == {"a": 1, "b": 1}
    table.take(taken, a=2)
    assert table.open().feeds == {"a": 2, "b": 1}


def test_a_table_that_was_made_again_has_taken_nothing() -> None:
    table = Table()
    taken = table.open()
    table.take(taken, a=5)
    table.commit("CREATE OR REPLACE TABLE AS SELECT")
    assert table.open().feeds == {}


def test_commits_of_others_do_not_hide_the_progress() -> None:
    table = Table()
    taken = table.open()
    table.take(taken, a=5)
    for operation in ("OPTIMIZE", "VACUUM START", "DELETE"):
        table.commit(operation)
    table.commit("WRITE", {"released": 0})
    assert table.open().feeds == {"a": 5}
    taken.catch_up(table.head)
    assert taken.feeds == {"a": 5}


def test_two_jobs_never_take_a_feed_back() -> None:
    table = Table()
    one, other = table.open(), table.open()
    table.take(one, a=9)
    other.catch_up(table.head)
    assert other.ahead({"a": 5, "b": 1}) == {"b": 1}
    table.take(other, b=1)
    assert table.open().feeds == {"a": 9, "b": 1}


def test_a_table_of_an_older_version_is_asked_for_its_rows() -> None:
    table = Table()
    table.commit("WRITE", {"micro_batch": 0})
    table.take(table.open({"a": 3}), b=1)
    assert table.open({"a": 3}).feeds == {"a": 3, "b": 1}
    table.commit("RESTORE", version=None, timestamp="2026-01-01")
    assert table.open({"a": 2}).feeds == {"a": 2}


def test_a_commit_that_was_computed_before_the_table_was_set_back_does_not_count() -> None:
    """The public writer may append to a table that was restored a moment before. The progress in
    the note of this append is that of the earlier table, so its batches are read again.
    """
    table = Table()
    taken = table.open()
    for number in (1, 2):
        table.take(taken, a=number)
    note = {"micro_batch": 0, **taken.note({"a": 3}), "all": True}
    table.commit("WRITE", note | {"based_on": table.head})
    assert table.open().feeds == {"a": 3}
    table.commit("RESTORE", version="1")
    table.commit("WRITE", note | {"based_on": 2})
    assert table.open().feeds == {"a": 1}


def test_an_own_commit_behind_those_of_others_is_read_in_order() -> None:
    table = Table()
    one, other = table.open(), table.open()
    table.take(other, b=1)
    table.take(one, a=9)
    assert (one.feeds, one.covers) == ({}, 0)
    one.catch_up(table.head)
    assert (one.feeds, one.covers) == ({"a": 9, "b": 1}, 2)
