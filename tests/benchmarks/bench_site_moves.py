"""The costs of a site of two gateways.

The wait of a client whose session is at the other gateway: alone, with a long queue, and when all
clients move at once. The cost for clients that stay, and for an idle member. The rate of messages
to subscribers at the other gateway. The delay of acknowledgements that also wait for the other
gateway's disk (`copies = 2`). Both gateways run on this machine, with mutual TLS between them on
loopback.
"""

import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from gateway.commands import control_client as control
from tests.benchmarks.brokers import START_S, BrokerProcess, onceway
from tests.benchmarks.load import (
    Peer,
    Publisher,
    Subscriber,
    Throughput,
    connect_packet,
    devices,
    drive,
    new_topics,
    publish_packet,
    throughput,
)
from tests.benchmarks.report import Figure, main
from tests.benchmarks.side import Ratio, ratio
from tests.site.members import Site

MOVES = 60
QUEUED = 10_000
CLIENTS = 10_000
SECONDS = 3.0
ROUNDS = 4
PAIRS = 40
_CROWD_S = 120
_PROBE_S = 0.02
_NAMES = ("a", "b")


@contextmanager
def pair(folder: Path, more: str = "", spooled: str = "sensors/#") -> Iterator[list[BrokerProcess]]:
    """Yield two gateways that are linked. more: keys of [site]. spooled: topic filter of the
    spool.
    """
    site = Site(folder / "certificates", *_NAMES)
    members = "\n".join(f'{name} = "{at}"' for name, at in site.addresses.items())
    with ExitStack() as stack:
        found = [
            stack.enter_context(
                onceway(
                    folder / name,
                    f'[site]\nfolder = "{site.of(name)}"\nbind = "{site.addresses[name]}"\n'
                    f"{more}[site.members]\n{members}\n",
                    spooled=spooled,
                    name=name,
                )
            )
            for name in _NAMES
        ]
        ends = time.monotonic() + START_S
        while not all(row["lease"] for name in _NAMES for row in status(folder, name)[1:]):
            assert time.monotonic() < ends, "the gateways have no link"
            assert all(broker.process.poll() is None for broker in found), "a gateway has ended"
            time.sleep(0.05)
        yield found


def status(folder: Path, name: str) -> list[control.Row]:
    return control.ask(folder / name / "data", do="site")


def calls(folder: Path) -> int:
    return sum(status(folder, name)[0]["figures"]["calls"] for name in _NAMES)


def filters(folder: Path) -> int:
    """Return the number of filters of the other member's clients that the first member knows."""
    return int(status(folder, _NAMES[0])[0]["figures"]["filters"])


def one_by_one(brokers: list[BrokerProcess], count: int) -> float:
    """Return the median time from CONNECT to CONNACK of a client that moves to the other gateway,
    in seconds.
    """
    Peer(brokers[1].port, clean=False, client="wanderer").socket.close()
    times = []
    for turn in range(count):
        began = time.perf_counter()
        peer = Peer(brokers[turn % 2].port, clean=False, client="wanderer")
        times.append(time.perf_counter() - began)
        peer.socket.close()
        time.sleep(0.05)
    return statistics.median(times)


def long_queue(brokers: list[BrokerProcess], queued: int) -> tuple[float, float]:
    """Let a client with `queued` messages move. Return the seconds until its CONNACK, and until it
    has all messages.
    """
    topics = new_topics()
    reader = Peer(brokers[0].port, clean=False, client="reader")
    reader.subscribe(topics, 1)
    reader.socket.close()
    publisher = Publisher(brokers[0].port, topics, 1, True)
    while publisher.complete < queued:
        publisher.publish(min(100, queued - publisher.sent))
        publisher.on_readable()
    publisher.leave()
    began = time.perf_counter()
    reader = Peer(brokers[1].port, clean=False, client="reader")
    accepted = time.perf_counter() - began
    size, got = len(publish_packet(1, topic=topics[0])), 0
    data = reader.unread
    while got < queued:
        count, rest = divmod(len(data), size)
        at = 4 + len(topics[0])
        acks = bytearray(b"\x40\2\0\0" * count)
        acks[2::4], acks[3::4] = data[at : count * size : size], data[at + 1 : count * size : size]
        reader.socket.sendall(acks)
        got += count
        data = data[len(data) - rest :]
        if got < queued:
            data += reader.socket.recv(1 << 20)
    return accepted, time.perf_counter() - began


