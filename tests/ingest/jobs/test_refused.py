"""Upkeep commands refuse tables that are not the ingest's: a line names the fault and the remedy,
the exit code is 1, and nothing is written.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gateway.ingest.jobs import upkeep
from gateway.ingest.jobs.script import run_script
from tests.ingest.batches import land, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COMMANDS = [["compact"], ["summarise"], ["expire", "--older-than", "1d"], ["release"]]


@pytest.fixture(autouse=True)
def session_stays(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "close_session", lambda _: None)


def refused(table: Path, landing: Path, words: list[str]) -> str:
    where = ["--landing", str(landing)] if words == ["release"] else []
    options = upkeep.parse_arguments(["--table", str(table), *words, *where])
    with pytest.raises(SystemExit) as raised:
        run_script(lambda: upkeep.run(options))
    return str(raised.value.code)  # Python ends with exit code 1 if the code is a text


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder, by path, except for the lease files beside
    tables.
    """
    there = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lease")
    return {str(path): path.read_bytes() for path in there}


@pytest.mark.parametrize("words", COMMANDS)
def test_missing_table_and_foreign_table_are_refused(tmp_path: Path, words: list[str]) -> None:
    landing, other, text = (tmp_path / name for name in ("landing", "other", "text"))
    land(landing, "site", 1, [row("dev", 1)])
    write_deltalake(other, pa.table({"device": ["a"], "sequence": [1.0]}))
    text.mkdir()
    (text / "notes.txt").write_text("not a table")
    before = files(tmp_path)
    expected = {
        other: "this is not a table of the ingest: column sequence is a double, not a bigint. Give",
        text: "there is no such table. Is the name right?",
        tmp_path / "no" / "where": "there is no such table. Is the name right?",
    }
    for table, what in expected.items():
        assert refused(table, landing, words).startswith(f"error: {table}: {what}")
    assert files(tmp_path) == before
    assert not (tmp_path / "no").exists()


def test_landing_place_that_is_missing_or_empty(tmp_path: Path) -> None:
    """The command line does not check landing places that are URLs, so the job does."""
    said = refused(tmp_path / "table", Path(f"file:{tmp_path}/none"), ["release"])
    assert "there is no such landing place. If it should be mounted" in said
    said = refused(tmp_path / "table", tmp_path, ["release"])
    assert "no gateway has landed a batch at this landing place" in said
    assert not files(tmp_path)
