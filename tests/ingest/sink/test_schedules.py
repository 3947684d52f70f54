"""Random schedules of duplicates, crashes, lost checkpoints and lost snapshots, and of two jobs at
once, against a model: the set of all keys.

The parts without Spark are the real ones: chunks, ranges, claims and the appender's loop. The table
is a list of commits, and its writer a compare-and-swap on its length.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.ingest.dedup.claim import ChunkRange
from gateway.ingest.dedup.ranges import Ranges, SeenRanges
from gateway.ingest.delta.transaction import Conflict
from gateway.ingest.landing.batch import SCHEMA
from gateway.ingest.landing.place import Announced
from gateway.ingest.sink import merged_batches
from gateway.ingest.sink.publications import Appender
from tests.ingest.batches import EPOCH, row

Key = tuple[str, int, int]
keys = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 9))


class Died(Exception):
    """The process is gone."""


class Table:
    """commits: the keys that each version added."""

    def __init__(self) -> None:
        self.commits: list[list[Key]] = []

    def rows(self) -> list[Key]:
        return [key for commit in self.commits for key in commit]


class Writer:
    """before, after: what happens around the next commit."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def append(self, rows: list[Key], based_on: int, note: dict[str, Any]) -> int:
        before, self.before = self.before, lambda: None
        before()
        if len(self.table.commits) != based_on:
            raise Conflict(f"the table is at version {len(self.table.commits)}, not {based_on}")
        self.table.commits.append(rows)
        self.after()
        return based_on + 1


class Seen:
    """As gateway.ingest.dedup.seen.Seen, over a list."""

    def __init__(self, table: Table, snapshot: tuple[SeenRanges, int] | None) -> None:
        self._table = table
        self.ranges, self.covers = SeenRanges(), 0
        if snapshot is not None:
            self.ranges.add(snapshot[0].as_ranges())
            self.covers = snapshot[1]

    def catch_up(self) -> None:
        for commit in self._table.commits[self.covers :]:
            keys, sequences = (
                [key[:2] for key in commit],
                np.array([key[2] for key in commit], np.int64),
            )
            self.ranges.add(Ranges(keys, sequences, sequences))
        self.covers = len(self._table.commits)

    def landed(self, added: SeenRanges, version: int) -> None:
        self.ranges.add(added.as_ranges())
        self.covers = version


class MicroBatch:
    """As gateway.ingest.sink.microbatch.MicroBatch, over chunks in memory."""

    def __init__(self, batches: list[list[Key]], per_chunk: int) -> None:
        self._rows: list[dict[str, Any]] = []
        self.held: list[tuple[int, Ranges]] = []
        self.taken = sum(map(len, batches))
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
            self.held.append((number, merged_batches.ranges_of(rows[0]["header"])))

    def addition(self, table: str, drop: list[ChunkRange]) -> list[Key]:
        left_out = {
            (number, d, i, s) for number, d, i, first, last in drop for s in range(first, last + 1)
        }
        found = (
            (one["chunk"], one["device"], one["incarnation"], one["sequence"]) for one in self._rows
        )
        return [one[1:] for one in found if one not in left_out]


class Job:
    """A process: what it remembers is lost when it dies."""

    def __init__(self, table: Table, snapshot: tuple[SeenRanges, int] | None) -> None:
        self.seen = Seen(table, snapshot)
        self.writer = Writer(table)
        self.appender = Appender(self.seen, self.writer, "table")  # type: ignore[arg-type]


class Schedules(RuleBasedStateMachine):
    """landed: batches in order; offsets: how far each job's checkpoint has come; snapshot: the
    newest one that was saved.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.landed: list[list[Key]] = []
        self.offsets = {"one": 0, "other": 0}
        self.snapshot: tuple[SeenRanges, int] | None = None
        self.jobs = {name: Job(self.table, None) for name in self.offsets}

    @rule(batch=st.lists(keys, min_size=1, max_size=8))
    def land(self, batch: list[Key]) -> None:
        self.landed.append(batch)

    @rule(
        name=st.sampled_from(["one", "other"]), per_chunk=st.integers(1, 3), until=st.integers(1, 4)
    )
    def run(self, name: str, per_chunk: int = 1, until: int = 4) -> None:
        """One micro-batch."""
        job, batches = self.jobs[name], self.landed[self.offsets[name] : self.offsets[name] + until]
        if batches:
            job.appender.append(MicroBatch(batches, per_chunk), {})  # type: ignore[arg-type]
            self.offsets[name] += len(batches)

    @rule(name=st.sampled_from(["one", "other"]))
    def another_comes_first(self, name: str) -> None:
        other = "one" if name == "other" else "other"
        self.jobs[name].writer.before = lambda: self.run(other)
        self.run(name)
        self.jobs[name].writer.before = lambda: None

    @rule(name=st.sampled_from(["one", "other"]), committed=st.booleans())
    def die(self, name: str, committed: bool) -> None:
        """Before or after the commit; the checkpoint knows nothing of it in either case."""

        def death() -> None:
            raise Died

        setattr(self.jobs[name].writer, "after" if committed else "before", death)
        with suppress(Died):
            self.run(name)
        self.jobs[name] = Job(self.table, self.snapshot)

    @rule(name=st.sampled_from(["one", "other"]))
    def lose_checkpoint(self, name: str) -> None:
        self.offsets[name] = 0

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
        assert all(count == 1 for count in Counter(self.table.rows()).values())

    @invariant()
    def what_a_checkpoint_has_passed_is_there(self) -> None:
        passed = {key for batch in self.landed[: max(self.offsets.values())] for key in batch}
        assert passed <= set(self.table.rows()) <= {key for batch in self.landed for key in batch}


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
