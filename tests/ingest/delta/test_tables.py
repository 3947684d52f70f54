"""Tables that refuse, are made by two jobs, or are in a catalog, without Java."""

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from gateway.errors import OncewayError
from gateway.ingest.delta import durability, tables
from gateway.ingest.delta.tables import CREATE_TRIES, Table
from gateway.ingest.sink.publications import PUBLICATIONS

NOTHING: Any = None


def table(name: str = "/srv/lake/publications") -> Table:
    return Table(NOTHING, name, PUBLICATIONS)


@pytest.mark.parametrize("failures", [0, 1, CREATE_TRIES - 1, CREATE_TRIES])
def test_table_that_another_job_makes_at_the_same_time_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    steps: list[str] = []

    def make(_: Table) -> None:
        steps.append("make")
        if len(steps) <= failures:
            raise PySparkException("[DELTA_PROTOCOL_CHANGED] another job was first")

    monkeypatch.setattr(Table, "exists", lambda _: False)
    monkeypatch.setattr(Table, "_make", make)
    monkeypatch.setattr(Table, "_complete", lambda _: steps.append("complete"))
    monkeypatch.setattr(Table, "settle", lambda _: steps.append("settle"))
    monkeypatch.setattr(tables.time, "sleep", lambda _: None)
    if failures < CREATE_TRIES:
        table().create()
        assert steps == [*["make"] * (failures + 1), "complete", "settle"]
    else:
        with pytest.raises(OncewayError, match=r"cannot create the table: .*another job") as raised:
            table().create()
        assert "/srv/lake/publications" in str(raised.value)
        assert steps == ["make"] * CREATE_TRIES


def test_folder_with_other_files_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "_schema", lambda _: [])
    with pytest.raises(OncewayError, match="its folder is not empty") as raised:
        table().refuse_others()
    assert "Give the ingest a folder of its own" in str(raised.value)


def test_table_that_the_catalog_does_not_know_is_not_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(durability, "settle_newest", synced.append)
    for location in (None, "file:/srv/lake/publications"):
        monkeypatch.setattr(Table, "location", lambda _, found=location: found)
        table("lake.publications").settle()
    assert synced == ["file:/srv/lake/publications"]


class Rows:
    """The writer of a DataFrame. saved: how and where the rows were saved."""

    def __init__(self) -> None:
        self.saved: list[tuple[str, str]] = []
        self.options_given: dict[str, str] = {}

    @property
    def write(self) -> "Rows":
        return self

    def mode(self, _: str) -> "Rows":
        return self

    def format(self, _: str) -> "Rows":
        return self

    def options(self, **options: str) -> "Rows":
        self.options_given |= options
        return self

    def save(self, name: str) -> None:
        self.saved.append(("path", name))

    def saveAsTable(self, name: str) -> None:
        self.saved.append(("name", name))


@pytest.mark.parametrize(
    ("name", "how"), [("/srv/lake/publications", "path"), ("lake.publications", "name")]
)
def test_rows_go_to_a_path_or_to_a_table_of_the_catalog(name: str, how: str) -> None:
    rows: Any = Rows()
    table(name).append(rows, txnAppId="a")
    assert rows.saved == [(how, name)]
    assert rows.options_given == {"txnAppId": "a"}
