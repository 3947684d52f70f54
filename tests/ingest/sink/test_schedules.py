"""Random schedules of duplicates, crashes, lost checkpoints and lost snapshots, compared with a
model: the set of all keys. Two jobs run at once, the table is restored, and the landing place is
cleaned.

Everything without Spark is real: chunks, ranges, claims, the progress of feeds and the loop of the
appender. The table is a list of commits. A writer adds a commit only if the list still has the
expected length.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.errors import OncewayError
from gateway.ingest.dedup.claim import ChunkRange
from gateway.ingest.dedup.ranges import Ranges, SeenRanges
from gateway.ingest.dedup.taken import Taken
from gateway.ingest.delta.commits import Commit
from gateway.ingest.delta.transaction import Conflict
from gateway.ingest.landing.batch import SCHEMA
from gateway.ingest.landing.place import Announced
from gateway.ingest.sink import merged_batches
from gateway.ingest.sink.microbatch import FeedCount
from gateway.ingest.sink.publications import Appender
from tests.ingest.batches import EPOCH, row
from tests.ingest.files import ranges_of

FEED = f"site/{EPOCH}"
Key = tuple[str, int, int]
keys = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 9))


class Died(Exception):
    """An exception that stands for the death of a process: the job does nothing after it."""


@dataclass(frozen=True)
class Version:
    """A version of the table. added: new keys. note: the ingest's data in the commit. restored:
    version whose content this version has; None: the previous one's.
    """

    added: list[Key]
    note: dict[str, Any]
    restored: int | None = None


class Table:
    """A table as a list of commits, with the interface of
    gateway.ingest.delta.commits.CommitLog.
    """

    def __init__(self) -> None:
        self.commits = [Version([], {})]

    @property
    def head(self) -> int:
        return len(self.commits) - 1

    def read(self, number: int) -> Commit | None:
        if number >= len(self.commits):
            return None
        one = self.commits[number]
        operation = "WRITE" if one.restored is None else "RESTORE"
        return Commit(number, operation, one.note, {}, bool(one.added), one.restored)

    def rows(self, version: int) -> list[Key]:
        one = self.commits[version]
        if one.restored is not None:
            return self.rows(one.restored)
        return one.added + (self.rows(version - 1) if version else [])


class Writer:
    """A writer of the table. before, after: functions that are called before and after the next
    commit.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def append(
        self, rows: list[Key], based_on: int, note: dict[str, Any], progress: tuple[str, int]
    ) -> int:
        before, self.before = self.before, lambda: None
        before()
        if self.table.head != based_on:
            raise Conflict(f"the table is at version {self.table.head}, not {based_on}")
        self.table.commits.append(Version(rows, note))
        self.after()
        return based_on + 1


class Seen:
    """A model of gateway.ingest.dedup.seen.Seen for a table in memory."""

    def __init__(self, table: Table, snapshot: tuple[SeenRanges, int] | None) -> None:
        self._table = table
        self.ranges, self.covers = SeenRanges(), 0
        if snapshot is not None:
            self.ranges.add(snapshot[0].as_ranges())
            self.covers = snapshot[1]

    def catch_up(self) -> None:
        fresh = self._table.commits[self.covers + 1 :]
        if any(one.restored is not None for one in fresh):
            self.ranges = SeenRanges()
            self._add(self._table.rows(self._table.head))
        else:
            self._add([key for one in fresh for key in one.added])
        self.covers = self._table.head

    def _add(self, keys: list[Key]) -> None:
        sequences = np.array([key[2] for key in keys], np.int64)
        self.ranges.add(ranges_of([key[:2] for key in keys], sequences, sequences))

    def landed(self, added: SeenRanges, version: int) -> None:
        self.ranges.add(added.as_ranges())
        self.covers = version


class MicroBatch:
    """A model of gateway.ingest.sink.microbatch.MicroBatch, with its chunks in memory."""

    def __init__(self, first: int, batches: list[list[Key]], per_chunk: int) -> None:
        """first: number of the first batch. per_chunk: number of batches in a chunk."""
        self.feeds = {FEED: FeedCount(first, first + len(batches) - 1)}
        self._rows: list[dict[str, Any]] = []
        self.chunk_ranges: list[tuple[int, Ranges]] = []
        self.arrived = sum(map(len, batches))
        tables = [
            pa.Table.from_pylist(
                [dict(zip(SCHEMA.names, row(d, s, i), strict=True)) for d, i, s in one], SCHEMA
            )
            for one in batches
        ]
        for number in range(0, len(tables), per_chunk):
            gathered = [
                (Announced(f"site/{EPOCH}", number), table)
                for table in tables[number : number + per_chunk]
            ]
            built = merged_batches.build(gathered, number)
            assert built is not None
            rows = built.to_pylist()
            self._rows += rows
            self.chunk_ranges.append((number, merged_batches.ranges_of(rows[0]["header"])))

    def doubles(self, drop: list[ChunkRange]) -> Counter[tuple[str, int]]:
        return Counter()

    def addition(self, table: str, drop: list[ChunkRange]) -> list[Key]:
        left_out = {
            (number, d, i, s) for number, d, i, first, last in drop for s in range(first, last + 1)
        }
        found = (
            (one["chunk"], one["device"], one["incarnation"], one["sequence"]) for one in self._rows
        )
        return [one[1:] for one in found if one not in left_out]


