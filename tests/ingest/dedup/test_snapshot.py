"""The snapshot of seen ranges: its content, and what happens if it is damaged."""

import numpy as np
import pytest

from gateway.errors import OncewayError
from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.ranges import SeenRanges
from gateway.ingest.dedup.snapshot import Snapshot
from tests.ingest.files import Files, ranges_of


def some_ranges() -> SeenRanges:
    ranges = SeenRanges()
    keys = [("dev", 7), ("dev", 7), ("größe", -1)]
    ranges.add(ranges_of(keys, np.array([1, 9, 2**63 - 2]), np.array([4, 9, 2**63 - 1])))
    return ranges


def test_a_snapshot_holds_what_was_saved_and_two_are_kept() -> None:
    files = Files()
    for covers in (3, 4, 12):
        snapshot.save(files, Snapshot(some_ranges(), covers, "id"))
    assert len(files) == 2
    found = snapshot.load(files, "id")
    assert found is not None
    assert (found.covers, list(found.ranges.as_ranges())) == (12, list(some_ranges().as_ranges()))


def test_a_snapshot_that_is_cut_off_or_of_another_table_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = Files()
    snapshot.save(files, Snapshot(some_ranges(), 3, "id"))
    snapshot.save(files, Snapshot(some_ranges(), 4, "id"))
    newest = files.names()[-1]
    whole = files[newest]
    for size in range(0, len(whole), 101):
        files[newest] = whole[:size]
        found = snapshot.load(files, "id")
        assert found is not None
        assert found.covers == 3
    assert "is not used" in caplog.text
    assert snapshot.load(files, "another id") is None


def test_a_snapshot_of_what_the_table_never_was_makes_way() -> None:
    """After a table was restored from a copy, a snapshot may cover versions that the table no
    longer has. Or it may cover a version that now has another content.
    """
    files = Files()
    for covers in (3, 4, 12):
        snapshot.save(files, Snapshot(some_ranges(), covers, "id", f"{covers} first"))
    found = snapshot.load(files, "id", lambda one: one.mark == "4 first")
    assert found is not None
    assert found.covers == 4
    snapshot.save(files, Snapshot(some_ranges(), 5, "id", "5 second"))
    assert [int(name[5:25]) for name in files.names()] == [4, 5]


def test_no_snapshot() -> None:
    assert snapshot.load(Files(), "id") is None


def test_a_snapshot_that_cannot_be_written_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    class Full(Files):
        def write(self, name: str, data: bytes) -> None:
            raise OSError("No space left on device")

    snapshot.save(Full(), Snapshot(some_ranges(), 3, "id"))
    assert "No space left on device" in caplog.text


def test_keys_of_deleted_rows_are_added_up_in_one_file_and_belong_to_one_table() -> None:
    files, kept = Files(), list(some_ranges().as_ranges())
    snapshot.keep_gone(files, some_ranges(), 3, "id")
    snapshot.keep_gone(files, SeenRanges(), 3, "id")
    assert files.names() == [f"gone-{3:020d}.parquet"]
    assert list(snapshot.deleted_keys(files, "id").as_ranges()) == kept
    more = SeenRanges()
    more.add(ranges_of([("another", 1)], np.array([1]), np.array([1])))
    snapshot.keep_gone(files, more, 5, "id")
    assert files.names() == [f"gone-{5:020d}.parquet"]
    assert snapshot.deleted_keys(files, "id").devices == 3
    assert snapshot.deleted_keys(files, "another id").devices == 0


def test_damaged_file_of_deleted_keys_is_an_error_and_names_the_file() -> None:
    files = Files()
    snapshot.keep_gone(files, some_ranges(), 3, "id")
    (name,) = files
    files[name] = files[name][:-9]
    for read in (snapshot.deleted_keys, lambda *at: snapshot.keep_gone(at[0], SeenRanges(), 4, "")):
        with pytest.raises(OncewayError, match="cannot be read") as raised:
            read(files, "id")
        assert name in str(raised.value)
        assert files.names() == [name]


def test_file_of_deleted_keys_that_is_replaced_while_it_is_read_is_no_damage() -> None:
    """`expire` runs in another process: it writes a newer file, then deletes the older one."""

    class Replaced(Files):
        def read(self, name: str) -> bytes | None:
            if len(self) == 1 and name.endswith(f"{3:020d}.parquet"):
                self[f"gone-{9:020d}.parquet"] = self.pop(name)
            return super().read(name)

    files = Replaced()
    snapshot.keep_gone(files, some_ranges(), 3, "id")
    assert snapshot.deleted_keys(files, "id").devices == 2


def test_file_of_deleted_keys_that_is_listed_and_never_there_is_an_error() -> None:
    class Listed(Files):
        def names(self) -> list[str]:
            return ["gone-7.parquet"]

    with pytest.raises(OncewayError, match=r"gone-7.*cannot be read"):
        snapshot.deleted_keys(Listed(), "id")
