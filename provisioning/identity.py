"""The identity page of a board. In: name and key. Out: the bytes of its flash page (format in
firmware/JOURNAL.md), and back.
"""

import re
import secrets
from binascii import crc_hqx
from dataclasses import dataclass, field

from gateway.errors import OncewayError

SIZE = 47
KEY_SIZE = 16
NAME_SIZE = 23
_MAGIC = b"OWID"
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,22}")


def check_name(name: str) -> None:
    """Raise OncewayError unless the name is valid for topics, file names and tables."""
    if not _NAME.fullmatch(name):
        raise OncewayError(
            f"{name!r} is not a valid device name",
            hint=(
                f"Use 1 to {NAME_SIZE} letters, digits, dots, dashes or underscores, a letter or"
                " digit first"
            ),
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """A device's name (also its MQTT client identifier) and its secret key."""

    name: str
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.key) != KEY_SIZE:
            raise ValueError(f"a key has {KEY_SIZE} bytes, not {len(self.key)}")

    @classmethod
    def create(cls, name: str) -> "Identity":
        """Return a new identity with a random key."""
        return cls(name, secrets.token_bytes(KEY_SIZE))

    def to_bytes(self) -> bytes:
        """Return the page's first 47 bytes; the rest of a page is 0xFF."""
        name = self.name.encode("ascii")
        body = _MAGIC + bytes([_VERSION, len(name)]) + name.ljust(NAME_SIZE, b"\0") + self.key
        return body + crc_hqx(body, 0xFFFF).to_bytes(2, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Identity | None":
        """Return the identity in a page, or None if the page has no identity or is damaged."""
        if (
            len(data) < SIZE
            or data[:4] != _MAGIC
            or data[4] != _VERSION
            or data[5] > NAME_SIZE
            or crc_hqx(data[:SIZE], 0xFFFF) != 0
        ):
            return None
        name = data[6 : 6 + data[5]].decode("ascii", "replace")
        return (
            cls(name, bytes(data[6 + NAME_SIZE : 6 + NAME_SIZE + KEY_SIZE]))
            if _NAME.fullmatch(name)
            else None
        )
