"""Deletion vectors as Spark writes them. Which of their files does the ingest sync? Which commits
does it roll back, if a power cut has damaged a vector or the end of a commit?
"""

import json
import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.ingest.delta import deletion_vectors, durability
from gateway.ingest.delta.commits import is_whole
from tests.ingest.batches import row
from tests.ingest.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PAYLOAD = b'[{"n":"a","v":1}]'
KEPT = Path(__file__).parents[2] / "vectors" / "deletion-vectors.tar.gz"
"""An archive of a folder that `make` made with Delta 4.4.0."""

FIRST, SECOND, WHOLE_FILE, CHANGED, MERGED, RESTORED = range(4, 10)
"""Versions of the table of `make` that have deletion vectors."""


@pytest.fixture(scope="module", params=["kept", pytest.param("new", marks=pytest.mark.soak)])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as `make` makes it: either unpacked from the archive, or made by
    this Spark.
    """
    folder = tmp_path_factory.mktemp("made")
    if request.param == "new":
        make(request.getfixturevalue("spark"), folder)
    else:
        shutil.unpack_archive(KEPT, folder)
    return folder


def make(spark: "SparkSession", folder: Path) -> None:
    """Make a table with two files of five rows. Delete and change rows, as a user does. Make a
    shallow clone of the table.
    """
    lake = Lake(spark, folder)
    lake.publications = folder / "publications"
    lake.allow_unsigned()
    sink = lake.open()
    lake.sql("alter table publications set tblproperties ('delta.enableDeletionVectors' = 'true')")
    for number in (0, 1):
        sink(lake.micro_batch([row("d", 10 * number + one) for one in range(5)]), number)
    lake.sql("delete from publications where sequence in (1, 11)")
    lake.sql("delete from publications where sequence = 12")
    lake.sql("delete from publications where sequence between 4 and 14")
    lake.sql("update publications set topic = 'x' where sequence = 2")
    lake.sql(
        "merge into publications as t using (select 0 as gone) on t.sequence = gone"
        " when matched then delete"
    )
    lake.sql(f"restore table publications to version as of {SECOND}")
    clone = folder / "clone"
    spark.sql(f"create table delta.`{clone}` shallow clone delta.`{lake.publications}`")
    spark.sql(f"delete from delta.`{clone}` where sequence = 0")


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Any:
    """Return a function that copies the table, without the versions after a given one."""

    def at(version: int, name: str = "publications") -> Path:
        table = tmp_path / name
        shutil.copytree(made / name, table)
        for path in (table / "_delta_log").iterdir():
            number = path.name.lstrip(".")[:20]
            if number.isdecimal() and int(number) > version:
                path.unlink()
        return table

    return at


def commit_of(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def vectors(commit: Path) -> list[dict[str, Any]]:
    """Return the deletion vectors that a commit adds."""
    added = (json.loads(line).get("add") for line in commit.read_text().splitlines())
    return [one["deletionVector"] for one in added if one and one.get("deletionVector")]


def files_of(commit: Path) -> set[Path]:
    names = (deletion_vectors.file_of(one) for one in vectors(commit))
    return {commit.parents[1] / name for name in names if name is not None}


def versions(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("0*[0-9].json"))


def sequences(spark: "SparkSession", table: Path) -> list[int]:
    rows = spark.read.format("delta").load(str(table)).select("sequence").collect()
    return sorted(row["sequence"] for row in rows)


def damage(file: Path, how: str) -> None:
    data = file.read_bytes()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    match how:
        case "absent":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "cut off":
            file.write_bytes(data[:-1])
        case "zeros":
            file.write_bytes(bytes(len(data)))
        case "a bit":
            file.write_bytes(data[:-6] + bytes([data[-6] ^ 1]) + data[-5:])


@pytest.mark.parametrize("version", [FIRST, SECOND, WHOLE_FILE, CHANGED, MERGED, RESTORED])
def test_a_whole_commit_stays_and_its_vectors_are_on_the_disk_after_it_is_settled(
    copy: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    table, synced, fsync = copy(version), set(), os.fsync

    def follow(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", follow)
    durability.take_back_torn(str(table))
    assert versions(table)[-1] == version
    assert files_of(commit_of(table, version)) <= synced
    assert files_of(commit_of(table, version))


@pytest.mark.parametrize("how", ["absent", "empty", "cut off", "zeros", "a bit"])
@pytest.mark.parametrize("version", [FIRST, MERGED])
def test_a_commit_of_ours_whose_vector_is_not_whole_is_taken_back(
    copy: Any, caplog: pytest.LogCaptureFixture, version: int, how: str
) -> None:
    table = copy(version)
    for file in files_of(commit_of(table, version)):
        damage(file, how)
    with caplog.at_level(logging.WARNING, logger="onceway.ingest"):
        durability.take_back_torn(str(table))
    assert versions(table)[-1] == version - 1
    assert "was cut off, for example by a power cut" in caplog.text


@pytest.mark.soak
def test_rows_return_when_a_delete_is_undone(spark: "SparkSession", copy: Any) -> None:
    table = copy(SECOND)
    (file,) = files_of(commit_of(table, SECOND))
    assert sequences(spark, table) == [0, 2, 3, 4, 10, 13, 14]
    damage(file, "absent")
    durability.take_back_torn(str(table))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr] - as in a new process
    assert sequences(spark, table) == [0, 2, 3, 4, 10, 12, 13, 14]


def test_a_commit_stays_when_the_vector_that_it_replaced_is_gone_too(copy: Any) -> None:
    """The vectors of the previous version are missing as well, so that version is unreadable, too,
    and a rollback to it would not help.
    """
    table = copy(SECOND)
    for version in (FIRST, SECOND):
        for file in files_of(commit_of(table, version)):
            damage(file, "absent")
    durability.take_back_torn(str(table))
    assert versions(table)[-1] == SECOND


@pytest.mark.parametrize("version", [CHANGED, RESTORED])
def test_commits_of_others_stay_with_any_vectors(copy: Any, version: int) -> None:
    table = copy(version)
    for file in files_of(commit_of(table, version)):
        damage(file, "absent")
    durability.take_back_torn(str(table))
    assert versions(table)[-1] == version


def test_new_shallow_clone_stays(copy: Any) -> None:
    """A shallow clone refers to another table's files by absolute paths. Its commit is not torn."""
    table = copy(0, "clone")
    before = commit_of(table, 0).read_bytes()
    durability.take_back_torn(str(table))
    assert versions(table) == [0]
    assert commit_of(table, 0).read_bytes() == before


