"""Consistent Overhead Byte Stuffing (Cheshire and Baker, 1999).

In: bytes of any value. Out: an encoding without 0x00, so that 0x00 can mark the end of a frame. The
encoding is one byte longer, and one more for each 254 bytes without a zero.
"""

_LONGEST_BLOCK = 254


class CobsError(ValueError):
    """The bytes are not a COBS encoding: a zero inside, or a block that reaches beyond the end."""


def encode(data: bytes) -> bytes:
    """Return the encoding of `data`, without the delimiter 0x00."""
    encoded = bytearray()
    for block in data.split(b"\0"):
        while len(block) >= _LONGEST_BLOCK:
            encoded.append(_LONGEST_BLOCK + 1)
            encoded += block[:_LONGEST_BLOCK]
            block = block[_LONGEST_BLOCK:]
        encoded.append(len(block) + 1)
        encoded += block
    return bytes(encoded)


def decode(encoded: bytes) -> bytes:
    """Return the data that `encode` was given. Raises CobsError."""
    if 0 in encoded:
        raise CobsError("a zero byte inside the frame")
    data = bytearray()
    position, end = 0, len(encoded)
    while position < end:
        code = encoded[position]
        following = position + code
        if following > end:
            raise CobsError("a block reaches beyond the end of the frame")
        data += encoded[position + 1 : following]
        position = following
        if code <= _LONGEST_BLOCK and position < end:
            data.append(0)
    return bytes(data)
