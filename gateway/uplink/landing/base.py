"""What every landing place offers."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gateway.errors import OncewayError

INCOMING = ".incoming"  # a folder beside the final names, for files that are being written
TIMEOUT_S = 60.0
SLOWEST = 1000  # bytes per second; a link slower than that counts as down


def patience(size: int = 0) -> float:
    """How long one operation may take that carries `size` bytes, in seconds."""
    return TIMEOUT_S + size / SLOWEST


EPOCH = re.compile("[0-9a-f]{8}")
_HOST_AND_PORT = re.compile(r"([^:]*|\[.*\])(:\d{1,5})?")


class Unreachable(OncewayError):
    """The landing place cannot be reached or written now. Worth trying again."""


class Landing(ABC):
    """A place below one URL. Names are relative, with `/`. Every method raises Unreachable when the
    place does not do what it should.
    """

    def __init__(self, url: str) -> None:
        self.url = without_password(url)

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The bytes under a name; None when there is nothing."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put bytes under a name at once and whole, and only if nothing stands there. False:
        something does, and it is untouched.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Put bytes under a name at once and whole, whatever stands there."""

    def holds(self, name: str, data: bytes) -> bool:
        """Whether these bytes, which `create` has just put there, stand under a name, by the best
        proof short of sending them back.
        """
        return self.read(name) == data

    @abstractmethod
    def epochs(self, gateway: str) -> list[str]:
        """The epochs that stand below a gateway's folder: names of eight hex digits."""

    def move_marker(self, old: str | None, new: str) -> bool:
        """An empty file stands under the name `new`, and not under `old` any more, if that is
        given. False where nobody needs it: looking into a folder costs nothing.
        """
        return False

    def tidy(self, folder: str) -> None:  # noqa: B027 - nothing to do where nothing is written under a hidden name
        """Remove what earlier connections left half written in a folder. Only the owner of the
        folder may do so.
        """

    def close(self) -> None:  # noqa: B027 - most places have nothing to close
        """Give connections back."""

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Turns whatever a file system throws into Unreachable: each of fsspec's raises its own
        kinds of errors.
        """
        try:
            yield
        except OncewayError:
            raise
        except Exception as error:
            said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            reason = (
                "no answer in time" if isinstance(error, TimeoutError) else without_password(said)
            )
            raise Unreachable(f"cannot {what}: {reason}", self.url, self.hint(error)) from error

    def hint(self, error: Exception) -> str | None:
        """What a person can do about an error of this kind of place, if known."""
        return None


def only_epochs(names: Iterable[str]) -> list[str]:
    """Those of some file names or paths that can be epochs, sorted."""
    return sorted(
        name for path in names if EPOCH.fullmatch(name := path.rstrip("/").rsplit("/", 1)[-1])
    )


def without_password(url: str) -> str:
    """`sftp://user:secret@host/…` → `sftp://user@host/…`, for logs and people."""
    scheme, colon, rest = url.partition("://")
    server, slash, path = rest.partition("/")
    # a password with a "/", which should read %2F
    if "@" in path and "@" not in server and not _HOST_AND_PORT.fullmatch(server):
        server, slash, path = rest, "", ""
    login, at, host = server.rpartition("@")
    return f"{scheme}{colon}{login.partition(':')[0]}{at}{host}{slash}{path}"