class Crowd:
    """Clients that all connect at the same time. took: seconds until the last client was accepted.
    present: number of clients that found their session. waits: seconds that each PUBLISH of another
    client waited for its PUBACK meanwhile.
    """

    def __init__(self, port: int, clients: int) -> None:
        self._port = port
        self._left = [f"crowd-{number}" for number in range(clients)]
        self._probe = Peer(port)
        self._asked: float | None = None
        self._poll = selectors.DefaultSelector()
        self._poll.register(self._probe.socket, selectors.EVENT_READ)
        self.waits: list[float] = []
        self.present = answered = 0
        began = time.perf_counter()
        while answered < clients and time.perf_counter() < began + _CROWD_S:
            self._open()
            if self._asked is None and time.perf_counter() - began > len(self.waits) * _PROBE_S:
                self._asked = time.perf_counter()
                self._probe.socket.sendall(publish_packet(1))
            answered += sum(map(self._read, self._poll.select(_PROBE_S)))
        self.took = time.perf_counter() - began
        self._probe.leave()

    def _open(self) -> None:
        for _ in range(min(50, len(self._left))):
            link = socket.create_connection(("127.0.0.1", self._port))
            link.sendall(connect_packet(self._left.pop(), False))
            self._poll.register(link, selectors.EVENT_READ)

    def _read(self, event: tuple[selectors.SelectorKey, int]) -> bool:
        """Read an answer. Return whether it accepts a client."""
        link = event[0].fileobj
        assert isinstance(link, socket.socket)
        answer = link.recv(4096)
        if link is self._probe.socket:
            assert self._asked is not None
            self.waits.append(time.perf_counter() - self._asked)
            self._asked = None
            return False
        self._poll.unregister(link)
        link.close()
        assert answer[:1] == b"\x20", answer
        assert not answer[3], "CONNECT refused"
        self.present += answer[2]
        return True

    @property
    def p99(self) -> float:
        return sorted(self.waits)[int(len(self.waits) * 0.99)] if self.waits else 0.0


@contextmanager
def one_way(port: int) -> Iterator[Callable[[float], Throughput]]:
    """Connect two clients at one gateway. Yield a function by which one of them sends to the other
    at QoS 2 for some seconds.
    """
    topics = new_topics()
    reader = Subscriber(port, topics, 2, True)
    writer = Publisher(port, topics, 2, True)
    try:
        yield partial(drive, [writer], [reader], window=20, behind=1000)
    finally:
        reader.leave()
        writer.leave()


def price(
    folder: Path, member: BrokerProcess, alone: BrokerProcess, seconds: float, pairs: int
) -> tuple[Ratio, int]:
    """Return the CPU time of a message at a member whose clients do not move, as a multiple of the
    CPU time at a lone gateway. Also return the number of calls between members during the
    measurements. seconds: length of each measurement.
    """
    found = []
    with one_way(member.port) as here, one_way(alone.port) as there:
        said = calls(folder)
        sides = [(member, here), (alone, there)]
        for turn in range(pairs + 1):
            used = {}
            for broker, publish in sides if turn % 2 else sides[::-1]:
                before = broker.cpu_s
                messages = publish(seconds).messages
                used[broker] = (broker.cpu_s - before) / messages
            found.append((used[member], used[alone]))
        said = calls(folder) - said
    return ratio(found[1:]), said  # the first pair fills caches


def idle(brokers: Sequence[BrokerProcess], seconds: float) -> list[float]:
    """Return the CPU time of each idle gateway, in % of a core."""
    before, began = [broker.cpu_s for broker in brokers], time.monotonic()
    time.sleep(seconds)
    used = [broker.cpu_s - start for broker, start in zip(brokers, before, strict=True)]
    return [100 * one / (time.monotonic() - began) for one in used]


def forward(folder: Path, brokers: list[BrokerProcess], seconds: float) -> float:
    """Return the number of QoS 1 messages a second from a client of one gateway to a persistent
    session at the other one. Both gateways store the messages.
    """
    topics = new_topics()
    known = filters(folder)
    reader = Subscriber(brokers[1].port, topics, 1, False)
    writer = Publisher(brokers[0].port, topics, 1, True)
    while filters(folder) == known:
        time.sleep(0.05)
    done = drive([writer], [reader], seconds, 1000, 20_000)
    reader.leave()
    writer.leave()
    return done.rate


