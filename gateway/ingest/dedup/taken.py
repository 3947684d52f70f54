"""Progress of each feed, stored in the table's own commits.

In: the commit log of `publications`. Out: `{"GATEWAY/EPOCH": number of the last ingested batch}`,
as of the newest version in the log.

The note in a commit has the progress of the feeds that the commit advanced (`feeds`). In some
commits it has the progress of all feeds (`all`). So a start reads only a few commits back, and the
progress survives the deletion of old commits. The progress always fits the table's version: after
RESTORE, each feed has its progress in the restored version. A recreated table has no progress.
"""

from collections.abc import Callable
from typing import Any

from gateway.ingest.delta.commits import APPENDED, BASED_ON, REWRITING, Commit, CommitLog

Feeds = dict[str, int]

MOVED, ALL = "feeds", "all"
"""Keys of a commit's note. `MOVED` has the progress of feeds. `ALL` is true if these are all feeds.
"""

WHOLE_EVERY = 50
"""Number of commits between two notes with all feeds. A start reads at most this many commits back,
far fewer than a log keeps.
"""


class Taken:
    """The progress of the ingest in each feed. feeds: number of the last batch of each feed that is
    in version `covers` of the table.
    """

    def __init__(self, commits: CommitLog, from_rows: Callable[[int], Feeds]) -> None:
        """Create empty progress. from_rows: a function that computes the progress from the rows of
        a table version. This function is called if a commit has no note, or was deleted from the
        log.
        """
        self._commits = commits
        self._from_rows = from_rows
        self.feeds: Feeds = {}
        self.covers = -1
        self._all_at = -1

    def load(self, head: int) -> None:
        """Read the progress in version `head` from the notes of this version and of earlier ones.
        Where a note is missing, compute the progress from the rows of the table.
        """
        self.feeds, self.covers, self._all_at = {}, head, -1
        version = head
        while version >= 0:
            commit = self._commits.read(version)
            if commit is not None and commit.restored is not None:
                version = commit.restored
                continue
            if commit is None or commit.operation == "RESTORE" or _lacks_note(commit):
                self._add(self._from_rows(version))
                return
            if commit.operation in REWRITING:
                return  # another table, which may hold only part of a batch
            if self._is_overtaken(commit):
                version -= 1
                continue
            self._add(commit.note.get(MOVED, {}))
            if commit.note.get(ALL):
                self._all_at = version
                return
            version -= 1

    def catch_up(self, head: int) -> None:
        """Read the notes of the commits after version `covers`, up to version `head`. If one of
        them has rewritten the table, or was deleted from the log, call `load` instead.
        """
        for version in range(self.covers + 1, head + 1):
            commit = self._commits.read(version)
            if commit is None or commit.operation in REWRITING:
                self.load(head)
                return
            self.landed(commit.note, version)

    def _is_overtaken(self, commit: Commit) -> bool:
        """Whether another writer may have rewritten the table between this commit and the version
        on which the commit is based, unnoticed by the commit's writer (`delta/public.py`). The
        commit's note then describes the earlier table.
        """
        based_on = commit.note.get(BASED_ON)
        if based_on is None:
            return False
        between = map(self._commits.read, range(based_on + 1, commit.version))
        return any(one is None or one.operation in REWRITING for one in between)

    def ahead(self, feeds: Feeds) -> Feeds:
        """Return the entries of `feeds` whose batch number is higher than the table's number for
        the feed.
        """
        return {feed: number for feed, number in feeds.items() if number > self.feeds.get(feed, 0)}

    def note(self, feeds: Feeds) -> dict[str, Any]:
        """Return the note for the next commit. feeds: the number of the newest batch of each feed
        that this commit advances.
        """
        if 0 <= self._all_at > self.covers - WHOLE_EVERY:
            return {MOVED: feeds}
        return {MOVED: self.feeds | feeds, ALL: True}

    @property
    def due(self) -> bool:
        """Whether the next commit should list all feeds."""
        return bool(self.feeds) and ALL in self.note({})

    def landed(self, note: dict[str, Any], version: int) -> None:
        """Read the note of a commit that is in the table as version `version`. If other commits are
        between version `covers` and this one, nothing changes: `catch_up` reads all of them later.
        """
        if version != self.covers + 1:
            return
        self._add(note.get(MOVED, {}))
        self.covers = version
        if note.get(ALL):
            self._all_at = version

    def _add(self, feeds: Feeds) -> None:
        for feed, number in feeds.items():
            self.feeds[feed] = max(number, self.feeds.get(feed, 0))


def _lacks_note(commit: Commit) -> bool:
    """Whether a commit is an append of an older version of Onceway, which stored no progress."""
    return APPENDED in commit.note and MOVED not in commit.note
