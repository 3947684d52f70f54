"""Streams of bytes that a client may send: input of the fuzzers and of hypothesis for a broker, and
the promises that hold afterwards.

In: the bytes of one connection. Out: what the broker wrote, and why it closed; an exception if a
promise is broken. An MqttError while the broker's own packets are read is one, too.
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
"""Well-formed packets of clients, to start from."""


@dataclass(frozen=True, slots=True)
class Manner:
    """The way in which bytes arrive. greeted: after a CONNECT that was accepted. kept: its session
    outlives the connection. singly: each byte on its own. slow: the disk commits only after all of
    them.
    """

    version: Version
    greeted: bool
    kept: bool
    singly: bool
    slow: bool
    client: str = "c"

    @classmethod
    def of(cls, number: int) -> "Manner":
        """Return one of the 256 manners by its number."""
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
    """Bring bytes on a connection of their own. Returns what the broker wrote, and why it
    closed.
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
        client.deaf = True  # in which version the broker answers, only the bytes know
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
