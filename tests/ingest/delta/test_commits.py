"""The commit log of a table: what the ingest reads of it, and damaged commits."""

import json

import pytest

from gateway.ingest.delta.commits import (
    LOOK_BACK,
    Commit,
    CommitLog,
    HistoryGone,
    Progress,
    is_whole,
    stored,
)
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


def log(*commits: bytes | None) -> CommitLog:
    """Return a log with these commits, beginning with version 0. None: the file was deleted."""
    files = {f"{version:020d}.json": text for version, text in enumerate(commits) if text}
    return CommitLog(Files(files))


def by_us(nonce: str) -> bytes:
    return commit_file("WRITE", ADDED, note=json.dumps({"onceway": {"nonce": nonce}}))


OTHER = commit_file("OPTIMIZE", MOVED)


def test_mark_names_the_newest_commit_of_the_ingest_and_a_copy_does_not_hold_it() -> None:
    made = log(OTHER, by_us("a"), OTHER, by_us("b"), OTHER)
    assert [made.mark(version) for version in range(5)] == ["0 ", "1 a", "1 a", "3 b", "3 b"]
    assert all(made.holds(made.mark(version)) for version in range(5))
    assert not log(OTHER, by_us("a"), OTHER, by_us("another"), OTHER).holds("3 b")
    assert not log(OTHER, by_us("a")).holds("3 b")


def test_mark_of_a_log_that_was_cleaned() -> None:
    """A version whose file was deleted cannot be told from that of another table. If only earlier
    files were deleted, the mark has no nonce.
    """
    made = log(None, None, OTHER, OTHER)
    assert [made.mark(1), made.mark(3)] == ["1 -", "3 "]
    assert not made.holds("1 -")
    assert made.holds("3 ")
    assert made.holds("1 a")
    full = log(by_us("a"), *[OTHER] * LOOK_BACK)
    assert [full.mark(LOOK_BACK - 1), full.mark(LOOK_BACK)] == ["0 a", f"{LOOK_BACK} "]


def progress(covers: int) -> bytes:
    return commit_file("WRITE", {"txn": {"appId": "readings", "version": covers}})


def restored(version: int) -> bytes:
    info = {"operation": "RESTORE", "operationParameters": {"version": str(version)}}
    return json.dumps({"commitInfo": info}).encode()


NOTE = commit_file(
    "WRITE", note='{"onceway": {"of": "readings", "publications": 6, "mark": "6 n"}}'
)
REPLACED = commit_file("CREATE OR REPLACE TABLE AS SELECT", ADDED)


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([], None),
        ([OTHER, OTHER], None),
        ([OTHER, progress(4), OTHER], Progress(4, "4 ")),
        ([OTHER, progress(4), NOTE], Progress(6, "6 n")),
        ([progress(4), progress(5), restored(0), OTHER], Progress(4, "4 ")),
        ([OTHER, progress(5), restored(0)], None),
        ([OTHER, progress(5), REPLACED, OTHER], None),
        ([None, None, restored(1), OTHER], None),
    ],
)
def test_stored_progress_is_that_of_the_table_s_own_past(
    commits: list[bytes | None], expected: Progress | None
) -> None:
    assert stored(log(*commits), "readings", len(commits) - 1) == expected


@pytest.mark.parametrize("commits", [[progress(4), None, OTHER], [progress(4), *[OTHER] * 100]])
def test_progress_beyond_the_log_is_unknown_and_not_none(commits: list[bytes | None]) -> None:
    with pytest.raises(HistoryGone, match="readings: no version up to"):
        stored(log(*commits), "readings", len(commits) - 1)
