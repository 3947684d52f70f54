"""A moving session as bytes, for another gateway of the site.

In: records, each with a kind and some values. Out: bytes from which a strict reader at the other
gateway restores the same records. The bytes are divided into parts of PART_BYTES, which may end in
the middle of a record. The first part starts with a head, which is made for each transfer and has
the sender's time, so that expiry times can be converted.

Received bytes are not trusted: each value is checked before use, and `Unfit` names the fault. So
every accepted session can be read by the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct, error
from typing import Any, NamedTuple

from gateway.mqtt.errors import MqttError
from gateway.mqtt.properties import SERVER_PUBLISH_PROPERTIES, decode_properties
from gateway.mqtt.topics import (
    SHARE_PREFIX,
    shared_filter_problem,
    topic_filter_problem,
    topic_name_problem,
)
from gateway.mqtt.wire import MAX_U32, MAX_VARINT, Reader, encode_varint
from gateway.store.move_rows import MOST_MOVES, MOVING_IDS

PART_BYTES = 250_000
"""Size of a part in bytes. A part with its head is below the limit of the link between gateways
(`gateway/site/rules/messages.py`).
"""
VERSION = 2
OLDEST = 1
"""Oldest format: a session without a MOVE record. Older members know only this format."""

_LENGTH = Struct(">IB")
_INTEGER = Struct(">q")
_SIZE = Struct(">I")
_HEAD = Struct(">4sHqI")
_MAGIC = b"OWS\0"
_NUMBERS = 1 << 62
"""Upper bound of a message's number, which is its position in the queue of its session."""
_LATEST = 1 << 50
"""Largest amount, in ms, of a time on the sender's time axis. Times may be negative."""
_LONGEST = 300_000_000
"""Longest record, in bytes. A MESSAGE record has one packet at most, or a run of many short
ones.
"""

SESSION, SUBSCRIPTION, FLOW, WILL, MARK, MESSAGE, QUEUE, END, MOVE = range(1, 10)
Values = tuple[Any, ...]


class Unfit(ValueError):
    """Error: the received bytes are not a valid session."""


class Head(NamedTuple):
    now: int
    """Time at which the sender made this head, in ms on the sender's time axis."""
    messages: int


def head(now: int, messages: int, body: bytes) -> bytes:
    """Return the head for the first part. now: this gateway's present time in ms on its time axis.
    messages: number of messages in all parts. body: the first part.
    """
    has_move = without_move(body) != body
    return _HEAD.pack(_MAGIC, VERSION if has_move else OLDEST, now, messages)


def without_move(body: bytes) -> bytes:
    """Return a first part as older members expect it: without a MOVE as its second record."""
    begin = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    if len(body) < begin + _LENGTH.size:
        return body
    length, kind = _LENGTH.unpack_from(body, begin)
    return body[:begin] + body[begin + _LENGTH.size + length :] if kind == MOVE else body


def read_head(parts: Sequence[bytes]) -> Head:
    """Return the head of the first part. Raises Unfit if it is missing or invalid."""
    try:
        magic, version, *found = _HEAD.unpack_from(parts[0])
    except (error, IndexError) as problem:
        raise Unfit("its parts have no header") from problem
    if magic != _MAGIC or not OLDEST <= version <= VERSION:
        raise Unfit(f"its parts have format {version}, not {VERSION}: update the older gateway")
    if abs(found[0]) > _LATEST:
        raise Unfit("the time in its header is invalid")
    return Head(*found)


def record(kind: int, values: Iterable[Any]) -> bytes:
    body = bytearray()
    for value in values:
        if value is None:
            body += b"N"
        elif isinstance(value, int):
            body += b"I" + _INTEGER.pack(value)
        elif isinstance(value, str):
            encoded = value.encode()
            body += b"T" + _SIZE.pack(len(encoded)) + encoded
        else:
            body += b"B" + _SIZE.pack(len(value)) + value
    return _LENGTH.pack(len(body), kind) + body


def records(parts: Sequence[bytes]) -> Iterator[tuple[int, Values]]:
    """Yield kind and values of each record. Raises Unfit at the first invalid record."""
    ended = False
    for kind, body in _bodies(parts):
        if ended:
            raise Unfit("its parts go on after the END record")
        ended = kind == END
        checks = _CHECKS.get(kind)
        if checks is None:
            raise Unfit(f"a record of kind {kind} is not known here")
        try:
            values = _values(body, len(checks) + 1)
        except (error, UnicodeDecodeError, IndexError) as problem:
            raise Unfit(f"a record of kind {kind} cannot be read") from problem
        if len(checks) != len(values):
            more = "more" if len(values) > len(checks) else "fewer"
            raise Unfit(f"a record of kind {kind} has {more} than {len(checks)} values")
        for number, (check, value) in enumerate(zip(checks, values, strict=True)):
            if not check(value):
                raise Unfit(f"value {number} of a record of kind {kind} is invalid")
        yield kind, values
    if not ended:
        raise Unfit("its parts have no END record")


