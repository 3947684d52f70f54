"""The commit log of a Delta table, read as the Delta protocol lays it down: one JSON file per
version, one action per line.

In: a table's location. Out: the commits after a version. `DESCRIBE HISTORY` says the same and costs
a Spark job each time.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.errors import OncewayError
from gateway.ingest.delta.storage import Readable

APPLICATION = "onceway"
"""The key of what is ours in a commit's user metadata."""

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
"""Operations after which the table is another one: rows that were in it may be wanted again."""

APPENDED = "micro_batch"
"""The key in our note that says which micro-batch of the stream a commit holds."""

BASED_ON = "based_on"
"""The key in our note that says on which version its rows are based, where others may have got in
between.
"""

NONCE = "nonce"
"""The key in our note for a random number: no two commits have the same."""

GONE = "-"
"""In a mark: that version was not there any more when it was asked for."""

ACTIONS = "actions"
"""The key in our note that says how many actions follow the commit info."""

LOOK_BACK = 100
"""Commits that are looked through for the last one of ours."""

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
"""Where Delta's commands say, in the commit info, how many actions of a kind there are: the sum of
these. A new deletion vector is an `add` of a file that was there. `numFiles` of a `WRITE` may be
more.
"""

_REPLACES = frozenset({"DELETE", "UPDATE", "MERGE"})
"""Operations that remove what they add with a deletion vector."""


class HistoryGone(OncewayError):
    """The log does not reach back to the version that was asked for."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a table follows another one. covers: that one's version; mark: of its log there
    (`CommitLog.mark`).
    """

    covers: int
    mark: str

    @classmethod
    def of(cls, covers: int, mark: str | None) -> "Progress":
        """mark: None where an older version of Onceway has not noted it."""
        return cls(covers, mark or f"{covers} ")


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of the table.

    operation: as Delta names it (`WRITE`, `OPTIMIZE`, `RESTORE`, …). note: our user metadata, {}
    when the commit is not ours. progress: versions by application id that the commit stores (`txn`
    actions). changes_data: whether rows came or went. restored: the version that a RESTORE brought
    back, when it says it. removes_rows: whether any went, or are others now.
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
        """folder: the table's `_delta_log`."""
        self.folder = folder

    def read(self, version: int) -> Commit | None:
        """One commit; None when it is not there or no longer."""
        text = self.folder.read(f"{version:020d}.json")
        return None if text is None else parse(text, version)

    def head(self) -> int | None:
        """The newest version, by a listing; None when there is none."""
        names = (name.removesuffix(".json") for name in self.folder.names())
        return max(
            (int(name) for name in names if len(name) == 20 and name.isdecimal()), default=None
        )

    def mark(self, version: int) -> str:
        """The newest commit of ours up to `version`, by its number and its nonce. A copy of the
        table that went another way has another one there.
        """
        for number in range(version, max(-1, version - LOOK_BACK), -1):
            commit = self.read(number)
            if commit is None:
                return f"{number} {GONE}" if number == version else f"{version} "
            if mark := mark_of(commit):
                return mark
        return f"{version} "

    def holds(self, mark: str) -> bool:
        """Whether that commit is one of this log. If its file was cleaned away, nobody knows, and
        it counts as one.
        """
        number, _, nonce = mark.partition(" ")
        commit = self.read(int(number))
        if commit is None:
            head = self.head()
            return nonce != GONE and head is not None and head >= int(number)
        return nonce in ("", commit.note.get(NONCE))

    def after(self, version: int) -> Iterator[Commit]:
        """Every commit above `version`, oldest first. Raises HistoryGone when the log was cleaned
        beyond `version`.
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
    """ "" when it is not ours."""
    nonce = commit.note.get(NONCE)
    return f"{commit.version} {nonce}" if nonce else ""


def stored(log: CommitLog, application: str, head: int) -> Progress | None:
    """What the commits up to `head` store under an application id. None when that is nothing, or
    when the table was replaced since: a table that was set back holds what it held then.

    Raises HistoryGone when the log, or the last LOOK_BACK commits, do not tell.
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
    raise HistoryGone(f"versions up to {head} do not say how far the table is", application)


def parse(text: bytes, version: int) -> Commit:
    """The lines of a commit file → what matters here."""
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
    """The version that a RESTORE brought back, by its commit info. Delta writes it as text, and
    null when a time was asked for.
    """
    version = str((info.get("operationParameters") or {}).get("version"))
    return int(version) if info.get("operation") == "RESTORE" and version.isdecimal() else None


def our_note(text: str | None) -> dict[str, Any]:
    """What is ours in a commit's user metadata; {} when there is nothing."""
    try:
        note = json.loads(text or "{}")
        found = note.get(APPLICATION, {})
    except (ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def is_whole(text: bytes, version: int) -> bool:
    """Whether a commit was written to its end. The commit info comes first and says how much
    follows: ours in its note, those of Delta's commands in their metrics. One that says nothing
    (`VACUUM`, `SET TBLPROPERTIES`, other programs) is whole when each of its lines is. Without the
    `remove` beside it, a file that has a new deletion vector would stand in the table twice.
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
