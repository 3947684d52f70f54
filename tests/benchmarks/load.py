"""Publishers and subscribers that need almost no CPU time, so that the broker is the bottleneck.

In: a port, a QoS, the number of messages in flight, and a duration. Out: messages a second, from
the first PUBLISH to the end of the last exchange. Every sent message must have arrived at every
subscriber. Packets of one kind differ only in their identifier, so runs of packets are read and
written by slices of bytes. MQTT 5, and payloads of 32 bytes.
"""

import itertools
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

PAYLOAD = bytes(range(32))
IDS = 65535
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
STALLED_S = 20
_FAREWELL = b"\xe0\7\0\5\x11\0\0\0\0"
"""DISCONNECT with Session Expiry Interval 0, so that no session remains for the next
measurement.
"""

_numbers = itertools.count()


class Stalled(Exception):
    """The broker made no progress for STALLED_S."""


def connect_packet(
    client_id: str, clean: bool, receive_maximum: int = 65535, keep_alive: int = 0
) -> bytes:
    properties = b"" if clean else b"\x11" + struct.pack(">I", 3600)
    properties += b"\x21" + struct.pack(">H", receive_maximum)
    head = b"\0\4MQTT\5" + struct.pack(">BHB", 2 if clean else 0, keep_alive, len(properties))
    body = head + properties + struct.pack(">H", len(client_id)) + client_id.encode()
    return bytes((0x10, len(body))) + body


def subscribe_packet(topics: Sequence[bytes], qos: int) -> bytes:
    body = b"\0\1\0" + b"".join(
        struct.pack(">H", len(topic)) + topic + bytes((qos,)) for topic in topics
    )
    return b"\x82" + varint(len(body)) + body


def publish_packet(
    qos: int,
    packet_id: int = 1,
    payload: bytes = PAYLOAD,
    topic: bytes = b"site/7/sensor/12/temperature",
) -> bytes:
    body = (
        struct.pack(">H", len(topic))
        + topic
        + (struct.pack(">H", packet_id) if qos else b"")
        + b"\0"
        + payload
    )
    return bytes((0x30 | qos << 1,)) + varint(len(body)) + body


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def new_topics(count: int = 1) -> list[bytes]:
    """Return `count` topics of equal length that no earlier measurement has used."""
    site = next(_numbers)
    return [b"site/%06d/sensor/%04d/value" % (site, number) for number in range(count)]


