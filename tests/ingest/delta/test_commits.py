"""The commit log of a table: what the ingest reads of it, and damaged commits."""

import json

import pytest

from gateway.ingest.delta.commits import Commit, CommitLog, HistoryGone, is_whole
from tests.ingest.files import Files


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
