"""A retained message, or its deletion, as members exchange it.

In: the entry of a topic. Out: bytes (`encode`), and back (`decode`), which raises SiteError for
anything that is not a sequence of complete entries. Numbers have the high byte first.

Of two entries of a topic, every member takes the same one: the entry with the higher version. If
their versions are equal, a digest of the contents decides (`Entry.mark`).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from gateway.mqtt.errors import MqttError
from gateway.mqtt.properties import (
    CLIENT_PUBLISH_PROPERTIES,
    PropertyId,
    check_response_topic,
    decode_properties,
)
from gateway.mqtt.topics import topic_name_problem
from gateway.mqtt.wire import Reader, encode_varint
from gateway.site.errors import SiteError

MOST_VERSION = (1 << 62) - 1
NEVER = 0xFFFF_FFFF
"""Value of `Entry.expires_in` for a message that does not expire."""
_HEAD = Struct(">QIBHHII")
_PROPERTIES = CLIENT_PUBLISH_PROPERTIES - {
    PropertyId.TOPIC_ALIAS,
    PropertyId.MESSAGE_EXPIRY_INTERVAL,
}


class Entry(NamedTuple):
    name: str
    """Topic."""
    version: int
    expires_in: int
    """Seconds until the message expires, or until the deletion may be forgotten; or NEVER."""
    qos: int = 0
    client: str = ""
    """Client identifier of the publisher."""
    properties: bytes = b""
    """Properties as in PUBLISH, without the property length."""
    payload: bytes = b""
    """Payload; empty for a deletion."""

    @property
    def mark(self) -> int:
        """Number by which entries are compared. Equal entries have the same mark, whatever their
        `expires_in`, which counts down. Of two entries of a topic, the entry with the higher mark
        is valid.
        """
        encoded = _encoded(self, 0)
        return self.version << 64 | int.from_bytes(blake2b(encoded, digest_size=8).digest())


def encode(entry: Entry) -> bytes:
    return _encoded(entry, entry.expires_in)


def _encoded(entry: Entry, expires_in: int) -> bytes:
    topic, client = entry.name.encode(), entry.client.encode()
    sizes = len(topic), len(client), len(entry.properties), len(entry.payload)
    head = _HEAD.pack(entry.version, expires_in, entry.qos, *sizes)
    return b"".join((head, topic, client, entry.properties, entry.payload))


def decode(body: bytes, most: int) -> Iterator[Entry]:
    """Yield the entries in `body`. Raises SiteError if an entry is invalid, or there are more than
    `most`.
    """
    at = 0
    try:
        while at < len(body):
            if (most := most - 1) < 0:
                raise SiteError("too many retained messages in a frame")
            version, expires_in, qos, *sizes = _HEAD.unpack_from(body, at)
            at += _HEAD.size
            fields = []
            for size in sizes:
                fields.append(body[at : at + size])
                at += size
            if at > len(body):
                raise SiteError("a retained message that is cut off")
            topic, client, properties, payload = fields
            yield _checked(
                Entry(
                    topic.decode(), version, expires_in, qos, client.decode(), properties, payload
                )
            )
    except (StructError, UnicodeDecodeError, MqttError) as error:
        raise SiteError(f"cannot read a retained message ({error})") from error


def _checked(entry: Entry) -> Entry:
    if problem := topic_name_problem(entry.name):
        raise SiteError(f"a topic that {problem}")
    if not 0 < entry.version <= MOST_VERSION or entry.qos > 2 or not entry.expires_in:
        raise SiteError("a retained message whose version, QoS or expiry is out of range")
    if not entry.payload and entry.expires_in == NEVER:
        raise SiteError("the deletion of a retained message has no expiry")
    if entry.properties:
        block = encode_varint(len(entry.properties)) + entry.properties
        check_response_topic(decode_properties(Reader(block, "retained"), _PROPERTIES), "retained")
    return entry
