"""The memory of a process at rest, of connected clients that do nothing, and of a sender that never
sends PUBREL.

Figures are resident memory from /proc. Both ends of the connections are on this machine. The
kernel's memory for sockets does not count.
"""

import resource
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.brokers import BrokerProcess, side_by_side
from tests.benchmarks.load import PUBREC, Peer, publish_packet
from tests.benchmarks.report import Figure, main

CLIENTS = 10_000
HELD = 1000
"""Number of messages that the sender publishes without PUBREL, which is Onceway's Receive
Maximum.
"""
PAYLOAD = 100_000


def allow_files(count: int) -> None:
    """Let this process and its children have up to `count` open files. Raises OSError if the system
    forbids it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(count, hard)))


def settled(broker: BrokerProcess) -> int:
    """Wait until the resident memory is the same in three successive looks, at most 5 s. Return the
    resident memory in bytes.
    """
    seen = [broker.memory]
    for _ in range(20):
        time.sleep(0.25)
        seen.append(broker.memory)
        if len(seen) > 3 and max(seen[-3:]) == min(seen[-3:]):
            break
    return seen[-1]


def at_rest(broker: BrokerProcess) -> float:
    """Return the resident memory of a broker at rest, in MB."""
    return settled(broker) / 1e6


def held(broker: BrokerProcess, messages: int, payload: int) -> float:
    """Return the growth of memory per byte of payload, when a sender publishes messages at QoS 2
    and never sends PUBREL.
    """
    sender = Peer(broker.port)
    before = settled(broker)
    for number in range(1, messages + 1):
        sender.socket.sendall(publish_packet(2, number, bytes(payload)))
        assert sender.expect(PUBREC)[2:4] == number.to_bytes(2, "big")
    grown = settled(broker) - before
    sender.leave()
    return max(0, grown) / (messages * payload)


def idle(broker: BrokerProcess, clients: int) -> float:
    """Return the growth of memory for each connected client, in kB."""
    before = settled(broker)
    peers = [Peer(broker.port, keep_alive=600) for _ in range(clients)]
    grown = settled(broker) - before
    for peer in peers:
        peer.leave()
    return grown / clients / 1000


def both(folder: Path, once: Callable[[BrokerProcess], float]) -> tuple[float, float | None]:
    """Measure a new process of each broker. Return the figures of Onceway and of the peer."""
    with side_by_side(folder) as brokers:
        ours, theirs = (*(once(broker) for broker in brokers), None)[:2]
    assert ours is not None
    return ours, theirs


def measure(folder: Path, clients: int = CLIENTS, messages: int = HELD) -> list[Figure]:
    allow_files(clients + 1000)
    rest, peer_rest = both(folder / "rest", at_rest)
    alone, peer_alone = both(folder / "held", lambda broker: held(broker, messages, PAYLOAD))
    each, peer_each = both(folder / "idle", lambda broker: idle(broker, clients))
    return [
        Figure("memory at rest", rest, "MB", "≤ 45", peer_rest),
        Figure(
            "memory per payload byte of a sender without PUBREL", alone, "B", "< 0.01", peer_alone
        ),
        Figure(f"memory per idle client, {clients:,} clients", each, "kB", "≤ 12", peer_each),
    ]


if __name__ == "__main__":
    main(measure)
