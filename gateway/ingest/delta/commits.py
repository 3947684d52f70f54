"""The commit log of a Delta table, read as in the Delta protocol: one JSON file per version, one
action per line.

In: a table's location. Out: the commits after a version. `DESCRIBE HISTORY` gives the same, but
each call is a Spark job.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.errors import OncewayError
from gateway.ingest.delta.storage import Readable

APPLICATION = "onceway"
"""Key in a commit's user metadata. Its value is Onceway's note, a dictionary."""

REWRITING = frozenset(
    {
        "RESTORE",
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "CLONE",
    }
)
"""Operations that replace the table's contents. After one of them, the ingest may have to add rows
again.
"""

APPENDED = "micro_batch"
"""Key in a commit's note: number of the stream's micro-batch that the commit appended."""

BASED_ON = "based_on"
"""Key in a commit's note: version of the table from which the commit's rows were computed. Other
commits may lie between this version and the commit.
"""

NONCE = "nonce"
"""Key in a commit's note: a random number, unique per commit."""

GONE = "-"
"""Second part of a mark (`CommitLog.mark`) if the version no longer existed when the mark
was made.
"""

ACTIONS = "actions"
"""Key in a commit's note: the number of actions that follow the commit info."""

LOOK_BACK = 100
"""Largest number of commits that are searched for the newest commit of the ingest."""

_METRICS = {
    "add": (
        "numAddedFiles",
        "numTargetFilesAdded",
        "numDeletionVectorsAdded",
        "numTargetDeletionVectorsAdded",
    ),
    "remove": ("numRemovedFiles", "numTargetFilesRemoved"),
    "cdc": ("numAddedChangeFiles", "numTargetChangeFilesAdded"),
}
"""Fields of the commit info in which Delta's commands give the number of actions of each kind. The
fields of one kind are added up. A new deletion vector is an `add` of an existing file. `numFiles`
of a `WRITE` is not used, because it may be larger than the number of actions.
"""

_REPLACES = frozenset({"DELETE", "UPDATE", "MERGE"})
"""Operations that give a file a deletion vector by two actions: `remove` of the file, and `add` of
the same file with the vector.
"""


class HistoryGone(OncewayError):
    """Error: the log no longer has the commit of a version."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a table that is made from another table. covers: version of the other table.
    mark: mark of that table's log at this version (`CommitLog.mark`).
    """

    covers: int
    mark: str

    @classmethod
    def of(cls, covers: int, mark: str | None) -> "Progress":
        """Return a progress. mark: None if an older version of Onceway stored none;
        `CommitLog.holds` then compares no nonce.
        """
        return cls(covers, mark or f"{covers} ")


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of the table.

    operation: as Delta names it (`WRITE`, `OPTIMIZE`, `RESTORE`, …). note: Onceway's note in the
    user metadata, {} if the commit is not from the ingest. progress: version stored under each
    application id (`txn` actions). changes_data: whether rows were added or removed. restored: the
    version that a RESTORE brought back, if known. removes_rows: whether any rows were removed or
    changed.
    """

    version: int
    operation: str
    note: dict[str, Any]
    progress: dict[str, int]
    changes_data: bool
    restored: int | None = None
    removes_rows: bool = False


class CommitLog:
    def __init__(self, folder: Readable) -> None:
        """Create a reader of a log. folder: the table's `_delta_log`."""
        self.folder = folder

    def read(self, version: int) -> Commit | None:
        """Return one commit. None if it does not exist, or was deleted from the log."""
        text = self.folder.read(f"{version:020d}.json")
        return None if text is None else parse(text, version)

    def head(self) -> int | None:
        """Return the newest version in the log's folder. None if there is no commit."""
        names = (name.removesuffix(".json") for name in self.folder.names())
        return max(
            (int(name) for name in names if len(name) == 20 and name.isdecimal()), default=None
        )

    def mark(self, version: int) -> str:
        """Return a mark, which identifies the log up to `version`: number and nonce of the newest
        commit by the ingest, up to this version. A copy of the table with another history has
        another mark. If no recent commit has a nonce, the mark has `version` and no nonce. If the
        file of `version` was deleted, GONE stands for the nonce.
        """
        for number in range(version, max(-1, version - LOOK_BACK), -1):
            commit = self.read(number)
            if commit is None:
                return f"{number} {GONE}" if number == version else f"{version} "
            if mark := mark_of(commit):
                return mark
        return f"{version} "

    def holds(self, mark: str) -> bool:
        """Whether this log contains the commit that a mark names. If a cleanup has deleted the
        commit's file since then, or the mark has no nonce, nothing can be compared, and the result
        is true. For a mark with GONE, it is false.
        """
        number, _, nonce = mark.partition(" ")
        commit = self.read(int(number))
        if commit is None:
            head = self.head()
            return nonce != GONE and head is not None and head >= int(number)
        return nonce in ("", commit.note.get(NONCE))

    def after(self, version: int) -> Iterator[Commit]:
        """Yield every commit above `version`, oldest first. Raises HistoryGone if the next commit
        was deleted from the log.
        """
        number = version + 1
        while (commit := self.read(number)) is not None:
            yield commit
            number += 1
        if (
            number == version + 1
            and (checkpoint := self.folder.read("_last_checkpoint"))
            and json.loads(checkpoint)["version"] > version
        ):
            raise HistoryGone(f"version {number} is no longer in the log", str(self.folder))


