"""One publisher and one subscriber that cost almost nothing, so that the broker is what is measured.

In: a port, a QoS, a window, a number of messages. Out: messages per second, from the first PUBLISH to the end of the last exchange.
Packets of one kind are alike in all but their identifier, so runs of them are read and written by slices of bytes. MQTT 5, 32-byte
payloads.
"""

import selectors
import socket
import struct
import time

TOPIC = b"site/7/sensor/12/temperature"
PAYLOAD = bytes(range(32))
IDS = 65535
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70


class Stalled(Exception):
    """The broker did not go on for 20 seconds."""


def connect_packet(client_id: str, clean: bool, receive_maximum: int = 65535) -> bytes:
    properties = b"" if clean else b"\x11" + struct.pack(">I", 3600)
    properties += b"\x21" + struct.pack(">H", receive_maximum)
    head = b"\0\4MQTT\5" + bytes((2 if clean else 0, 0, 0, len(properties)))
    body = head + properties + struct.pack(">H", len(client_id)) + client_id.encode()
    return bytes((0x10, len(body))) + body


def subscribe_packet(topic: bytes, qos: int) -> bytes:
    body = b"\0\1\0" + struct.pack(">H", len(topic)) + topic + bytes((qos,))
    return bytes((0x82, len(body))) + body


def publish_packet(qos: int, packet_id: int = 1, topic: bytes = TOPIC) -> bytes:
    body = struct.pack(">H", len(topic)) + topic + (struct.pack(">H", packet_id) if qos else b"") + b"\0" + PAYLOAD
    return bytes((0x30 | qos << 1, len(body))) + body


class Peer:
    """A connection. unread: bytes of a packet that is not all there."""

    def __init__(self, port: int, client_id: str, clean: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""
        self.socket.sendall(connect_packet(client_id, clean))
        assert self.expect(0x20)[3] == 0, "CONNECT refused"

    def expect(self, first: int) -> bytes:
        """Wait for a packet with this first byte and return it."""
        self.socket.settimeout(10)
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

    def read(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed the connection")
        return self.unread + data


class Publisher(Peer):
    """Keeps `window` messages in flight. complete: messages whose exchange has ended."""

    def __init__(self, port: int, qos: int, clean: bool) -> None:
        super().__init__(port, f"bench-publisher-{clean}", clean)
        self.qos = qos
        one = publish_packet(qos)
        self.size = len(one)
        if qos:
            packets = bytearray(one * IDS)
            at = 4 + len(TOPIC)
            ids = struct.pack(f">{IDS}H", *range(1, IDS + 1))
            packets[at :: self.size], packets[at + 1 :: self.size] = ids[0::2], ids[1::2]
            self.packets = bytes(packets)
        else:
            self.packets = one * IDS
        self.sent = 0
        self.complete = 0

    def publish(self, count: int) -> None:
        while count:
            start = self.sent % IDS
            step = min(count, IDS - start)
            self.socket.sendall(self.packets[start * self.size : (start + step) * self.size])
            self.sent += step
            count -= step

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
                    self.socket.sendall(answer)
                else:
                    assert data[at] == PUBCOMP, data[at : at + 8].hex()
                    self.complete += count
                at += 4 * count
        self.unread = data[end:]


class Subscriber(Peer):
    """Counts what arrives, and acknowledges it."""

    def __init__(self, port: int, qos: int, clean: bool, topic: bytes = TOPIC) -> None:
        super().__init__(port, f"bench-subscriber-{clean}", clean)
        self.socket.sendall(subscribe_packet(topic, qos))
        self.expect(0x90)
        self.qos = qos
        self.size = len(publish_packet(qos))
        self.received = 0
        self.complete = 0

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
                    answer = bytearray(bytes((PUBACK if self.qos == 1 else PUBREC, 2, 0, 0)) * count)
                    stop, where = at + count * size, at + 4 + len(TOPIC)
                    answer[2::4], answer[3::4] = data[where:stop:size], data[where + 1 : stop : size]
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
    """How many equal bytes stand from `at` on."""
    rest = kinds[at:] if at else kinds
    return len(rest) - len(rest.lstrip(rest[:1]))


def throughput(port: int, qos: int, clean: bool, window: int, messages: int) -> float:
    """Messages per second."""
    subscriber = Subscriber(port, qos, clean)
    publisher = Publisher(port, qos, clean)
    poll = selectors.DefaultSelector()
    poll.register(subscriber.socket, selectors.EVENT_READ, subscriber)
    poll.register(publisher.socket, selectors.EVENT_READ, publisher)
    started = time.perf_counter()
    while subscriber.complete < messages or (qos and publisher.complete < messages):
        done = publisher.complete if qos else subscriber.complete
        room = min(window - (publisher.sent - done), messages - publisher.sent)
        if room > 0:
            publisher.publish(room)
        events = poll.select(20)
        if not events:
            raise Stalled(f"{subscriber.complete} of {messages} arrived, {publisher.complete} were acknowledged")
        for key, _ in events:
            key.data.on_readable()
    elapsed = time.perf_counter() - started
    for peer in (subscriber, publisher):
        peer.socket.sendall(b"\xe0\0")
        peer.socket.close()
    return messages / elapsed
