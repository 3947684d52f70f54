"""The interface of a landing place."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from gateway.errors import OncewayError

TIMEOUT_S = 60.0
SLOWEST = 1000  # bytes per second; a link slower than that counts as down


def patience(size: int = 0) -> float:
    """Return the timeout of one operation that carries `size` bytes, in seconds."""
    return TIMEOUT_S + size / SLOWEST


EPOCH = re.compile("[0-9a-f]{8}")
_HOST_AND_PORT = re.compile(r"([^:]*|\[.*\])(:\d{1,5})?")


class Unreachable(OncewayError):
    """The landing place cannot be reached or written now. A retry may help."""


class NotExclusive(Unreachable):
    """The landing place does not refuse a second file with the same name, and it is possible that
    other gateways write to it. A retry may help after the server is repaired.
    """


class Claimed(OncewayError):
    """Error: another gateway is landing other bytes under this name, or stopped while doing so."""


class Way(StrEnum):
    """The ways to ensure that only the first of two gateways gets a name at the landing place."""

    RENAME = "rename"
    LINK = "link"
    CLAIM_FILE = "claim file"
    CLAIM_FOLDER = "claim folder"
    CONDITION = "conditional put"
    LOOK = "look"

    @property
    def text(self) -> str:
        """Return a sentence about this way for users, without a full stop."""
        return _TEXTS[self]


_TEXTS = {
    Way.RENAME: "a rename to an existing name is refused",
    Way.LINK: "a hard link to an existing name is refused",
    Way.CLAIM_FILE: "a second file that claims the same name is refused",
    Way.CLAIM_FOLDER: "a second folder that claims the same name is refused",
    Way.CONDITION: "a conditional put of an existing name is refused",
    Way.LOOK: "the uplink only checks first that the name is free; shared = false says that no"
    " other gateway writes to this place",
}


class Landing(ABC):
    """A landing place below one URL. Names are relative to the URL, with `/`. Every method raises
    Unreachable if the place does not work.

    shared: whether it is possible that other gateways write to the place under this gateway's name,
    by mistake or after a card was cloned. Use False only if no other gateway has access.
    """

    def __init__(self, url: str, shared: bool = True) -> None:
        self.url = without_password(url)
        self._shared = shared
        self._way: Way | None = None

    def prove(self, gateway: str) -> Way:
        """Return the way in which this place refuses a second file with the same name. If there is
        no such way, return Way.LOOK for a place that is not shared, and raise NotExclusive for a
        shared place. The proof is made once per connection, with the uplink's own files below the
        gateway's folder.
        """
        if self._way is None:
            with self.attempt("find out whether the place refuses an existing name"):
                way = self._find_way(gateway)
            if way is None and self._shared:
                raise NotExclusive(
                    "the landing place accepts a second file with the same name: two gateways with"
                    " one name, as with a cloned card, would replace each other's batches",
                    self.url,
                    "Use a landing place that refuses a second file. If no other gateway ever"
                    " writes to this place, say so with shared = false in [uplink].",
                )
            self._way = way or Way.LOOK
        return self._way

    @abstractmethod
    def _find_way(self, gateway: str) -> Way | None:
        """Test the ways of this kind of place, best first, and return the first one that works.
        None if none works.
        """

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the bytes under a name, or None if it does not exist."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put bytes under a name atomically, and only if the name is free. Return False if the name
        exists; the existing file stays as it is. Raises Claimed if another gateway has begun to
        put other bytes under the name.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Put bytes under a name atomically. An existing file is replaced."""

    def read_synced(self, name: str) -> bytes | None:
        """Return the bytes under a name, or None. Before that, if the place allows it, bring the
        names in this folder to its disk. Otherwise, a power cut at the place could undo the rename
        of a file that has been seen there.
        """
        return self.read(name)

    def holds(self, name: str, data: bytes) -> bool:
        """Whether the file under a name, which `create` has just written, has these bytes. Some
        kinds of place need not fetch the file: they compare its size or its checksum.
        """
        return self.read(name) == data

    @abstractmethod
    def epochs(self, gateway: str) -> list[str]:
        """Return the epochs below a gateway's folder: names of eight hex digits."""

    @abstractmethod
    def names_in(self, folder: str) -> list[str]:
        """Return the names in a folder, in any order; an empty list if there is no such folder."""

    @abstractmethod
    def discard(self, name: str) -> None:
        """Remove the file under a name, if it exists."""

    def move_marker(self, old: str | None, new: str) -> bool:
        """Create an empty file `new` as a marker, and remove the marker `old` if given. Return
        False if the place needs no markers, because listing a folder is cheap.
        """
        return False

    def tidy(self, folder: str) -> str | None:
        """Remove unfinished files of earlier connections from a folder. Only the owner of the
        folder may do so. Return the text of an error if a file could not be removed, else None.
        Leftovers do no harm.
        """
        return None  # places without hidden names need nothing

    def close(self) -> None:  # noqa: B027 - most places have nothing to close
        """Close all connections."""

    @contextmanager
    def attempt(self, action: str) -> Iterator[None]:
        """Turn any error within the context into Unreachable, because each fsspec file system
        raises its own kinds of error. action: the words after "cannot" in the message.
        """
        try:
            yield
        except OncewayError:
            raise
        except Exception as error:
            raise Unreachable(
                f"cannot {action}: {error_text(error)}", self.url, self.hint(error)
            ) from error

    def hint(self, error: Exception) -> str | None:
        """Return advice for a person about an error of this kind of place, or None."""
        return None


def error_text(error: Exception) -> str:
    """Return the text of an error in one line, without passwords and without a full stop."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return without_password(" ".join(str(error).split()).rstrip(".") or type(error).__name__)


def only_epochs(names: Iterable[str]) -> list[str]:
    """Return the epochs among the last parts of these names or paths, sorted."""
    return sorted(
        name for path in names if EPOCH.fullmatch(name := path.rstrip("/").rsplit("/", 1)[-1])
    )


def without_password(url: str) -> str:
    """Return a URL without its password: `sftp://user:secret@host/…` → `sftp://user@host/…`."""
    scheme, colon, rest = url.partition("://")
    server, slash, path = rest.partition("/")
    # a password with a "/", which should read %2F
    if "@" in path and "@" not in server and not _HOST_AND_PORT.fullmatch(server):
        server, slash, path = rest, "", ""
    login, at, host = server.rpartition("@")
    return f"{scheme}{colon}{login.partition(':')[0]}{at}{host}{slash}{path}"
