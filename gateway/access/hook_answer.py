"""The answer of an HTTP hook: only a complete answer counts (RFC 9112, sections 6 and 8).

In: the bytes of a connection. Out: the status of the first final answer. An answer that ends within
its status line, its header or its body raises `CutOff`, because a proxy or a dying server may send
200 before the result is known. Without Content-Length and chunks, the end of the connection ends
the body.
"""

import re
from typing import BinaryIO

MOST_BYTES = 1_000_000
_MOST_LINES = 200
_LONGEST_LINE = 65_536
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*\r?\n")


class OddAnswer(Exception):
    """An answer that is neither yes nor no."""


class CutOff(OddAnswer):
    """The connection ended before the answer was complete."""

    def __init__(self) -> None:
        super().__init__("the answer was cut off")


def read_status(stream: BinaryIO) -> int:
    """Read one HTTP answer to its end, after any 1xx answers. Return its status code. Raises
    OddAnswer or OSError.
    """
    while True:
        line = _line(stream)
        found = _STATUS.fullmatch(line)
        if found is None:
            raise OddAnswer("the answer is not HTTP/1.1")
        status, fields = int(found[1]), _fields(stream)
        if status >= 200 or status == 101:
            break
    if status not in (101, 204, 304):
        _read_body(stream, fields)
    return status


def _line(stream: BinaryIO) -> bytes:
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise (
            OddAnswer("a line of the answer is too long") if len(line) == _LONGEST_LINE else CutOff
        )
    return line


def _fields(stream: BinaryIO) -> dict[bytes, list[bytes]]:
    """Return the fields of a header or a trailer, read up to its empty line. Raises OddAnswer."""
    fields: dict[bytes, list[bytes]] = {}
    for _ in range(_MOST_LINES):
        line = _line(stream)
        if line in (b"\r\n", b"\n"):
            return fields
        found = _FIELD.fullmatch(line)
        if found is None:
            raise OddAnswer("a header line of the answer is not NAME: VALUE")
        fields.setdefault(found[1].lower(), []).append(found[2])
    raise OddAnswer("the answer has too many header fields")


def _read_body(stream: BinaryIO, fields: dict[bytes, list[bytes]]) -> None:
    codings = [item.lower() for item in _list(fields.get(b"transfer-encoding", []))]
    lengths = set(_list(fields.get(b"content-length", [])))
    coded, sized = b"transfer-encoding" in fields, b"content-length" in fields
    if (coded and not codings) or b"chunked" in codings[:-1]:
        raise OddAnswer("the Transfer-Encoding of the answer is not valid")
    if codings[-1:] == [b"chunked"]:
        _read_chunks(stream)
    elif coded and sized:
        raise OddAnswer("the answer has a Content-Length and a Transfer-Encoding")
    elif coded or not sized:
        if len(stream.read(MOST_BYTES)) == MOST_BYTES:
            raise OddAnswer("the answer is too long")
    else:
        length = lengths.pop() if lengths else b""
        if lengths or not re.fullmatch(rb"[0-9]{1,18}", length):
            raise OddAnswer("the Content-Length of the answer is not valid")
        _read_exactly(stream, int(length))


def _read_chunks(stream: BinaryIO) -> None:
    total = 0
    while True:
        found = re.fullmatch(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r?\n", _line(stream))
        if found is None:
            raise OddAnswer("a chunk of the answer is not valid")
        size = int(found[1], 16)
        if not size:
            _fields(stream)
            return
        total += size
        _read_exactly(stream, size, total)
        if _line(stream) not in (b"\r\n", b"\n"):
            raise OddAnswer("a chunk of the answer is not valid")


def _read_exactly(stream: BinaryIO, size: int, total: int = 0) -> None:
    if max(size, total) > MOST_BYTES:
        raise OddAnswer("the answer is too long")
    if len(stream.read(size)) < size:
        raise CutOff


def _list(values: list[bytes]) -> list[bytes]:
    return [item.strip() for value in values for item in value.split(b",") if item.strip()]
