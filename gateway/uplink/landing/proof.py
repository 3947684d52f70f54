"""A proof of how a place made of files refuses a second file of one name: the way is tried.

In: the primitives of a place, and a folder for the proof's own files. Out: the first of the place's
ways that holds. A way holds if the operation works on a free name, fails on a taken one, and leaves
there what stood there. What looks first and writes later is found out, as far as one connection can
find it out: both tries begin before one of them ends (`make_files`).
"""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from gateway.uplink.landing.base import NotExclusive, Way

CLAIMS = (
    ".claims"  # a folder beside the final names, for claims and proofs; older versions leave it
)
_DAY_S = 86_400
_PROOF = "proof-"


class Files(ABC):
    """The operations of a place on its files. Paths are relative to the landing URL. Each operation
    raises what the place raises.

    url: for errors. ways: those that the place may have, best first.
    """

    url: str
    ways: tuple[Way, ...]

    @abstractmethod
    def get(self, path: str) -> bytes | None:
        """The bytes of a file; None when there is none."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write a file and sync it. Make the folders above it if they are missing."""

    @abstractmethod
    def move(self, old: str, new: str) -> None:
        """Give a file another name, by the place's plain rename."""

    @abstractmethod
    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""

    @abstractmethod
    def make_file(self, path: str) -> None:
        """Create a file that must not be there yet. Its folder may be missing."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Create a folder that must not be there yet. The folder above it may be missing."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it is there. Of a folder, raise."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Remove a folder, if it is there. Of one that is not empty, raise."""

    @abstractmethod
    def stands(self, path: str) -> bool:
        """Return whether the name is taken. Raises when the place does not answer that."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when there is no such folder."""

    @abstractmethod
    def refused(self, error: Exception) -> bool:
        """Return whether an error may be the answer for a taken name. An error without an answer,
        such as a lost connection, is none.
        """

    @abstractmethod
    def lacks(self, error: Exception) -> bool:
        """Return whether an error may be the answer of a place that does not know the operation."""

    def make_files(self, path: str) -> bool:
        """Begin to create one file twice. Return whether the second creation is refused. Raises
        what `make_file` raises when the first one fails.
        """
        self.make_file(path)
        return _refuses(self, lambda: self.make_file(path))


def find_way(files: Files, gateway: str) -> Way | None:
    """Return the first way that is proven. Raises NotExclusive where nothing can be renamed, for no
    way works there.
    """
    proof = _Proof(files, gateway)
    try:
        return next((way for way in files.ways if proof.holds(way)), None)
    finally:
        proof.clean()


def tidy(files: Files, folder: str) -> None:
    """Remove claims of names that stand by now, and what proofs of other days left."""
    today = _today()
    for name in files.names(f"{folder}/{CLAIMS}"):
        if name.startswith(_PROOF):
            day = name.removeprefix(_PROOF).partition("-")[0]
            if day.isdecimal() and abs(int(day) - today) > 1:
                _discard(files, f"{folder}/{CLAIMS}/{name}")
        elif files.stands(f"{folder}/{name}"):
            _discard(files, f"{folder}/{CLAIMS}/{name}")


def _discard(files: Files, path: str) -> None:
    """Remove a file or an empty folder."""
    try:
        files.remove(path)
    except Exception:
        files.remove_folder(path)


class _Proof:
    """Tries ways with files of its own, which `clean` removes."""

    def __init__(self, files: Files, gateway: str) -> None:
        self._files = files
        self._folder = f"{gateway}/{CLAIMS}"
        self._token = secrets.token_hex(4)
        self._made: list[str] = []

    def holds(self, way: Way) -> bool:
        tries: dict[Way, Callable[[], bool]] = {
            Way.RENAME: lambda: self._gives_no_taken_name(self._files.move, way),
            Way.LINK: lambda: self._gives_no_taken_name(self._files.link, way),
            Way.CLAIM_FILE: lambda: self._files.make_files(self._path("file")),
            Way.CLAIM_FOLDER: self._makes_no_folder_twice,
        }
        if way in (Way.RENAME, Way.LINK):
            self._files.put(self._path("1"), b"first")
            self._files.put(self._path("2"), b"second")
        try:
            return tries[way]()
        except Exception as error:
            if not self._files.lacks(error):
                raise
            if way is Way.RENAME:
                raise NotExclusive(
                    f"files cannot be renamed here ({error}), so none can appear whole",
                    self._files.url,
                    "Use a landing place that can rename a file.",
                ) from error
            return False

    def clean(self) -> None:
        with suppress(Exception):  # `tidy` removes what stays
            for path in self._made:
                if path == self._path("folder"):
                    self._files.remove_folder(path)
                else:
                    self._files.remove(path)
            self._files.remove_folder(self._folder)

    def _gives_no_taken_name(self, give: Callable[[str, str], None], way: Way) -> bool:
        name = self._path(way)
        give(self._path("1"), name)
        refused = _refuses(self._files, lambda: give(self._path("2"), name))
        return refused and self._files.get(name) == b"first"

    def _makes_no_folder_twice(self) -> bool:
        path = self._path("folder")
        self._files.make_folder(path)
        return _refuses(self._files, lambda: self._files.make_folder(path))

    def _path(self, what: str) -> str:
        path = f"{self._folder}/{_PROOF}{_today()}-{what}-{self._token}"
        if path not in self._made:
            self._made.append(path)
        return path


def _refuses(files: Files, operation: Callable[[], None]) -> bool:
    try:
        operation()
    except Exception as error:
        if files.refused(error):
            return True
        raise
    return False


def _today() -> int:
    return int(time.time()) // _DAY_S
