"""The CPU time of the codec for each packet, when it reads from a stream and when it writes.

No peer is measured: the goals are a budget. They follow from the goals of the whole broker, more
than 500,000 QoS 0 or 100,000 QoS 2 messages a second, which leave 2 or 10 µs for a message. Of
these, reading a PUBLISH may take 0.8 µs, and reading an acknowledgement 0.5 µs.
"""

import sys
import time
from collections.abc import Callable

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connect,
    Packet,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.stream import PacketStream
from tests.benchmarks.report import Figure, report

COUNT = 50_000
ROUNDS = 5
TOPIC = "site/7/sensor/12/temperature"


def best(work: Callable[[], float]) -> float:
    """Return the shortest time of several runs, because other processes can only make a run
    longer.
    """
    return min(work() for _ in range(ROUNDS))


def reading(packet: Packet, version: Version) -> float:
    """Return the time to read a packet, in µs, from a stream of equal packets in pieces of 64
    KiB.
    """
    data = encode(packet, version) * COUNT
    chunks = [data[at : at + 65536] for at in range(0, len(data), 65536)]

    def run() -> float:
        stream = PacketStream(1 << 20, version)
        started = time.process_time()
        found = 0
        for chunk in chunks:
            stream.feed(chunk)
            for _ in stream:
                found += 1
        spent = time.process_time() - started
        assert found == COUNT
        return spent / COUNT * 1e6

    return best(run)


def connecting() -> float:
    """Return the CPU time to read a CONNECT from a new stream, in µs."""
    data = encode(Connect("sensor-12", keep_alive=60, username="u", password=b"p"), Version.V5)

    def run() -> float:
        started = time.process_time()
        for _ in range(COUNT // 10):
            stream = PacketStream(1 << 20)
            stream.feed(data)
            next(iter(stream))
        return (time.process_time() - started) / (COUNT // 10) * 1e6

    return best(run)


def writing(write: Callable[[], bytes]) -> float:
    """Return the CPU time of a call, in µs."""

    def run() -> float:
        started = time.process_time()
        for _ in range(COUNT):
            write()
        return (time.process_time() - started) / COUNT * 1e6

    return best(run)


def main() -> int:
    payload = bytes(32)
    plain = Publish(TOPIC, payload, 0)
    with_id = Publish(TOPIC, payload, 2, 7)
    with_properties = Publish(
        TOPIC,
        payload,
        2,
        7,
        properties={PropertyId.USER_PROPERTY: [("incarnation", "77"), ("seq", "12")]},
    )
    subscribe = Subscribe(7, [Subscription("site/+/sensor/#", 2)])
    figures = [
        Figure("codec: read PUBLISH QoS 0, 3.1.1", reading(plain, Version.V3_1_1), "µs", "≤ 0.8"),
        Figure("codec: read PUBLISH QoS 0, 5.0", reading(plain, Version.V5), "µs", "≤ 0.8"),
        Figure("codec: read PUBLISH QoS 2, 3.1.1", reading(with_id, Version.V3_1_1), "µs", "≤ 0.8"),
        Figure("codec: read PUBLISH QoS 2, 5.0", reading(with_id, Version.V5), "µs", "≤ 0.8"),
        Figure(
            "codec: read PUBLISH with two user properties",
            reading(with_properties, Version.V5),
            "µs",
        ),
        Figure("codec: read PUBREL", reading(Pubrel(7), Version.V5), "µs", "≤ 0.5"),
        Figure("codec: read SUBSCRIBE", reading(subscribe, Version.V5), "µs"),
        Figure("codec: read CONNECT", connecting(), "µs"),
        Figure("codec: write PUBLISH QoS 0, 5.0", writing(lambda: encode(plain, Version.V5)), "µs"),
        Figure(
            "codec: write PUBLISH QoS 2, 5.0", writing(lambda: encode(with_id, Version.V5)), "µs"
        ),
        Figure("codec: write PUBREC", writing(lambda: encode(Pubrec(7), Version.V5)), "µs"),
    ]
    return 0 if report(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
