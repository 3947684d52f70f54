"""How far a soak has come, on disk: `build/soak/link-DEVICE.json`. In: finished schedules. Out:
where the next run goes on.

A run counts only for the code that it ran: when a source of the link or of its tests changes, the
soak starts again.
"""

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "soak"
_SOURCES = ("gateway/links/*.py", "firmware/src/*.[ch]", "tests/links/*.[chp]*")


def fingerprint() -> str:
    """Of everything that a schedule's outcome depends on."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _SOURCES for path in ROOT.glob(pattern)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@dataclass
class Progress:
    """done: schedules 0…done-1 have run. reached: what they reached, summed. seconds: that they
    took.
    """

    path: Path
    sources: str
    done: int = 0
    seconds: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)

    @classmethod
    def load(cls, device: str) -> "Progress":
        """Where the last run of the same sources has stopped, or the beginning."""
        path, sources = FOLDER / f"link-{device}.json", fingerprint()
        try:
            saved = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(path, sources)
        if saved["sources"] != sources:
            return cls(path, sources)
        return cls(path, sources, saved["done"], saved["seconds"], Counter(saved["reached"]))

    def save(self) -> None:
        """Write it, whole or not at all."""
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
