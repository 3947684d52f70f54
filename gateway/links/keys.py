"""What a device's key proves, and the session key that follows from it (README.md, Keys).

In: the 16-byte key of a device, bytes of HELLO and WELCOME. Out: codes that only who has the key
can make, and a key for each session. AES-128-CMAC (NIST SP 800-38B, RFC 4493) does both; the first
byte that it covers says what it is for, so no code passes for another.
"""

import secrets
from hmac import compare_digest

KEY_SIZE = 16
NONCE_SIZE = 8
MAC_SIZE = 8

NO_KEY = bytes(KEY_SIZE)
"""Of a board that nobody gave one. It proves nothing."""

SERIAL = 0x01
"""Label of the session keys of serial lines. (0x00 is the boards' own, for their nonces; 0x80 and
0x81 are the control bytes of HELLO and WELCOME.)
"""


def cmac(key: bytes, data: bytes) -> bytes:
    """Return the 16 bytes of AES-128-CMAC."""
    # here, since this takes 7 MB, and a gateway without boards needs nothing of it
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.cmac import CMAC

    code = CMAC(AES(key))
    code.update(data)
    return code.finalize()


def mac(key: bytes, data: bytes) -> bytes:
    """Return the 8 bytes that stand in a frame."""
    return cmac(key, data)[:MAC_SIZE]


def proves(key: bytes, data: bytes, code: bytes) -> bool:
    """Tell in constant time whether who made this code has the key."""
    return compare_digest(mac(key, data), code)


def session_key(key: bytes, nonce: bytes, hello: bytes, label: int = SERIAL) -> bytes:
    """Return the 16-byte key of the session between a HELLO (its payload, with its code) and the
    WELCOME with this nonce.
    """
    return cmac(key, bytes((label,)) + nonce + hello)


def draw_nonce() -> bytes:
    return secrets.token_bytes(NONCE_SIZE)
