"""The file DATA/bridges/NAME.json with the pair of sessions of a bridge, one at each broker.

A packet identifier is valid only within one pair of sessions. If one session of the pair is lost or
replaced, or our store has a new generation (`gateway/store/generation.py`), old identifiers are
dangerous: a new message with such an identifier would count as a duplicate. So the client
identifier at the other broker contains a random word. In each of these cases a new word is drawn,
and is written to disk before the new session begins.
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
AGREED = ".agreed"
"""Suffix of the file with the agreements about retained messages (`agreed.py`)."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of sessions of one bridge, at our broker and at the other one. word: part of the
    client identifier at the other broker. joined: whether the session at the other broker exists,
    and our session has forgotten the packet identifiers of earlier sessions. down: the filters that
    the session at the other broker may be subscribed to. mark: the random part of the bridge's mark
    (`translate.py`), the same for every pair; empty in files of older releases.
    """

    word: str
    joined: bool
    down: tuple[str, ...] = ()
    mark: str = ""


class Pairing:
    """The file with the session pair of one bridge. Methods that write raise OncewayError if the
    disk refuses.
    """

    def __init__(self, data: Path, name: str) -> None:
        self._path = data / FOLDER / f"{name}.json"

    def read(self) -> Pair | None:
        """Return the pair, or None if the file does not exist or is unreadable."""
        try:
            fields = json.loads(self._path.read_bytes())
            down, mark = tuple(map(str, fields["down"])), str(fields.get("mark", ""))
            return Pair(str(fields["word"]), fields["joined"] is True, down, mark)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def draw(self) -> Pair:
        """Choose a new random word, so that the present session at the other broker is not used any
        more. Return the new pair.
        """
        pair = self.read()
        mark = "" if pair is None else pair.mark
        return self._keep(Pair(secrets.token_hex(4), False, mark=mark or secrets.token_hex(4)))

    def identify(self, pair: Pair) -> Pair:
        """Return the pair with the random part of the bridge's mark. If the file of an older
        release has none, generate and store it.
        """
        return pair if pair.mark else self._keep(replace(pair, mark=secrets.token_hex(4)))

    def join(self, pair: Pair) -> Pair:
        """Note that the session at the other broker exists, and that our session no longer has
        packet identifiers of an earlier session there. Return the changed pair.
        """
        return self._keep(replace(pair, joined=True))

    def subscribe(self, pair: Pair, down: tuple[str, ...]) -> Pair:
        """Note all filters to which the session at the other broker is possibly subscribed. Return
        the changed pair.
        """
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
                f"the state of the bridge cannot be written ({error.strerror})", str(self._path)
            ) from error
        return pair


def forget(data: Path, keep: frozenset[str] = frozenset()) -> None:
    """Remove the files of bridges that are not in `keep`. Raises OSError."""
    folder = data / FOLDER
    if folder.is_dir():
        for path in (*folder.glob("*.json"), *folder.glob(f"*{AGREED}*")):
            if path.name.partition(".")[0] not in keep:
                path.unlink(missing_ok=True)
        sync(folder)
