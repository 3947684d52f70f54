"""Progress of a soak, on disk: `build/soak/NAME.json`.

In: finished schedules. Out: where the next run continues. Finished schedules count only for the
code that they ran: if one of its sources changes, the soak starts again.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "soak"


def fingerprint(sources: Iterable[str]) -> str:
    """Return a digest of all sources that decide a schedule's result. sources: glob patterns, from
    the root of the tree.
    """
    digest = hashlib.sha256()
    for path in sorted(path for pattern in sources for path in ROOT.glob(pattern)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@dataclass
class Progress:
    """Progress of a long run of schedules. done: number of finished schedules, from schedule 0 on.
    reached: counts of their events. seconds: duration of these schedules.
    """

    path: Path
    sources: str
    done: int = 0
    seconds: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)

    @classmethod
    def load(cls, name: str, sources: Iterable[str]) -> "Progress":
        """Return the progress of the last run of the same sources, or that of a new run."""
        path, digest = FOLDER / f"{name}.json", fingerprint(sources)
        try:
            saved = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(path, digest)
        if saved["sources"] != digest:
            return cls(path, digest)
        return cls(path, digest, saved["done"], saved["seconds"], Counter(saved["reached"]))

    def save(self) -> None:
        """Write the file. A kill leaves either the old or the new content."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(
            json.dumps(
                {
                    "sources": self.sources,
                    "done": self.done,
                    "seconds": self.seconds,
                    "reached": self.reached,
                }
            )
        )
        os.replace(new, self.path)
