"""A run: publications of one connection that arrived together and differ only in packet identifier
and payload; and their topic.

In: a run of PUBLISH packets from the receive buffer, a decoded PUBLISH, or a row of the store. Out:
its weight against bounds, its row in the store, and the bytes that its packets for a receiver
share (`gateway/mqtt/runs.py` makes the packets).

Most runs contain one publication. A run of a busy publisher contains dozens. Checks, routing,
storage and encoding take one step per run, not one per publication, which makes Python fast enough.
"""

from typing import Protocol

from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import Publishes, publish_shape
from gateway.mqtt.topics import SHARE_PREFIX
from gateway.system.usage import Account, Origin

OVERHEAD = 64
"""Bytes that are counted for a queued message in addition to its payload. Properties, and the part
of a topic name beyond this length, are counted as well."""

_KNOWN_SHAPES = 4
"""Largest number of cached PUBLISH headers (the bytes before the payload) for one topic."""


NOTICES = f"{SHARE_PREFIX}onceway/journeys"
"""Topic of the gateways' messages about sessions that move. The name looks like a shared
subscription, so no client can publish or subscribe to it."""


class Topic:
    __slots__ = ("indexed", "name", "refused", "shapes", "spooled", "stale", "wire")

    def __init__(self, name: str, wire: bytes) -> None:
        self.name = name
        self.wire = wire
        """The name in its encoded form, with its length in front."""
        self.shapes: dict[tuple[int, bool, int], tuple[bytes, bytes]] = {}
        """Cached results of `PublishRun.shape`, by first byte, MQTT 5 or not, and payload size."""
        self.indexed = False
        """Whether the router marks the topic as stale when its routes change."""
        self.stale = True
        """Whether routes, `spooled` and `refused` are outdated after a change of subscriptions."""
        self.spooled = False
        """Whether messages of the topic are spooled for the uplink."""
        self.refused: ReasonCode | None = None
        """Reason why messages of the topic are refused, or None."""


class Publisher(Protocol):
    """The session that a run comes from."""

    @property
    def account(self) -> Account | None:
        """Account of the session; None for the session of a board."""

    @property
    def origin(self) -> Origin | None:
        """User or address for which the session's use of resources is counted. None for the session
        of a board or of the gateway itself.
        """

    @property
    def foreign(self) -> bool:
        """Whether the publisher is the session of a peer gateway."""


class PublishRun(Publishes[Topic]):
    """A run of publications on its way through the broker."""

    __slots__ = ("expires", "message", "properties", "publisher", "weight", "written")

    def __init__(
        self,
        topic: Topic,
        raw: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        ids: tuple[int, ...] = (),
        count: int = 1,
        stride: int = 0,
        id_at: int = 0,
        payload_at: int = 0,
        properties: bytes = b"",
        expires: float | None = None,
        publisher: Publisher | None = None,
    ) -> None:
        # super() is not called, because a run is created for nearly every message
        self.topic = topic
        self.raw = raw
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.ids = ids
        self.count = count
        self.stride = stride or len(raw)
        self.size = self.stride - payload_at
        self.id_at = id_at
        self.payload_at = payload_at
        self.weight = self.size
        """Size of one publication as counted against bounds, in bytes: payload, properties, and the
        part of the topic name that OVERHEAD does not include."""
        if properties or len(topic.wire) > OVERHEAD:
            self.weight += len(properties) + max(0, len(topic.wire) - OVERHEAD)
        self.properties = properties
        """Encoded properties that MQTT 5 passes on unchanged, without the property length."""
        self.expires = expires
        """Time of expiry on the broker's time axis, or None."""
        self.publisher = publisher
        """Session of the publisher; None if the gateway publishes, or a will without a session."""
        self.message = 0
        """Id of the run's row in the store, 0 if no queue row needs one."""
        self.written = False
        """Whether the run's row is in the store or in a sealed commit."""

    def body(self) -> bytes:
        """Return all payloads joined, as the store keeps them."""
        if self.count == 1:
            return self.raw[self.payload_at :]
        return b"".join(self.payloads()) if self.payload_at else self.raw

    def part(self, skip: int, count: int) -> "PublishRun":
        """Return `count` publications from index `skip` on as a new run."""
        return PublishRun(
            self.topic,
            self.raw[skip * self.stride : (skip + count) * self.stride],
            self.qos,
            self.retain,
            self.dup,
            self.ids[skip : skip + count],
            count,
            self.stride,
            self.id_at,
            self.payload_at,
            self.properties,
            self.expires,
            self.publisher,
        )

    def shape(
        self, first: int, version5: bool, extra: bytes, name: bytes | None = None
    ) -> tuple[bytes, bytes]:
        """Return the bytes that this run's PUBLISH packets share: before the packet identifier, and
        from there to the payload. first: the packet's first byte. extra: encoded properties for
        this receiver only. name: bytes in place of the topic name, if an alias is used.
        """
        topic = self.topic
        if self.properties or extra:
            return publish_shape(
                first,
                version5,
                topic.wire if name is None else name,
                self.properties + extra,
                self.size,
            )
        key = (first, version5, self.size)
        shape = topic.shapes.get(key)
        if shape is None:
            if len(topic.shapes) >= _KNOWN_SHAPES:
                topic.shapes.clear()
            shape = topic.shapes[key] = publish_shape(first, version5, topic.wire, b"", self.size)
        return shape
