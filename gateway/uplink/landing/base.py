"""What every landing place offers, and how a URL becomes one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from gateway.errors import OncewayError


class Unreachable(OncewayError):
    """The landing place cannot be reached or written now. Worth trying again."""


class Landing(ABC):
    """A place below one URL. Names are relative, with `/`. Every method raises Unreachable when the place does not do what it should."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The bytes under a name; None when there is nothing."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put bytes under a name at once and whole, and only if nothing stands there. False: something does, and it is untouched."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Put bytes under a name at once and whole, whatever stands there."""

    def holds(self, name: str, data: bytes) -> bool:
        """Whether exactly these bytes stand under a name, as well as this place can tell."""
        return self.read(name) == data

    def close(self) -> None:  # noqa: B027 - most places have nothing to close
        """Give connections back."""

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Turns whatever a file system throws into Unreachable: each of fsspec's raises its own kinds of errors."""
        try:
            yield
        except OncewayError:
            raise
        except Exception as error:
            reason = str(error).strip().rstrip(".") or type(error).__name__
            raise Unreachable(f"cannot {what}: {reason}", self.url) from error


def open_landing(url: str, options: dict[str, Any] | None = None) -> Landing:
    """A landing place by its URL. options: handed to the fsspec file system (credentials, endpoint).

    Raises Unreachable when it cannot be reached now, OncewayError when the URL can never work.
    """
    from gateway.uplink.landing.generic import GenericLanding
    from gateway.uplink.landing.local import LocalLanding

    scheme = urlsplit(url).scheme
    if scheme in ("", "file", "local"):
        return LocalLanding(url)
    return GenericLanding(url, options or {})
