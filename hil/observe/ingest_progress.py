"""The ingest's progress, seen from outside: Spark's checkpoint and the Delta log, both folders of
small files. In: the two folders. Out: micro-batches begun and ended, number of appends to the
table. A micro-batch has begun when `offsets/N` exists and has ended when
`commits/N` does (Structured Streaming's checkpoint format).
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any


class IngestProgress:
    def __init__(self, checkpoint: Path, table: Path) -> None:
        self._checkpoint = checkpoint
        self._table = table
        self._versions: dict[str, int] = {}

    @property
    def started(self) -> bool:
        """Whether the ingest has created its table."""
        return (self._table / "_delta_log").exists()

    @property
    def begun(self) -> int:
        """Return the number of the newest micro-batch that has begun, or -1."""
        return self._newest("offsets")

    @property
    def ended(self) -> int:
        return self._newest("commits")

    @property
    def in_batch(self) -> bool:
        return self.begun > self.ended

    @property
    def appends(self) -> int:
        """Return the number of the table's commits that add a file."""
        for path in (self._table / "_delta_log").glob("*.json"):
            if not self._versions.get(path.name):  # a power cut may replace a commit
                self._versions[path.name] = '"add":' in path.read_text()
        return sum(self._versions.values())

    def batches(self) -> dict[str, int]:
        """Return, for each feed, the number of the last batch in the micro-batches that have ended.
        Empty if none has ended, or if the newest one's file is incomplete after a power cut.
        """
        with suppress(OSError, ValueError, IndexError):
            lines = (self._checkpoint / "offsets" / str(self.ended)).read_text().splitlines()
            offset: Any = json.loads(lines[-1])
            return {str(feed): int(number) for feed, number in offset.items()}
        return {}

    def _newest(self, kind: str) -> int:
        return max(
            (
                int(path.name)
                for path in (self._checkpoint / kind).glob("[0-9]*")
                if path.name.isdigit()
            ),
            default=-1,
        )
