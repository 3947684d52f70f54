"""The cost of a PUBLISH with few and with many subscriptions that do not match.

Each message has a new topic without a subscriber, so that the broker can reuse nothing. Half of the
filters have a wildcard. The figure is the broker's CPU time for a message with many filters, as a
multiple of that with few.
"""

from itertools import chain
from pathlib import Path

from tests.benchmarks.brokers import BrokerProcess, side_by_side
from tests.benchmarks.load import PUBACK, Peer, new_topics, publish_packet
from tests.benchmarks.report import Figure, main
from tests.benchmarks.side import in_turns

FEW, MANY = 100, 100_000
MESSAGES = 20_000
ROUNDS = 3
_BATCH = 100
_PER_CLIENT = 1000


def subscribe(broker: BrokerProcess, first: int, last: int) -> list[Peer]:
    """Return clients that subscribe to the filters with the numbers from `first` to `last` - 1."""
    peers = []
    for start in range(first, last, _PER_CLIENT):
        peer = Peer(broker.port)
        numbers = range(start, min(last, start + _PER_CLIENT))
        peer.subscribe(
            [
                b"plant/%d/+/state" % number if number % 2 else b"plant/%d/pump/state" % number
                for number in numbers
            ],
            1,
        )
        peers.append(peer)
    return peers


def cost(broker: BrokerProcess, messages: int) -> float:
    """Return the CPU time for a message at QoS 1 to a new topic, in µs."""
    publisher = Peer(broker.port)
    topics = new_topics(messages)
    batches = [
        b"".join(publish_packet(1, 1, topic=topic) for topic in topics[at : at + _BATCH])
        for at in range(0, messages, _BATCH)
    ]
    before = broker.cpu_s
    for batch in batches:
        publisher.socket.sendall(batch)
        data = publisher.socket.recv(65536)
        size = 2 + data[1]  # the peer's PUBACK says that there is no subscriber
        while len(data) < size * _BATCH:
            data += publisher.socket.recv(65536)
        assert data[::size].count(PUBACK) == _BATCH, data[:80].hex()
    spent = broker.cpu_s - before
    publisher.leave()
    return spent / messages * 1e6


def measure(
    folder: Path, few: int = FEW, many: int = MANY, messages: int = MESSAGES, rounds: int = ROUNDS
) -> list[Figure]:
    with side_by_side(folder) as brokers:
        for broker in brokers:
            cost(broker, messages)
        peers = [subscribe(broker, 0, few) for broker in brokers]
        ((before, peer_before),) = in_turns(
            brokers, rounds, lambda broker: (cost(broker, messages),)
        )
        peers += [subscribe(broker, few, many) for broker in brokers]
        ((after, peer_after),) = in_turns(brokers, rounds, lambda broker: (cost(broker, messages),))
        for peer in chain.from_iterable(peers):
            peer.leave()
    peer = peer_after / peer_before if peer_after and peer_before else None
    return [
        Figure(
            f"publish with {many:,} filters that do not match, × with {few}",
            after / before,
            "×",
            "≤ 1.2",
            peer,
        )
    ]


if __name__ == "__main__":
    main(measure)
