"""Tests of the ways in which a landing place made of files may refuse a second file with the same
name.

In: the operations of a place, and a gateway's folder for the tests' own files. Out: the first of
the place's ways that works. The tests use the same folders as a real landing: they rename from
GATEWAY/.incoming into GATEWAY, or make a claim in GATEWAY/.claims.

A way is tested with three operations: on a name in use, on a free name, and on the name in use
again. It works if the place refuses the first and the third, and does the second. The file with the
name in use must keep its bytes. So an error that does not depend on the name, such as "busy",
proves nothing. A place that checks first and writes later is detected as far as possible with one
connection: both creations begin before one of them ends (`make_files`).

If files cannot be removed, the files of one proof stay (`_KeptProof`), and later proofs reuse them,
so the number of files is bounded.
"""

import errno
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from gateway.uplink.landing.base import NotExclusive, Way
from gateway.uplink.manifest import INCOMING

CLAIMS = ".claims"  # folder of claims and proofs
_DAY_S = 86_400
_PROOF = "proof-"
_FIRST, _SECOND = b"first", b"second"
_LABEL = re.compile("[0-9]+-[0-9a-f]{8}")
_CLAIM_WAYS = (Way.CLAIM_FILE, Way.CLAIM_FOLDER)
_TROUBLE = (
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.ESTALE,
    errno.ENODEV,
    errno.ENXIO,
    errno.ENOTCONN,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
)
"""Error numbers of a failing disk, network or process. The name of a file does not cause such an
error.
"""