def acknowledged(broker: BrokerProcess, seconds: float) -> tuple[float, float, float]:
    """Measure readings at QoS 1. Return the median time from PUBLISH to PUBACK without other load,
    in seconds; the rate of 100 devices with one in flight each; and the rate of one client with
    1,000 in flight.
    """
    (topic,) = new_topics()
    peer, times = Peer(broker.port), []
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        began = time.perf_counter()
        peer.socket.sendall(publish_packet(1, topic=topic))
        peer.expect(0x40)
        times.append(time.perf_counter() - began)
    peer.leave()
    with devices(broker.port, 1, 100) as publish:
        publish(seconds / 5)
        many = publish(seconds).rate
    return (
        statistics.median(times),
        many,
        throughput(broker.port, 1, True, seconds, window=1000).rate,
    )


def measure(
    folder: Path,
    moves: int = MOVES,
    queued: int = QUEUED,
    clients: int = CLIENTS,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
    pairs: int = PAIRS,
) -> list[Figure]:
    with pair(folder) as brokers:
        median = one_by_one(brokers, moves)
        accepted, whole = long_queue(brokers, queued)
        Crowd(brokers[0].port, clients)
        before = calls(folder)
        came = Crowd(brokers[1].port, clients)
        asked = calls(folder) - before
    with pair(folder / "cost") as brokers, onceway(folder / "alone", name="a") as alone:
        stayed, said = price(folder / "cost", brokers[0], alone, seconds / 10, pairs)
        *members, single = idle([*brokers, alone], 4 * seconds)
        forwarded = forward(folder / "cost", brokers, seconds)
    once: list[tuple[float, float, float]] = []
    twice: list[tuple[float, float, float]] = []
    with (
        pair(folder / "once", spooled="#") as one,
        pair(folder / "twice", "copies = 2\n", "#") as two,
    ):
        for turn in range(rounds):
            pairs = [(one[0], once), (two[0], twice)]
            for broker, found in pairs if turn % 2 else pairs[::-1]:
                found.append(acknowledged(broker, seconds))
    alone_s, alone_many, alone_one = map(statistics.median, zip(*once, strict=True))
    both_s, both_many, both_one = map(statistics.median, zip(*twice, strict=True))
    return [
        Figure("move of an empty session, median", median * 1000, "ms", "≤ 60"),
        Figure(f"move with {queued:,} queued messages", accepted, "s", "≤ 3"),
        Figure(f"move with {queued:,} queued messages, until all were read", whole, "s"),
        Figure(f"{clients:,} clients change at once: all resumed", came.took, "s", "≤ 60"),
        Figure(f"{clients:,} clients change at once: present", came.present, "", f"≥ {clients}"),
        Figure(f"{clients:,} clients change at once: calls", asked, "", f"< {clients + 1}"),
        Figure(f"{clients:,} clients change at once: publish p99", came.p99 * 1000, "ms", "≤ 200"),
        Figure("CPU of a message in a site, beside that alone", stayed.median, "×", "≤ 1.01"),
        Figure("the same, lower end of the 95 % interval", stayed.low, "×"),
        Figure("the same, upper end of the 95 % interval", stayed.high, "×"),
        Figure("CPU when nothing happens, alone", single, "% of a core"),
        Figure(
            "CPU when nothing happens, more in a site",
            max(0.0, statistics.mean(members) - single),
            "% of a core",
            "≤ 0.5",
        ),
        Figure("QoS 1 from one gateway to the other, durable on both", forwarded, "/s", "≥ 10,000"),
        Figure("calls for the messages of clients that stay", said, "", "≤ 0"),
        Figure("PUBACK of a reading, one disk, median", alone_s * 1000, "ms"),
        Figure("PUBACK of a reading, two disks, median", both_s * 1000, "ms"),
        Figure("QoS 1 of 100 devices, one disk", alone_many, "/s"),
        Figure("QoS 1 of 100 devices, two disks beside one", both_many / alone_many, "×"),
        Figure("QoS 1, 1,000 in flight, one disk", alone_one, "/s"),
        Figure("QoS 1, 1,000 in flight, two disks beside one", both_one / alone_one, "×"),
    ]


if __name__ == "__main__":
    main(measure)