@cache
def packets_of(qos: int, topics: tuple[bytes, ...], count: int = IDS) -> bytes:
    """Return PUBLISH packets with the packet identifiers 1 to `count`, whose topics are used in
    turn.
    """
    round_of_all = b"".join(publish_packet(qos, topic=topic) for topic in topics)
    size = len(round_of_all) // len(topics)
    packets = bytearray(round_of_all * (count // len(topics) + 1))[: count * size]
    if qos:
        ids = struct.pack(f">{count}H", *range(1, count + 1))
        at = 4 + len(topics[0])
        packets[at::size], packets[at + 1 :: size] = ids[0::2], ids[1::2]
    return bytes(packets)


class Peer:
    """A client's connection. unread: bytes of an incomplete packet. complete: number of messages
    whose exchange has ended.
    """

    def __init__(
        self, port: int, clean: bool = True, keep_alive: int = 0, client: str = ""
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""
        self.complete = 0
        self.socket.sendall(
            connect_packet(client or f"bench-{next(_numbers)}", clean, keep_alive=keep_alive)
        )
        assert self.expect(0x20)[3] == 0, "CONNECT refused"

    def expect(self, first: int) -> bytes:
        """Wait for the next packet, which must have this first byte. Return it."""
        self.socket.settimeout(STALLED_S)
        data = self.unread
        while len(data) < 2 or len(data) < 2 + data[1]:
            more = self.socket.recv(4096)
            assert more, "the broker closed the connection"
            data += more
        size = 2 + data[1]
        assert data[0] == first, data[:size].hex()
        self.unread = data[size:]
        self.socket.settimeout(None)
        return data[:size]

    def subscribe(self, topics: Sequence[bytes], qos: int) -> None:
        self.socket.sendall(subscribe_packet(topics, qos))
        self.socket.settimeout(STALLED_S)
        answer = b""
        while len(answer) < 2 + len(topics):
            answer += self.socket.recv(65536)
        assert answer[0] == 0x90, answer[:80].hex()
        assert max(answer[-len(topics) :]) <= qos, "a subscription was refused"
        self.socket.settimeout(None)

    def read(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed the connection")
        return self.unread + data

    def leave(self) -> None:
        self.socket.sendall(_FAREWELL)
        self.socket.close()


class Publisher(Peer):
    """A client that publishes. sent: number of messages so far. answers: acknowledgements that are
    sent together with the next messages, as by a client that is busy between two writes.
    """

    def __init__(
        self, port: int, topics: Sequence[bytes], qos: int, clean: bool, ids: int = IDS
    ) -> None:
        """ids: number of packet identifiers that are used in turn."""
        super().__init__(port, clean)
        self.qos = qos
        self.ids = ids
        self.packets = packets_of(qos, tuple(topics), ids)
        self.size = len(self.packets) // ids
        self.sent = 0
        self.answers = b""

    def publish(self, count: int) -> None:
        """Send the waiting acknowledgements, and `count` messages."""
        data, self.answers = self.answers, b""
        while count > 0:
            start = self.sent % self.ids
            step = min(count, self.ids - start)
            data += self.packets[start * self.size : (start + step) * self.size]
            self.sent += step
            count -= step
        if data:
            self.socket.sendall(data)

    def on_readable(self) -> None:
        data = self.read()
        end = len(data) // 4 * 4
        kinds = data[0:end:4]
        if self.qos == 1:
            assert kinds.count(PUBACK) == len(kinds), data[:80].hex()
            self.complete += len(kinds)
        else:
            at = 0
            while at < end:
                count = run(kinds, at // 4)
                if data[at] == PUBREC:
                    answer = bytearray(data[at : at + 4 * count])
                    answer[::4] = bytes((PUBREL,)) * count
                    self.answers += answer
                else:
                    assert data[at] == PUBCOMP, data[at : at + 8].hex()
                    self.complete += count
                at += 4 * count
        self.unread = data[end:]


class Subscriber(Peer):
    """A client that counts and acknowledges the messages it receives. received: number of PUBLISH
    packets so far.
    """

    def __init__(
        self,
        port: int,
        topics: Sequence[bytes],
        qos: int,
        clean: bool,
        filters: Sequence[bytes] = (),
    ) -> None:
        """topics: topics of the expected messages, all of the same length. filters: Topic Filters
        to subscribe to; without them, the topics.
        """
        super().__init__(port, clean)
        self.subscribe(filters or topics, qos)
        self.qos = qos
        self.id_at = 4 + len(topics[0])
        self.size = len(publish_packet(qos, topic=topics[0]))
        self.received = 0

    def on_readable(self) -> None:
        data = self.read()
        size, at, end = self.size, 0, len(data)
        while at < end:
            if data[at] & 0xF0 == 0x30:
                if end - at < size:
                    break
                count = min(run(data[at::size], 0), (end - at) // size)
                self.received += count
                if self.qos:
                    answer = bytearray(
                        bytes((PUBACK if self.qos == 1 else PUBREC, 2, 0, 0)) * count
                    )
                    stop, where = at + count * size, at + self.id_at
                    answer[2::4], answer[3::4] = (
                        data[where:stop:size],
                        data[where + 1 : stop : size],
                    )
                    self.socket.sendall(answer)
                if self.qos < 2:
                    self.complete += count
                at += count * size
            else:
                if end - at < 4:
                    break
                assert data[at] == PUBREL, data[at : at + 8].hex()
                count = min(run(data[at::4], 0), (end - at) // 4)
                answer = bytearray(data[at : at + 4 * count])
                answer[::4] = bytes((PUBCOMP,)) * count
                self.socket.sendall(answer)
                self.complete += count
                at += 4 * count
        self.unread = data[at:]


def run(kinds: bytes, at: int) -> int:
    """Return the length of the run of equal bytes that begins at `at`."""
    rest = kinds[at:] if at else kinds
    return len(rest) - len(rest.lstrip(rest[:1]))


@dataclass(frozen=True, slots=True)
class Throughput:
    """The result of a load. messages: number published. seconds: until the end of the last
    exchange. busy: part of this time for which this process was on a CPU; near 1, this process was
    the bottleneck.
    """

    messages: int
    seconds: float
    busy: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


def drive(
    publishers: Sequence[Publisher],
    subscribers: Sequence[Subscriber],
    seconds: float,
    window: int,
    behind: int,
) -> Throughput:
    """Publish for `seconds`, then wait until all exchanges have ended. window: messages in flight
    of each publisher at QoS 1 or 2. behind: messages that a subscriber may be behind, on average.
    With many publishers, `behind` is at least the sum of their windows.
    """
    poll = selectors.DefaultSelector()
    for peer in (*publishers, *subscribers):
        poll.register(peer.socket, selectors.EVENT_READ, peer)
    qos, readers = publishers[0].qos, len(subscribers)
    started, busy = time.perf_counter(), time.process_time()
    deadline = started + seconds
    sent = arrived = 0
    turn: Sequence[Publisher] = publishers
    while True:
        over = time.perf_counter() >= deadline
        slack = 0 if over else behind - sent + arrived // readers
        for publisher in turn:
            room = max(
                0, min(window - publisher.sent + publisher.complete if qos else window, slack)
            )
            publisher.publish(room)
            sent += room
            slack -= room
        if (
            over
            and arrived == sent * readers
            and (not qos or all(peer.complete == peer.sent for peer in publishers))
        ):
            break
        events = poll.select(STALLED_S)
        if not events:
            ended = sum(peer.complete for peer in publishers)
            raise Stalled(
                f"{arrived} of {sent * readers} arrived, {ended} of {sent} exchanges ended"
            )
        for key, _ in events:
            before = key.data.complete
            key.data.on_readable()
            if isinstance(key.data, Subscriber):
                arrived += key.data.complete - before
        if qos and len(publishers) > 1:
            turn = [key.data for key, _ in events if isinstance(key.data, Publisher)]
    elapsed = time.perf_counter() - started
    return Throughput(sent, elapsed, (time.process_time() - busy) / elapsed)


def throughput(
    port: int,
    qos: int,
    clean: bool,
    seconds: float,
    *,
    window: int = 100,
    behind: int = 20_000,
    topics: int = 1,
    publishers: int = 1,
    subscribers: int = 1,
) -> Throughput:
    """Measure the throughput with new clients and topics. topics: number of topics that are used in
    turn.
    """
    names = new_topics(topics)
    readers = [Subscriber(port, names, qos, clean) for _ in range(subscribers)]
    writers = [Publisher(port, names, qos, clean) for _ in range(publishers)]
    try:
        return drive(writers, readers, seconds, window, behind)
    finally:
        for peer in (*writers, *readers):
            peer.leave()
        packets_of.cache_clear()


@contextmanager
def devices(port: int, qos: int, count: int) -> Iterator[Callable[[float], Throughput]]:
    """Connect `count` devices, each with its own topic and one message in flight, and one
    subscriber to all of them. The sessions are persistent. Yield a function that lets the devices
    publish for some seconds.
    """
    site = next(_numbers)
    topics = [b"sensors/%06d/%06d/value" % (site, number) for number in range(count)]
    reader = Subscriber(port, topics, qos, False, [b"sensors/%06d/#" % site])
    writers = [Publisher(port, [topic], qos, False, ids=100) for topic in topics]
    try:
        yield partial(drive, writers, [reader], window=1, behind=count + 1000)
    finally:
        for peer in (*writers, reader):
            peer.leave()
        packets_of.cache_clear()