class Files(ABC):
    """The operations of a place on its files. Paths are relative to the landing URL. Each operation
    raises the place's own errors. url: the landing URL, for errors. ways: the ways to test at this
    place (`Way`), best first.
    """

    url: str
    ways: tuple[Way, ...]

    @abstractmethod
    def get(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write a file and sync it. Create missing folders above it."""

    @abstractmethod
    def move(self, old: str, new: str) -> None:
        """Give a file another name, by the place's plain rename."""

    @abstractmethod
    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""

    @abstractmethod
    def make_file(self, path: str) -> None:
        """Create a file, and missing folders above it. Raise if the file exists."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Create a folder, and missing folders above it. Raise if the folder exists."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it exists. Raises an error for a folder."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Remove a folder, if it exists. Raise if it is not empty."""

    @abstractmethod
    def stands(self, path: str) -> bool:
        """Whether a file or folder has this name. Raises if the place does not answer."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; an empty list if there is no such folder."""

    def trouble(self, error: Exception) -> bool:
        """Whether an error depends neither on the name nor on the operation: for example, the
        connection is lost or the disk is full.
        """
        return isinstance(error, TimeoutError | ConnectionError | EOFError) or (
            isinstance(error, OSError) and error.errno in _TROUBLE
        )

    def make_files(self, path: str) -> bool:
        """Create one file twice, and return whether the second creation is refused. Raises the
        error of `make_file` if the first creation fails.
        """
        self.make_file(path)
        return refuses(self, self.make_file, path)


def refuses(files: Files, operation: Callable[..., None], *arguments: str) -> bool:
    """Carry out an operation, and return whether the landing place has refused it. Raises the error
    if its cause is not the operation but, for example, the connection (`Files.trouble`).
    """
    try:
        operation(*arguments)
    except Exception as error:
        if files.trouble(error):
            raise
        return True
    return False


def find_way(files: Files, gateway: str) -> Way | None:
    """Return the way of the kept proof if this proof still holds. Otherwise return the first way in
    `files.ways` that a new proof confirms, or None if no way works. Raises NotExclusive if the
    landing place cannot even rename files.
    """
    kept = _KeptProof(files, gateway)
    if (known := kept.load()) is not None and known.still_holds():
        return known.way
    proof = _Proof(files, gateway)
    proven: _Try | None = None
    try:
        proven = next((found for way in files.ways if (found := proof.hold(way))), None)
    finally:
        stays = proof.clean(proven)
    if stays and proven is not None:
        with suppress(Exception):  # the next connection repeats the proof
            kept.save(proven)
    elif known is not None:
        forget(files, gateway)
    return None if proven is None else proven.way


def forget(files: Files, gateway: str) -> None:
    """Forget the way that was proven, because one of its operations has failed. The next connection
    tests the ways again.
    """
    with suppress(Exception):  # the caller reports its own error
        _KeptProof(files, gateway).forget()


def kept_label(files: Files, gateway: str) -> str | None:
    """Return the label in the file names of the proof that is kept at the landing place; None if
    none is kept.
    """
    kept = _KeptProof(files, gateway).load()
    return None if kept is None else kept.label


def is_old(name: str, kept: str | None) -> bool:
    """Whether a name belongs to a proof that is more than a day old and is not kept. kept: the
    label of the kept proof.
    """
    day = name.removeprefix(_PROOF).partition("-")[0]
    if not is_proof(name) or (kept is not None and kept in name):
        return False
    return day.isdecimal() and abs(int(day) - _today()) > 1


def is_proof(name: str) -> bool:
    return name.startswith(_PROOF)


class _Try:
    """A test whether a landing place refuses a name in use, in one `Way`. label: part of the names
    of the test's files, which makes them unique.
    """

    def __init__(self, files: Files, gateway: str, way: Way, label: str) -> None:
        self.way, self.label = way, label
        self._files = files
        name = f"{_PROOF}{label}-{way.replace(' ', '-')}"
        above = f"{gateway}/{CLAIMS}" if way in _CLAIM_WAYS else gateway
        self._used, self._free = f"{above}/{name}-taken", f"{above}/{name}-free"
        self._first = f"{gateway}/{INCOMING}/{name}-1"
        self._second = f"{gateway}/{INCOMING}/{name}-2"

    @property
    def paths(self) -> list[str]:
        """Names that the test creates. A test that ends early creates only some of them."""
        hidden = [] if self.way in _CLAIM_WAYS else [self._first, self._second]
        return [self._used, self._free, *hidden]

    def holds(self) -> bool:
        """Test the way: the place must refuse a name in use, then accept a free name, then refuse
        the name in use again. Return whether both refusals came. Raises the place's error if the
        place does not accept the free name.
        """
        if self.way is Way.CLAIM_FILE:
            begun = self._files.make_files(self._used) and self._files.make_files(self._free)
            return begun and self._refuses_the_taken()
        self._hide(self._first, _FIRST)
        self._give(self._first, self._used)
        if not self._refuses_the_taken():
            return False
        self._give(self._second, self._free)
        return self._refuses_the_taken()

    def still_holds(self) -> bool:
        """Whether the place still refuses the name that this test created at an earlier
        connection.
        """
        try:
            return self._refuses_the_taken()
        except Exception as error:
            if self._files.trouble(error):
                raise
            return False

    def _refuses_the_taken(self) -> bool:
        self._hide(self._second, _SECOND)
        if not refuses(self._files, self._give, self._second, self._used):
            return False
        return self.way in _CLAIM_WAYS or self._files.get(self._used) == _FIRST

    def _hide(self, path: str, data: bytes) -> None:
        if self.way not in _CLAIM_WAYS:
            self._files.put(path, data)

    def _give(self, hidden: str, name: str) -> None:
        """Give a hidden file a name, or claim the name, in the way that is tested."""
        if self.way is Way.RENAME:
            self._files.move(hidden, name)
        elif self.way is Way.LINK:
            self._files.link(hidden, name)
        elif self.way is Way.CLAIM_FILE:
            self._files.make_file(name)
        else:
            self._files.make_folder(name)


class _Proof:
    """The tests of one proof. `hold` tests one way with new files; `clean` removes all of them."""

    def __init__(self, files: Files, gateway: str) -> None:
        self._files, self._gateway = files, gateway
        self._tries: list[_Try] = []
        self._folders = [f"{gateway}/{CLAIMS}"]
        with suppress(Exception):  # leftovers are harmless
            if not files.stands(f"{gateway}/{INCOMING}"):
                self._folders.append(f"{gateway}/{INCOMING}")

    def hold(self, way: Way) -> _Try | None:
        """Test a way. Return the test if it succeeded, else None. If the test ends with an error,
        repeat it once, so that one error of a busy place does not change which way is chosen. If
        the second test ends with an error, too, return None, or raise NotExclusive for RENAME. An
        error by `Files.trouble` is raised at once.
        """
        failure: Exception
        for _ in range(2):
            tried = _Try(self._files, self._gateway, way, f"{_today()}-{secrets.token_hex(4)}")
            self._tries.append(tried)
            try:
                return tried if tried.holds() else None
            except Exception as error:
                if self._files.trouble(error):
                    raise
                # an error of an unknown kind: the place must at least accept a file
                whole = f"{self._gateway}/{INCOMING}/{_PROOF}{tried.label}-put"
                self._files.put(whole, b"")
                refuses(self._files, self._files.remove, whole)
                failure = error
        if way is Way.RENAME:
            raise NotExclusive(
                f"files cannot be renamed here ({failure}), so readers could see half a batch",
                self._files.url,
                "Use a landing place that can rename a file.",
            ) from failure
        return None

    def clean(self, proven: _Try | None) -> bool:
        """Remove the files of all tests. If the place refuses to remove a file, keep the files of
        the successful test `proven`, and return True.
        """
        others = [tried for tried in self._tries if tried is not proven]
        try:
            if sum(map(self._stays, others)) or (proven and self._stays(proven)):
                return True
            for folder in self._folders:
                refuses(self._files, self._files.remove_folder, folder)
        except Exception:  # noqa: S110 - the place is in trouble: `tidy` removes what stays
            pass
        return False

    def _stays(self, tried: _Try) -> bool:
        """Remove the files of a test. Return whether any file remains."""
        folders = tried.way is Way.CLAIM_FOLDER
        remove = self._files.remove_folder if folders else self._files.remove
        unremoved = [path for path in tried.paths if refuses(self._files, remove, path)]
        return any(self._files.stands(path) for path in unremoved)


class _KeptProof:
    """The note on a proof whose files stay, because the place refuses to remove them."""

    def __init__(self, files: Files, gateway: str) -> None:
        self._files, self._gateway = files, gateway
        self._path = f"{gateway}/{CLAIMS}/{_PROOF}kept"

    def load(self) -> _Try | None:
        """Return the successful test in the note; None if there is no valid note. Raises the
        place's error if it does not answer.
        """
        try:
            text = (self._files.get(self._path) or b"").decode(errors="replace")
        except Exception as error:
            if self._files.trouble(error):
                raise
            return None
        way, _, label = text.partition("/")
        if way not in self._files.ways or not _LABEL.fullmatch(label):
            return None
        return _Try(self._files, self._gateway, Way(way), label)

    def save(self, proven: _Try) -> None:
        self._files.put(self._path, f"{proven.way}/{proven.label}".encode())

    def forget(self) -> None:
        """Empty the note and remove it. If the place refuses to remove files, an empty note
        remains.
        """
        if self._files.stands(self._path):
            self._files.put(self._path, b"")
            self._files.remove(self._path)


def _today() -> int:
    return int(time.time()) // _DAY_S