def test_shallow_clone_stays_with_any_vectors(copy: Any) -> None:
    table = copy(1, "clone")
    (file,) = files_of(commit_of(table, 1))
    damage(file, "absent")
    durability.take_back_torn(str(table))
    assert versions(table) == [0, 1]


@pytest.mark.parametrize("version", [FIRST, SECOND, WHOLE_FILE, CHANGED, MERGED])
def test_a_commit_that_lacks_its_last_lines_is_not_whole(made: Path, version: int) -> None:
    """If a part of such a commit counted as whole, rows would be doubled or lost."""
    lines = commit_of(made / "publications", version).read_bytes().splitlines(keepends=True)
    assert is_whole(b"".join(lines), version)
    for count in range(len(lines)):
        assert not is_whole(b"".join(lines[:count]), version)


def test_deletions_by_vectors_reach_the_readings_and_stay(
    spark: "SparkSession", tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path)
    sink = lake.open()
    for name in ("", "_readings"):
        spark.sql(
            f"alter table delta.`{lake.publications}{name}`"
            " set tblproperties ('delta.enableDeletionVectors' = 'true')"
        )
    batch = [row("d", number, payload=PAYLOAD) for number in (1, 2, 3)]
    sink(lake.micro_batch(batch), 0)
    lake.sql("delete from publications where sequence = 2")
    sink(lake.micro_batch([*batch, row("d", 4, payload=PAYLOAD)]), 1)
    assert list(lake.publications.glob("*.bin"))
    assert list(Path(f"{lake.publications}_readings").glob("*.bin"))
    assert [key[2] for key in lake.keys("d")] == [1, 3, 4]
    assert [reading[2] for reading in lake.readings("d")] == [1, 3, 4]
