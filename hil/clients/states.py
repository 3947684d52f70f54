"""`python -m hil.clients.states`: a program that changes retained messages at one end of a bridge,
over MQTT 5. After all changes, it reads repeatedly which messages its broker retains, on the
topics of both ends. SIGTERM ends it.

First it sets some messages, and waits for a line on standard input, which says that both ends have
these messages. During the later changes it deletes these messages one by one, and sets other
messages repeatedly. A missed deletion can be proven only for a message that both ends had.

Each change is a PUBLISH at QoS 0, so a lost link loses it. A PUBLISH at QoS 1 follows on the same
connection, retained, so that the broker has to store this PUBLISH, too. Once it is acknowledged,
the change is stored. A change whose connection broke before that moment is repeated.

In: broker, end, number of topics and of changes. Out: JSON Lines on standard output:

- `ready` when it waits for the line;
- `changed` for each change that the broker has: topic and payload, in hex; "" is a deletion;
- `held` when all changes are made, and at each difference after that: payloads by topic.
"""

import random
import sys
import time
from contextlib import suppress
from typing import Annotated

import typer

from hil.clients.connection import Connection
from hil.clients.telling import tell
from hil.formats.packets import Answer, Connect, Packet, PacketError, Publish, Suback, Subscribe
from hil.formats.topics import STATES

WAIT_S = 0.5  # before the next connection, and between two looks
ANSWER_S = 20.0  # longest wait for an answer of the broker
QUIET_S = 0.5  # s without a message, after which all retained messages have come

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    port: Annotated[int, typer.Option(help="Port of the broker, on this machine.")],
    end: Annotated[str, typer.Option(help="Topic level below `states` that this client uses.")],
    states: Annotated[int, typer.Option(help="Number of topics.", min=1)],
    changes: Annotated[int, typer.Option(help="Number of changes.", min=1)],
    per_s: Annotated[float, typer.Option(help="Changes per second, at most.")],
    seed: Annotated[str, typer.Option(help="Seed: the same seed makes the same changes.")],
) -> None:
    """Set retained messages. After a line of input, change them. Report them at each change."""
    kept = [f"{STATES}/{end}/kept/{number}" for number in range(states)]
    make(port, end, [(topic, b"0") for topic in kept], per_s)
    tell("ready")
    sys.stdin.readline()
    make(port, end, drawn(end, kept, changes, random.Random(seed)), per_s)
    reported: dict[str, str] | None = None
    while True:
        with suppress(OSError, PacketError):
            if (now := retained(port, end)) != reported:
                reported = now
                tell("held", messages=reported)
        time.sleep(WAIT_S)


def drawn(end: str, kept: list[str], changes: int, rng: random.Random) -> list[tuple[str, bytes]]:
    """Return `changes` pairs of topic and payload. kept: topics that get an empty payload once."""
    made = [
        (f"{STATES}/{end}/{rng.randrange(len(kept))}", b"%d" % number)
        for number in range(1, changes - len(kept) + 1)
    ]
    for topic in kept:
        made.insert(rng.randrange(len(made) + 1), (topic, b""))
    return made


def make(port: int, end: str, changes: list[tuple[str, bytes]], per_s: float) -> None:
    """Make changes of retained messages in order. Repeat each until the broker has stored it."""
    rest = list(changes)
    while rest:
        try:
            with Connection(port, Connect(f"states-{end}")) as connection:
                while rest:
                    topic, payload = rest[0]
                    connection.send(Publish(topic, payload, retain=True))
                    connection.send(Publish(f"done/{end}", b"%d" % len(rest), 1, 1, retain=True))
                    wait_for(connection, Answer)
                    tell("changed", topic=topic, payload=payload.hex())
                    del rest[0]
                    time.sleep(1 / per_s)
        except (OSError, PacketError):
            time.sleep(WAIT_S)


def retained(port: int, end: str) -> dict[str, str]:
    """Return the payload, in hex, of each retained message below STATES at the broker, by topic."""
    found = {}
    with Connection(port, Connect(f"states-{end}")) as connection:
        connection.send(Subscribe(1, ((f"{STATES}/#", 0),)))
        packets: list[Packet] = wait_for(connection, Suback)
        while packets:
            for packet in packets:
                if isinstance(packet, Publish) and packet.retain:
                    found[packet.topic] = packet.payload.hex()
            packets = connection.receive(QUIET_S)
    return found


def wait_for(connection: Connection, kind: type[Packet]) -> list[Packet]:
    """Wait for a packet of this kind. Return the packets that arrived with it. Raises OSError if
    the broker sends nothing for ANSWER_S.
    """
    while packets := connection.receive(ANSWER_S):
        if any(isinstance(packet, kind) for packet in packets):
            return packets
    raise TimeoutError("the broker does not answer")


if __name__ == "__main__":
    app()
