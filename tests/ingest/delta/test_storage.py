"""Small files beside a table: on a local disk and over Hadoop, they behave the same."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ingest.delta.storage import Folder, HadoopFolder, LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Open = Callable[[], Folder]


@pytest.fixture(params=["local", "hadoop"])
def at(request: pytest.FixtureRequest, spark: "SparkSession", tmp_path: Path) -> Open:
    """Return a function that opens the same folder at each call. At first, the folder does not
    exist.
    """
    if request.param == "local":
        return lambda: LocalFolder(tmp_path / "folder")
    return lambda: HadoopFolder(spark, f"file:{tmp_path}", "folder")


def test_written_file_is_read_back(at: Open, tmp_path: Path) -> None:
    assert (at().names(), at().read("a")) == ([], None)
    at().write("a", b"one")
    at().write("a", b"two")
    at().write("b", bytes(range(256)))
    (tmp_path / "folder" / ".hidden").touch()
    (tmp_path / "folder" / "inner").mkdir()
    assert at().names() == ["a", "b"]
    assert (at().read("a"), at().read("b")) == (b"two", bytes(range(256)))
    at().delete("a")
    assert at().names() == ["b"]


def test_a_folder_that_is_set_aside_is_whole_under_its_other_name(at: Open, tmp_path: Path) -> None:
    at().write("a", b"one")
    name = at().set_aside("aside")
    assert name.endswith("folder.aside")
    assert (tmp_path / "folder.aside" / "a").read_bytes() == b"one"
    assert at().names() == []


def test_two_jobs_that_write_one_file_do_not_share_a_hidden_one(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other job writes the whole file between two steps of the first job's write."""
    ours, theirs = (HadoopFolder(spark, f"file:{tmp_path}", "folder") for _ in range(2))
    create = HadoopFolder._create

    def then_theirs(folder: HadoopFolder, path: object, data: bytes) -> None:
        create(folder, path, data)
        if folder is ours:
            theirs.write("a", b"theirs")

    monkeypatch.setattr(HadoopFolder, "_create", then_theirs)
    ours.write("a", b"ours")
    assert ours.read("a") == b"ours"
    assert ours.names() == ["a"]
