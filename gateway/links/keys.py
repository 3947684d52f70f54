"""Proofs with a device's key, and the session key derived from it (FORMAT.md, Keys).

In: the 16-byte key of a device, bytes of HELLO and WELCOME. Out: codes that only an owner of the
key can make, and a key for each session. Codes and session keys are made with AES-128-CMAC (NIST SP
800-38B, RFC 4493). The first byte of the CMAC's input names the purpose, so a code for one purpose
is invalid for another.
"""

import secrets
from hmac import compare_digest

KEY_SIZE = 16
NONCE_SIZE = 8
MAC_SIZE = 8

NO_KEY = bytes(KEY_SIZE)
"""The value that stands for the key of a board without a key: 16 zeros, which prove nothing."""

SERIAL = 0x01
"""First byte of the CMAC's input for session keys of serial lines. The input begins with 0x00 for
a board's nonce, and with the control byte for a HELLO (0x80) or WELCOME (0x81).
"""


def cmac(key: bytes, data: bytes) -> bytes:
    """Return the 16 bytes of AES-128-CMAC."""
    # imported in the function, because the module takes 7 MB that a gateway without boards does not
    # need
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.cmac import CMAC

    code = CMAC(AES(key))
    code.update(data)
    return code.finalize()


def mac(key: bytes, data: bytes) -> bytes:
    """Return the 8-byte code that goes into a frame: the first half of the CMAC."""
    return cmac(key, data)[:MAC_SIZE]


def proves(key: bytes, data: bytes, code: bytes) -> bool:
    """Whether this code was made for these data with this key. Compares in constant time."""
    return compare_digest(mac(key, data), code)


def session_key(key: bytes, nonce: bytes, hello: bytes, label: int = SERIAL) -> bytes:
    """Return the 16-byte key of the session that a HELLO and its WELCOME begin. nonce: the nonce of
    the WELCOME. hello: the payload of the HELLO, with its code. label: first byte of the CMAC's
    input.
    """
    return cmac(key, bytes((label,)) + nonce + hello)


def draw_nonce() -> bytes:
    return secrets.token_bytes(NONCE_SIZE)
