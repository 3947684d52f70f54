"""The commit log, the snapshot of seen ranges and the lease: what they read, and what they do not
believe.
"""

import json
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gateway.ingest import snapshot
from gateway.ingest.commits import Commit, CommitLog, HistoryGone, is_whole
from gateway.ingest.lease import lease, lock_file
from gateway.ingest.ranges import Ranges, SeenRanges
from gateway.ingest.snapshot import Snapshot


class Files(dict[str, bytes]):
    """A storage.Folder in memory."""

    def read(self, name: str) -> bytes | None:
        return self.get(name)

    def write(self, name: str, data: bytes) -> None:
        self[name] = data

    def names(self) -> list[str]:
        return sorted(self)

    def delete(self, name: str) -> None:
        del self[name]


def commit_file(operation: str, *actions: dict[str, object], note: str | None = None) -> bytes:
    info = {
        "commitInfo": {
            "operation": operation,
            **({"userMetadata": note} if note is not None else {}),
        }
    }
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in (info, *actions)).encode()


ADDED = {"add": {"path": "a.parquet", "dataChange": True}}
MOVED = {"add": {"path": "a.parquet", "dataChange": False}}


def test_commits_after_a_version() -> None:
    files = Files()
    files[f"{0:020d}.json"] = commit_file("CREATE TABLE", {"metaData": {}})
    files[f"{1:020d}.json"] = commit_file(
        "WRITE",
        ADDED,
        {"txn": {"appId": "onceway/x", "version": 9}},
        note='{"onceway": {"nonce": "n"}}',
    )
    files[f"{2:020d}.json"] = commit_file("OPTIMIZE", MOVED, note="by hand")
    assert list(CommitLog(files).after(0)) == [
        Commit(1, "WRITE", {"nonce": "n"}, {"onceway/x": 9}, True),
        Commit(2, "OPTIMIZE", {}, {}, False),
    ]
    assert list(CommitLog(files).after(2)) == []


@pytest.mark.parametrize("note", ["", "[]", "{", '{"onceway": 5}', '{"other": {}}', "null"])
def test_user_metadata_of_others_is_no_note_of_ours(note: str) -> None:
    files = Files({f"{1:020d}.json": commit_file("WRITE", ADDED, note=note)})
    assert [commit.note for commit in CommitLog(files).after(0)] == [{}]


def test_a_log_that_was_cleaned_is_not_an_unchanged_table() -> None:
    files = Files(
        {f"{90:020d}.json": commit_file("WRITE", ADDED), "_last_checkpoint": b'{"version":80}'}
    )
    with pytest.raises(HistoryGone):
        list(CommitLog(files).after(7))
    assert list(CommitLog(files).after(90)) == []


def commit_info(**info: object) -> dict[str, object]:
    return {"commitInfo": info}


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        (
            [
                commit_info(userMetadata='{"onceway":{"nonce":"0","actions":2}}'),
                ADDED,
                {"txn": {"appId": "a", "version": 1}},
            ],
            5,
        ),
        (
            [
                commit_info(operationMetrics={"numAddedFiles": "1", "numRemovedFiles": "2"}),
                MOVED,
                {"remove": {}},
                {"remove": {}},
            ],
            5,
        ),
        (
            [
                commit_info(
                    operationMetrics={"numTargetFilesAdded": "1", "numTargetChangeFilesAdded": "1"}
                ),
                ADDED,
                {"cdc": {}},
            ],
            5,
        ),
        ([commit_info(operationMetrics={}), {"metaData": {}}, {"protocol": {}}], 0),
    ],
)
def test_a_commit_that_is_cut_at_the_end_of_a_line_is_not_whole(
    lines: list[dict[str, object]], version: int
) -> None:
    text = [f"{json.dumps(line)}\n".encode() for line in lines]
    assert is_whole(b"".join(text), version)
    for count in range(len(text)):
        assert not is_whole(b"".join(text[:count]), version)


@pytest.mark.parametrize(
    "info",
    [{"operation": "VACUUM END"}, {"operationMetrics": {"numFiles": "2"}}, {"userMetadata": "[]"}],
)
def test_a_commit_that_does_not_say_how_long_it_is_is_whole_when_its_lines_are(
    info: dict[str, object],
) -> None:
    text = json.dumps(commit_info(**info)).encode()
    assert is_whole(text, 5)
    assert not is_whole(text[:-1], 5)


def some_ranges() -> SeenRanges:
    ranges = SeenRanges()
    keys = [("dev", 7), ("dev", 7), ("größe", -1)]
    ranges.add(Ranges(keys, np.array([1, 9, 2**63 - 2]), np.array([4, 9, 2**63 - 1])))
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


def test_no_snapshot() -> None:
    assert snapshot.load(Files(), "id") is None


def test_a_snapshot_that_cannot_be_written_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    class Full(Files):
        def write(self, name: str, data: bytes) -> None:
            raise OSError("No space left on device")

    snapshot.save(Full(), Snapshot(some_ranges(), 3, "id"))
    assert "No space left on device" in caplog.text


HOLD = (
    "import sys\nfrom gateway.ingest.lease import lease\nwith lease(sys.argv[1]):\n   "
    " print('held', flush=True)\n    sys.stdin.read()\n"
)


def test_the_second_process_waits_and_says_who_holds_the_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = f"file:{tmp_path}/a table #1? 100%41"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, table], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"

        class EndsTheOther(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                other.kill()  # a dead process holds nothing

        handler = EndsTheOther()
        logging.getLogger("onceway.ingest").addHandler(handler)
        try:
            with lease(table):
                assert f"process {other.pid} on " in caplog.text
        finally:
            logging.getLogger("onceway.ingest").removeHandler(handler)
    assert lock_file(table) == tmp_path / ".a table #1? 100%41.lease"


def test_tables_elsewhere_need_no_lease() -> None:
    assert lock_file("s3a://lake/publications") is None