def mark_of(commit: Commit) -> str:
    """Return the mark of a commit (`CommitLog.mark`); "" if the commit is not from the ingest."""
    nonce = commit.note.get(NONCE)
    return f"{commit.version} {nonce}" if nonce else ""


def stored(log: CommitLog, application: str, head: int) -> Progress | None:
    """Return the newest progress that a commit up to `head` stores under an application id. After a
    RESTORE, the commits of the restored version count. None if there is no such progress, or if the
    table was replaced after the progress was stored.

    Raises HistoryGone if the last LOOK_BACK commits are not enough to decide, for example because
    older commits were deleted from the log.
    """
    version, was_set_back = head, False
    for _ in range(LOOK_BACK):
        commit = log.read(version) if version >= 0 else None
        if commit is None:
            break
        mark = commit.note.get("mark")
        if application in commit.progress:
            return Progress.of(commit.progress[application], mark)
        if commit.note.get("of") == application:
            return Progress.of(int(commit.note["publications"]), mark)
        if commit.restored is not None:
            version, was_set_back = commit.restored, True
        elif version == 0 or commit.operation in REWRITING:
            return None
        else:
            version -= 1
    if was_set_back or head < 0:
        return None
    raise HistoryGone(f"no version up to {head} records which batches the table has", application)


def parse(text: bytes, version: int) -> Commit:
    operation, changes_data, removes_rows, restored = "", False, False, None
    note: dict[str, Any] = {}
    progress: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith((b'{"add"', b'{"remove"', b'{"cdc"')):
            changes = b'"dataChange":true' in line or line.startswith(b'{"cdc"')
            changes_data = changes_data or changes
            removes_rows = removes_rows or (changes and line.startswith(b'{"remove"'))
            continue
        action = json.loads(line)
        if info := action.get("commitInfo"):
            operation = info.get("operation", "")
            note = our_note(info.get("userMetadata"))
            restored = restored_version(info)
        elif txn := action.get("txn"):
            progress[txn["appId"]] = txn["version"]
    return Commit(version, operation, note, progress, changes_data, restored, removes_rows)


def restored_version(info: dict[str, Any]) -> int | None:
    """Return the version that a RESTORE brought back, from its commit info. None for another
    operation, or if the user gave a time instead of a version.
    """
    version = str((info.get("operationParameters") or {}).get("version"))
    return int(version) if info.get("operation") == "RESTORE" and version.isdecimal() else None


def our_note(text: str | None) -> dict[str, Any]:
    """Return Onceway's note in a commit's user metadata; {} if there is none."""
    try:
        note = json.loads(text or "{}")
        found = note.get(APPLICATION, {})
    except (ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def is_whole(text: bytes, version: int) -> bool:
    """Whether the file of a commit was written completely.

    The commit info comes first and contains the number of actions: in the note of the ingest's
    commits, in the metrics of Delta's commands. Some commits have no such number (`VACUUM`, `SET
    TBLPROPERTIES`, other programs); they count as complete if each line is complete. If a commit
    adds a file again with a new deletion vector, the commit must also remove the earlier entry of
    the file; otherwise the file would be in the table twice.
    """
    try:
        actions = [json.loads(line) for line in text.splitlines()]
        kinds = Counter(kind for action in actions for kind in action)
        info = actions[0].get("commitInfo", {})
    except (ValueError, AttributeError, TypeError, IndexError):
        return False
    if version == 0 and not {"metaData", "protocol"} <= kinds.keys():
        return False
    metrics = info.get("operationMetrics") or {}
    expected = {
        kind: sum(int(metrics[name]) for name in names if name in metrics)
        for kind, names in _METRICS.items()
    }
    replaced = {one["add"]["path"] for one in actions if one.get("add", {}).get("deletionVector")}
    removed = {one["remove"].get("path") for one in actions if "remove" in one}
    return (
        len(actions) > our_note(info.get("userMetadata")).get(ACTIONS, 0)
        and all(kinds[kind] >= count for kind, count in expected.items())
        and not (info.get("operation") in _REPLACES and replaced - removed)
    )
