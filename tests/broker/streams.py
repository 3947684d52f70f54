"""Streams of bytes that a client may send, for fuzzers and hypothesis, and the promises that hold
after any of them.

In: the bytes of one connection. Out: the bytes that the broker wrote, and why it closed the
connection. An exception is raised if a promise is broken, and MqttError if the broker's own packets
are invalid.
"""

from dataclasses import dataclass

from gateway.mqtt.packets import Connect, Side, Version
from tests.broker.harness import FOREVER, World
from tests.mqtt.examples import EXAMPLES

PACKETS = {
    version: [
        item.data for item in EXAMPLES if (item.version, item.sender) == (version, Side.CLIENT)
    ]
    for version in Version
}
"""Valid packets of clients, by version."""


@dataclass(frozen=True, slots=True)
class Manner:
    """The way in which the bytes of a connection arrive. greeted: the bytes follow an accepted
    CONNECT. kept: the session outlives the connection. singly: the bytes arrive one by one. slow:
    the disk commits only after all bytes have arrived.
    """

    version: Version
    greeted: bool
    kept: bool
    singly: bool
    slow: bool
    client: str = "c"

    @classmethod
    def of(cls, number: int) -> "Manner":
        """Return the manner with this number, 0 to 255."""
        version = list(Version)[(number >> 6) % 3]
        return cls(
            version,
            not number & 1,
            bool(number & 2),
            bool(number & 4),
            bool(number & 8),
            f"c{number >> 4 & 3}",
        )


def feed(world: World, data: bytes, manner: Manner) -> tuple[bytes, str | None]:
    """Send the bytes on a connection of their own. Return the bytes that the broker wrote, and why
    it closed the connection (None if it did not).
    """
    client = world.open(manner.version)
    connection = client.connection
    if manner.greeted:
        v5 = manner.version == Version.V5
        client.send(
            Connect(
                manner.client,
                manner.version,
                not manner.kept,
                properties=FOREVER if v5 and manner.kept else None,
            )
        )
    else:
        client.deaf = True  # only the bytes say in which version the broker answers
    world.slow_disk = manner.slow
    for piece in [data[at : at + 1] for at in range(len(data))] if manner.singly else [data]:
        if client.closed:
            break
        client.send_bytes(piece)
    world.slow_disk = False
    world.commit()
    reason = connection.closing
    if not client.closed:
        client.drop()
    world.commit()
    check(world)
    return client.raw, reason


def check(world: World) -> None:
    """Check the promises that hold after any input."""
    broker = world.broker
    assert broker.queued == sum(session.send_flow.size for session in broker.sessions.values()), (
        "the sum of the queues is wrong"
    )
    assert not broker.connections, "a connection was not forgotten"
    assert all(session.durable for session in broker.sessions.values()), (
        "a session outlived its connection"
    )
    assert not broker.changes.urgent, "somebody waits for nothing"
