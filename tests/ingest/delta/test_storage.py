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


class Killed(BaseException):
    """The end of the process, in the middle of a write."""


@pytest.mark.parametrize("step", range(4))
def test_writer_that_is_killed_at_any_step_leaves_the_old_or_the_new_file(
    spark: "SparkSession", tmp_path: Path, step: int
) -> None:
    """Without the keys of deleted rows, for example, these rows would be added again. step: number
    of changes to the folder that the writer still makes, after it has written the hidden file.
    """

    def opened() -> HadoopFolder:
        return HadoopFolder(spark, f"file:{tmp_path}", "folder")

    class Dying:
        """The file system of a process that dies."""

        def __init__(self, fs: object) -> None:
            self._fs, self._left = fs, step

        def __getattr__(self, name: str) -> object:
            if name in ("rename", "delete"):
                if not self._left:
                    raise Killed
                self._left -= 1
            return getattr(self._fs, name)

    opened().write("a", b"one")
    writer = opened()
    writer._fs = Dying(writer._fs)
    with pytest.raises(Killed):
        writer.write("a", b"two")
    expected = b"two" if step == 3 else b"one"
    assert (opened().names(), opened().read("a")) == (["a"], expected)
    opened().write("a", b"three")
    opened().write("b", b"other")
    assert (opened().names(), opened().read("a")) == (["a", "b"], b"three")
    opened().delete("a")
    assert (opened().names(), opened().read("a")) == (["b"], None)


def test_file_that_is_set_aside_does_not_come_back_when_it_is_deleted(
    spark: "SparkSession", tmp_path: Path
) -> None:
    folder = HadoopFolder(spark, f"file:{tmp_path}", "folder")
    folder.write("a", b"one")
    (tmp_path / "folder" / "a").rename(tmp_path / "folder" / ".a.old")
    assert (folder.names(), folder.read("a")) == (["a"], b"one")
    folder.delete("a")
    assert (folder.names(), folder.read("a")) == ([], None)


def test_reader_waits_for_no_writer(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer ends while the reader looks for the file that was set aside."""
    folder = HadoopFolder(spark, f"file:{tmp_path}", "folder")
    read, tried = HadoopFolder._read, list[str]()

    def late(self: HadoopFolder, name: str) -> bytes | None:
        tried.append(name)
        found = read(self, name)
        if len(tried) == 1:
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "a").write_bytes(b"new")
        return found

    monkeypatch.setattr(HadoopFolder, "_read", late)
    assert folder.read("a") == b"new"
    assert tried == ["a", ".a.old", "a"]
