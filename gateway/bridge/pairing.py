"""Which session of the other broker belongs to which of ours: the file DATA/bridges/NAME.json.

Packet identifiers mean something only between two sessions that belong together. When ours has
ended, or has another life (`gateway/store/lives.py`), or the other broker has lost its own, an
identifier that one side still keeps would swallow a new message. So the client identifier at the
other broker holds a word. A new one is drawn then, and is on the disk before the new session may
begin.
"""

import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gateway.errors import OncewayError
from gateway.store.schema import make_folder
from gateway.system.sync import sync

FOLDER = "bridges"


@dataclass(frozen=True, slots=True)
class Pair:
    """word: in the client identifier at the other broker. joined: its session is there, and the
    identifiers that ours has received are its. down: what it may be subscribed to.
    """

    word: str
    joined: bool
    down: tuple[str, ...] = ()


class Pairing:
    """The file of one bridge. Raises OncewayError when the disk takes it not."""

    def __init__(self, data: Path, name: str) -> None:
        self._path = data / FOLDER / f"{name}.json"

    def read(self) -> Pair | None:
        """None when there is none, or none that can be read."""
        try:
            held = json.loads(self._path.read_bytes())
            return Pair(str(held["word"]), held["joined"] is True, tuple(map(str, held["down"])))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def draw(self) -> Pair:
        """A new word: what the other broker knows of us counts no more."""
        return self._keep(Pair(secrets.token_hex(4), False))

    def join(self, pair: Pair) -> Pair:
        """Its session is there, and ours has forgotten what it received before."""
        return self._keep(replace(pair, joined=True))

    def subscribe(self, pair: Pair, down: tuple[str, ...]) -> Pair:
        """It may be subscribed to these, and to nothing else."""
        return pair if pair.down == down else self._keep(replace(pair, down=down))

    def _keep(self, pair: Pair) -> Pair:
        make_folder(self._path.parent)
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(asdict(pair)), encoding="ascii")
            sync(new)
            os.replace(new, self._path)
            sync(self._path.parent)
        except OSError as error:
            raise OncewayError(
                f"the disk does not take it ({error.strerror})", str(self._path)
            ) from error
        return pair


def forget(data: Path, keep: frozenset[str] = frozenset()) -> None:
    """Remove the files of bridges that are not among `keep`. Raises OSError."""
    folder = data / FOLDER
    if folder.is_dir():
        for path in folder.glob("*.json"):
            if path.stem not in keep:
                path.unlink(missing_ok=True)
        sync(folder)
