"""Values that depend on a device's key (gateway/links/FORMAT.md, Keys), and the place of the key on
a board (firmware/JOURNAL.md, identity page). In: a key, and bytes of HELLO and WELCOME; or a flash
image. Out: codes and seeds; or the key in the image.
"""

from pathlib import Path

from cryptography.hazmat.primitives.ciphers.algorithms import AES128
from cryptography.hazmat.primitives.cmac import CMAC

UNO_PAGE = 0x7D80
NO_KEY = bytes(16)
CODE_SIZE = 8
_KEY_AT, _KEY_END = 29, 45
_SESSION = b"\x01"


def cmac(key: bytes, data: bytes) -> bytes:
    made = CMAC(AES128(key))
    made.update(data)
    return made.finalize()


def session_seed(key: bytes, nonce: bytes, hello: bytes) -> int:
    """Return the seed of a session. hello: payload of the HELLO. nonce: nonce of the WELCOME."""
    return int.from_bytes(cmac(key, _SESSION + nonce + hello)[:4])


def identity_page(name: str, key: bytes) -> bytes:
    """Return the first bytes of an identity page, without its check."""
    return b"OWID\1" + bytes((len(name),)) + name.encode().ljust(23, b"\0") + key


def key_on_board(flash: Path, page: int = UNO_PAGE) -> bytes:
    """Return the key in a board's flash image, or NO_KEY if there is no identity page at `page`."""
    with flash.open("rb") as file:
        file.seek(page)
        found = file.read(_KEY_END)
    return found[_KEY_AT:] if found.startswith(b"OWID\1") else NO_KEY