def _bodies(parts: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield kind and body of each record. Raises Unfit if a record is too long or incomplete."""
    buffer, at = bytearray(), 0
    for index in range(len(parts)):
        del buffer[:at]
        at = 0 if index else _HEAD.size
        buffer += parts[index]
        while len(buffer) - at >= _LENGTH.size:
            length, kind = _LENGTH.unpack_from(buffer, at)
            if length > _LONGEST:
                raise Unfit(f"a record of {length} bytes is too long")
            begin = at + _LENGTH.size
            if len(buffer) - begin < length:
                break
            yield kind, bytes(buffer[begin : begin + length])
            at = begin + length
    if at != len(buffer):
        raise Unfit("it is incomplete")


def _values(body: bytes, most: int) -> Values:
    """Return the values of a record, at most `most` of them."""
    found: list[Any] = []
    at = 0
    while at < len(body) and len(found) < most:
        tag = body[at : at + 1]
        at += 1
        if tag == b"N":
            found.append(None)
        elif tag == b"I":
            found.append(_INTEGER.unpack_from(body, at)[0])
            at += _INTEGER.size
        elif tag in (b"T", b"B"):
            (length,) = _SIZE.unpack_from(body, at)
            at += _SIZE.size
            if at + length > len(body):
                raise IndexError
            data = body[at : at + length]
            at += length
            found.append(data.decode() if tag == b"T" else data)
        else:
            raise IndexError
    return tuple(found)


Check = Callable[[Any], bool]


def _whole(low: int, high: int) -> Check:
    return lambda value: isinstance(value, int) and low <= value <= high


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 0xFFFF


def _topic(value: Any) -> bool:
    return _text(value) and topic_name_problem(value) is None and len(value.encode()) <= 0xFFFF


def _filter(value: Any) -> bool:
    if not _text(value) or len(value.encode()) > 0xFFFF:
        return False
    shared = value.startswith(SHARE_PREFIX)
    return (shared_filter_problem if shared else topic_filter_problem)(value) is None


def _share(value: Any) -> bool:
    return value == "" or (_filter(value) and value.startswith(SHARE_PREFIX))


def _blob(value: Any) -> bool:
    return isinstance(value, bytes)


def _is_ids(value: Any) -> bool:
    """Whether the value is a list of packet identifiers that `unpack_ids` can read."""
    if not isinstance(value, bytes) or len(value) % 2 or len(value) > 2 * 0xFFFF:
        return False
    return all(value[at] or value[at + 1] for at in range(0, len(value), 2))


def _is_set(value: Any) -> bool:
    """Whether the value is a set of packet identifiers that `unpack_set` can read."""
    if not isinstance(value, bytes) or value[:2] != b"\0\0":
        return _is_ids(value)
    if len(value) < 4 or len(value) % 2:
        return False
    first = value[2] << 8 | value[3]
    return first + len(value) - 4 <= 1 << 13 and not (
        first == 0 and len(value) > 4 and value[4] & 1
    )


def _properties(value: Any) -> bool:
    """Whether the value is a valid property list of a PUBLISH, without the Property Length."""
    if not isinstance(value, bytes) or len(value) > MAX_VARINT:
        return False
    if not value:
        return True
    try:
        decode_properties(
            Reader(encode_varint(len(value)) + value, "PUBLISH"), SERVER_PUBLISH_PROPERTIES
        )
    except MqttError:
        return False
    return True


_TIME = _whole(-_LATEST, _LATEST)
_CHECKS: dict[int, tuple[Check, ...]] = {
    # the columns of the tables; `session` without its number
    SESSION: (_text, _whole(1, MAX_U32), _TIME, _whole(0, MAX_U32), _or_none(_text)),
    SUBSCRIPTION: (_filter, _whole(0, 31), _whole(0, MAX_VARINT)),
    FLOW: (_is_set, _whole(1, _NUMBERS), _is_ids, _is_ids),
    WILL: (
        _or_none(_TIME),
        _whole(0, MAX_U32),
        _topic,
        _whole(0, 2),
        _whole(0, 1),
        _properties,
        _or_none(_whole(0, MAX_U32)),
        _blob,
    ),
    MARK: (
        _whole(0, 3),
        _whole(1, MAX_U32),
        _whole(0, MAX_U32),
        _whole(-(1 << 63), (1 << 63) - 1),
        _is_set,
    ),
    # topic, retain, count, properties, expires, body
    MESSAGE: (_topic, _whole(0, 1), _whole(1, 1 << 24), _properties, _or_none(_TIME), _blob),
    # first, count, message (its number among the received messages), skip, flags, extra, share
    QUEUE: (
        _whole(1, _NUMBERS),
        _whole(1, 1 << 24),
        _whole(1, MAX_U32),
        _whole(0, 1 << 24),
        _whole(2, 5),
        _properties,
        _share,
    ),
    END: (),
    # number of the moving session, moves, previous gateway, 1 if a forwarder is there
    MOVE: (_whole(1, MOVING_IDS - 1), _whole(1, MOST_MOVES), _text, _whole(0, 1)),
}
