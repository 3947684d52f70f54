"""Random schedules of two jobs on one table, compared with a model: a set of keys. A seed repeats a
schedule.

Each job has its own state. One job commits between the steps of the other job's append. Jobs
restart, snapshots are lost, and a user compacts the table.
"""

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from gateway.ingest.delta import lease as lease_module
from gateway.ingest.delta.public import PublicTable, PublicWriter
from gateway.ingest.delta.transaction import DeltaWriter
from gateway.ingest.delta.writers import WriterName
from gateway.ingest.sink.foreach_batch import Sink
from tests.ingest.batches import row
from tests.ingest.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STEPS = 6
GAPS: dict[WriterName, dict[str, tuple[type, str]]] = {
    "fast": {
        "before the write": (DeltaWriter, "append"),
        "before the commit": (DeltaWriter, "_write"),
    },
    "public": {
        "before the write": (PublicWriter, "append"),
        "before the commit": (PublicTable, "append"),
    },
}
"""Methods before which the other job commits, by writer and by the name of the moment."""


@contextmanager
def once_before(
    monkeypatch: pytest.MonkeyPatch, gap: tuple[type, str], act: Callable[[], None]
) -> "Iterator[None]":
    """Call `act` directly before the next call of a method. gap: class and name of the method."""
    owner, name = gap
    real = getattr(owner, name)

    def called(*arguments: Any, **keywords: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        act()
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, name, called)
    yield
    monkeypatch.setattr(owner, name, real)


@pytest.mark.parametrize(
    ("seed", "writer"), [(1, "fast"), pytest.param(2, "public", marks=pytest.mark.soak)]
)
def test_the_table_is_the_set_of_all_keys(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    seed: int,
    writer: WriterName,
) -> None:
    """The jobs take no lease, so only the check of each commit's version number protects
    the table.
    """
    gaps = GAPS[writer]
    monkeypatch.setattr(lease_module, "lock_file", lambda location: None)
    random, lake, model, done = Random(seed), Lake(spark, tmp_path, writer), set[int](), set[str]()
    sinks = {name: lake.open() for name in "AB"}

    def append(sink: Sink) -> None:
        # few different keys, so that most micro-batches overlap
        numbers = random.choices(range(1, 15), k=random.randint(1, 6))
        numbers.append(max(model, default=20) + 1)  # a key that is certainly new
        model.update(numbers)
        sink(lake.micro_batch([row("dev", number) for number in numbers]), 0)

    schedule = [*gaps, "optimize in between", "restart", "lose snapshots", "optimize"]
    schedule += random.choices([*schedule, "append"], k=STEPS - len(schedule))
    random.shuffle(schedule)
    for step in schedule:
        name, other = random.sample("AB", 2)
        if step in gaps:
            with once_before(
                monkeypatch,
                gaps[step],
                lambda: (done.add(step), append(sinks[other]))[0],  # noqa: B023
            ):
                append(sinks[name])
        elif step == "optimize in between":
            with once_before(
                monkeypatch,
                gaps["before the commit"],
                lambda: (done.add(step), lake.sql("optimize publications"))[0],  # noqa: B023
            ):
                append(sinks[name])
        elif step == "restart":
            sinks[name].save()
            sinks[name] = lake.open()
        elif step == "lose snapshots":
            lake.lose_snapshots()
        elif step == "optimize":
            lake.sql("optimize publications")
        else:
            append(sinks[name])
    assert lake.keys() == [("dev", 7, number) for number in sorted(model)]
    assert (
        lake.table("_readings")
        .select("device", "incarnation", "sequence", "position")
        .distinct()
        .count()
        == lake.table("_readings").count()
        == len(model)
    )
    assert done == {*gaps, "optimize in between"}  # each planned moment has occurred
    assert "another writer was first" in caplog.text
