"""The snapshot of seen ranges: its content, and what happens if it is damaged."""

import numpy as np
import pytest

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
