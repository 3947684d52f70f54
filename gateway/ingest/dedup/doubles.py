"""Number of duplicates of each device, stored in the commit that left them out.

In: counts by device, of which the largest are kept. Out: a part of the commit's
note, and the counts from the notes of commits. The counts feed the table `…_quality`
(`summary/quality.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Any

from gateway.ingest.dedup.ranges import Key
from gateway.ingest.delta.commits import Commit

MOST = 10_000
"""Largest number of devices that one commit names: those with the most duplicates. The bound exists
because every reader of the log reads this note.
"""

DOUBLES = "doubles"
"""Key in the note: {"day": UTC, "of": [[device, incarnation, rows], …]}."""


def note(counts: Counter[Key]) -> dict[str, Any]:
    if not counts:
        return {}
    found = [[*key, rows] for key, rows in counts.most_common(MOST)]
    return {DOUBLES: {"day": datetime.now(UTC).date().isoformat(), "of": found}}


def counted(commits: Iterable[Commit]) -> Iterator[tuple[str, int, date, int]]:
    """Yield (device, incarnation, day, rows) from the notes of commits."""
    for commit in commits:
        doubles = commit.note.get(DOUBLES, {})
        for device, incarnation, rows in doubles.get("of", ()):
            yield device, incarnation, date.fromisoformat(doubles["day"]), rows
