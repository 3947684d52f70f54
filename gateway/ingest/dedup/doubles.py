"""Counts of duplicates by device, stored in the commit that left the duplicates out.

In: the counts of a micro-batch. Out: a part of the commit's note, with the MOST largest counts; and
the counts from the notes of earlier commits. The table `…_quality` is made from these counts
(`summary/quality.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Any

from gateway.ingest.dedup.ranges import Key
from gateway.ingest.delta.commits import Commit

MOST = 10_000
"""Largest number of pairs of device and incarnation in one note, which every reader of the log must
read. If there are more pairs, those with the fewest duplicates are left out.
"""

DOUBLES = "doubles"
"""Key in a commit's note. Its value is {"day": date in UTC, "of": [[device, incarnation, rows],
…]}. rows: number of duplicates.
"""


def note(counts: Counter[Key]) -> dict[str, Any]:
    if not counts:
        return {}
    found = [[*key, rows] for key, rows in counts.most_common(MOST)]
    return {DOUBLES: {"day": datetime.now(UTC).date().isoformat(), "of": found}}


def counted(commits: Iterable[Commit]) -> Iterator[tuple[str, int, date, int]]:
    """Yield (device, incarnation, day, number of duplicates) from the notes of commits."""
    for commit in commits:
        doubles = commit.note.get(DOUBLES, {})
        for device, incarnation, rows in doubles.get("of", ()):
            yield device, incarnation, date.fromisoformat(doubles["day"]), rows
