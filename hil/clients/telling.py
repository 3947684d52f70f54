"""The line protocol of clients, and the identity in their messages.

A client reports in JSON Lines on standard output, and each line is written before the client
continues. Keys of each line: `event`; `t`, the machine's monotonic clock in nanoseconds. Events:

- `publication` before the first byte of a message is sent;
- `acknowledged` when the gateway has the message (PUBACK, PUBCOMP; not at QoS 0);
- before a message is sent once more: `resent` in the same flow, with DUP, or `again` in another
  flow;
- `forgotten` when the gateway has lost the flow or the session;
- `connected` for each connection;
- `moving` before a client leaves a gateway after a PUBREC;
- `unasked` for an answer to a packet not sent on the connection.

sequence: 1 for the first message, and one more for each further one. A foreign program may leave
out `t`; the rig then uses the time of the program's previous line, which is before the event.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from hil.formats.packets import Properties, Property

INCARNATION = 1
"""Incarnation of each client."""
SESSION_EXPIRY = 86_400  # s
LAST_SEQUENCE = 0xFFFF_FFFF


READS_REASON_CODES = ("onceway-reads-reason-codes", "1")
"""User property of CONNECT that asks the gateway for reason codes. Without this property, the
gateway ends the connection when it refuses a message for now.
"""


def tell(event: str, **data: object) -> None:
    sys.stdout.write(json.dumps({"t": time.monotonic_ns(), "event": event, **data}) + "\n")
    sys.stdout.flush()


LAST_LEVELS = ("data", "data/", "/x", "A b", "\u00e9/\u20ac/\U0001f321", "d" * 300)
"""Last topic levels: empty levels, spaces, capitals, characters of 1 to 4 bytes, 300 characters."""


def topic_of(name: str, number: int = 0) -> str:
    return f"sensors/{name}/{LAST_LEVELS[number % len(LAST_LEVELS)]}"


def identity(sequence: int) -> Properties:
    user = Property.USER_PROPERTY
    return (user, ("incarnation", str(INCARNATION))), (user, ("seq", str(sequence)))


def _is_whole(value: object, first: int, last: int) -> bool:
    return type(value) is int and first <= value <= last


def _is_hex(value: object) -> bool:
    try:
        return isinstance(value, str) and bytes.fromhex(value).hex() == value.lower()
    except ValueError:
        return False


_KEYS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "sequence": (
        f"a whole number from 1 to {LAST_SEQUENCE}",
        lambda value: _is_whole(value, 1, LAST_SEQUENCE),
    ),
    "topic": ("a text that is not empty", lambda value: isinstance(value, str) and value != ""),
    "payload": ("bytes in hex", _is_hex),
    "port": ("a port", lambda value: _is_whole(value, 1, 0xFFFF)),
    "session_present": ("true or false", lambda value: isinstance(value, bool)),
    "text": ("a text", lambda value: isinstance(value, str)),
    "packet": ("a text", lambda value: isinstance(value, str)),
    "id": ("a packet identifier", lambda value: _is_whole(value, 1, 0xFFFF)),
    "t": ("nanoseconds", lambda value: _is_whole(value, 0, 1 << 63)),
}
_EVENTS = {
    "publication": ("sequence", "topic", "payload"),
    **dict.fromkeys(("acknowledged", "resent", "again", "forgotten", "moving"), ("sequence",)),
    "connected": ("port", "session_present"),
    "unasked": ("packet", "id"),
    "contradiction": ("sequence", "text"),
}


def heard(line: bytes) -> dict[str, Any]:
    """Return the content of a line of the protocol. Raises ValueError, with the reason."""
    try:
        content = json.loads(line)
    except ValueError as error:
        raise ValueError("it is not JSON") from error
    if not isinstance(content, dict) or not isinstance(content.get("event"), str):
        raise ValueError("it is not an object with a text `event`")
    if content["event"] not in _EVENTS:
        raise ValueError(f"there is no event `{content['event']}`; there are {', '.join(_EVENTS)}")
    for key in (*_EVENTS[content["event"]], *(["t"] if "t" in content else [])):
        form, fits = _KEYS[key]
        if key not in content:
            raise ValueError(f"`{key}` is missing, which is {form}")
        if not fits(content[key]):
            raise ValueError(f"`{key}` is not {form}")
    return content