class Job:
    """A process of the ingest. When it dies, its memory is lost. A new one starts with the progress
    that the table states.
    """

    def __init__(self, table: Table, snapshot: tuple[SeenRanges, int] | None, cleaned: int) -> None:
        self.seen = Seen(table, snapshot)
        self.seen.catch_up()
        taken = Taken(table, lambda version: {})  # type: ignore[arg-type]
        taken.load(self.seen.covers)
        self.writer = Writer(table)
        self.appender = Appender(
            self.seen,
            taken,
            self.writer,
            "table",
            lambda feed: cleaned,
            lambda micro_batch, drop: None,  # type: ignore[arg-type]
        )
        self.position = max(taken.feeds.get(FEED, 0), cleaned)


class Schedules(RuleBasedStateMachine):
    """Random schedules of two jobs on one table. landed: batches in order. cleaned: number of
    batches deleted at the landing place. lost: keys that no longer exist anywhere. snapshot: the
    newest saved snapshot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.landed: list[list[Key]] = []
        self.cleaned = 0
        self.lost: set[Key] = set()
        self.snapshot: tuple[SeenRanges, int] | None = None
        self.jobs = {name: self.start() for name in ("one", "other")}

    def start(self) -> Job:
        return Job(self.table, self.snapshot, self.cleaned)

    @rule(batch=st.lists(keys, min_size=1, max_size=8))
    def land(self, batch: list[Key]) -> None:
        self.landed.append(batch)

    @rule(
        name=st.sampled_from(["one", "other"]), per_chunk=st.integers(1, 3), until=st.integers(1, 4)
    )
    def run(self, name: str, per_chunk: int = 1, until: int = 4) -> None:
        """Run a micro-batch. If the table was restored to an older version, start the job again."""
        job = self.jobs[name]
        batches = self.landed[job.position : job.position + until]
        if not batches:
            return
        try:
            job.appender.append(MicroBatch(job.position + 1, batches, per_chunk), {})  # type: ignore[arg-type]
        except OncewayError as error:
            if "restored to an older version" not in str(error):
                raise
            self.jobs[name] = self.start()
        else:
            job.position += len(batches)

    @rule(name=st.sampled_from(["one", "other"]))
    def another_comes_first(self, name: str) -> None:
        other = "one" if name == "other" else "other"
        self.jobs[name].writer.before = lambda: self.run(other)
        self.run(name)
        self.jobs[name].writer.before = lambda: None

    @rule(name=st.sampled_from(["one", "other"]), committed=st.booleans())
    def die(self, name: str, committed: bool) -> None:
        """Let the job die directly before or after its commit, and start it again."""

        def death() -> None:
            raise Died

        setattr(self.jobs[name].writer, "after" if committed else "before", death)
        with suppress(Died):
            self.run(name)
        self.jobs[name] = self.start()

    @rule(share=st.floats(0, 1))
    def restore(self, share: float) -> None:
        """Restore the table to an earlier version. Rows that this removes are lost if their batches
        were cleaned at the landing place.
        """
        self.table.commits.append(Version([], {}, int(share * self.table.head)))
        left = set(self.table.rows(self.table.head))
        self.lost |= {key for batch in self.landed[: self.cleaned] for key in batch} - left

    @rule(share=st.floats(0, 1))
    def clean(self, share: float) -> None:
        """Clean a share of the batches that the table has: delete them at the landing place."""
        taken = Taken(self.table, lambda version: {})  # type: ignore[arg-type]
        taken.load(self.table.head)
        self.cleaned = max(self.cleaned, int(share * taken.feeds.get(FEED, 0)))

    @rule(name=st.sampled_from(["one", "other"]))
    def save(self, name: str) -> None:
        kept = SeenRanges()
        kept.add(self.jobs[name].seen.ranges.as_ranges())
        self.snapshot = (kept, self.jobs[name].seen.covers)

    @rule()
    def lose_snapshot(self) -> None:
        self.snapshot = None

    @invariant()
    def no_key_is_there_twice(self) -> None:
        assert all(count == 1 for count in Counter(self.table.rows(self.table.head)).values())

    @invariant()
    def what_the_table_says_is_taken_is_there(self) -> None:
        taken = Taken(self.table, lambda version: {})  # type: ignore[arg-type]
        taken.load(self.table.head)
        batches = self.landed[: taken.feeds.get(FEED, 0)]
        rows = set(self.table.rows(self.table.head))
        assert {key for batch in batches for key in batch} - self.lost <= rows
        assert rows <= {key for batch in self.landed for key in batch}


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
