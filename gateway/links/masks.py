"""The check that each WebSocket frame of a client has its mask bit (RFC 6455, sections 5.1 and
5.2).

In: the bytes of a connection from its first one, in pieces of any size: an HTTP request, then
frames. Out: the same bytes. An invalid frame header replaces the first unmasked frame and all later
bytes.
"""

_INVALID = b"\xf2\x80"
"""Header of a frame with reserved bits. It makes the parser close with 1002, a protocol error."""
_END_OF_HEAD = b"\r\n\r\n"


class Masks:
    """The check of the mask bits of one connection."""

    def __init__(self) -> None:
        self.lacking = False
        """Whether an unmasked frame has arrived."""
        self._matched: bytes | None = b""
        """Last bytes of the HTTP request so far, at most 3: `_END_OF_HEAD` may begin in them. None
        after the request.
        """
        self._first = b""
        """First byte of a frame, kept until the second byte, with the mask bit, arrives."""
        self._length = b""
        """Bytes that have arrived of a frame's extended payload length. `_length_lacks` bytes of it
        have not arrived yet.
        """
        self._length_lacks = 0
        self._skip = 0
        """Number of remaining bytes of the current frame: mask and payload."""

    def checked(self, data: bytes) -> bytes:
        """Return the bytes to hand to the WebSocket parser. An invalid header replaces the first
        unmasked frame, and nothing after it is returned. The first byte of a frame is kept until
        the second arrives.
        """
        if self.lacking:
            return b""
        data, self._first = self._first + data, b""
        position = self._behind_head(data)
        while position < len(data):
            if self._length_lacks:
                position += self._take_length(data[position : position + self._length_lacks])
            elif self._skip:
                step = min(self._skip, len(data) - position)
                self._skip -= step
                position += step
            elif position == len(data) - 1:
                self._first = data[position:]
                return data[:position]
            elif not data[position + 1] & 0x80:
                self.lacking = True
                return data[:position] + _INVALID
            else:
                length = data[position + 1] & 0x7F
                self._length, self._length_lacks = b"", {126: 2, 127: 8}.get(length, 0)
                self._skip = 4 + (0 if self._length_lacks else length)
                position += 2
        return data

    def _take_length(self, piece: bytes) -> int:
        self._length += piece
        self._length_lacks -= len(piece)
        if not self._length_lacks:
            self._skip += int.from_bytes(self._length, "big")
        return len(piece)

    def _behind_head(self, data: bytes) -> int:
        """Return the offset in `data` of the first byte after the HTTP request."""
        if self._matched is None:
            return 0
        seen = self._matched + data
        end = seen.find(_END_OF_HEAD)
        if end < 0:
            self._matched = seen[-3:]
            return len(data)
        before, self._matched = len(self._matched), None
        return end + len(_END_OF_HEAD) - before
