"""The delivery time of a QoS 2 message from a publisher that is 200 ms away one way, as a multiple
of this time.

A relay between publisher and broker delays each byte by 200 ms in both directions. The subscriber
is beside the broker. Onceway's delivery Method B forwards at PUBLISH, after one way. The peer's
Method A waits for PUBREC and PUBREL, so three ways.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.benchmarks.brokers import BrokerProcess, free_port, side_by_side
from tests.benchmarks.load import PUBCOMP, PUBREC, PUBREL, Peer, new_topics, publish_packet
from tests.benchmarks.report import Figure, main

ONE_WAY_S = 0.2
MESSAGES = 5


@contextmanager
def far_away(port: int, one_way_s: float) -> Iterator[int]:
    """Run a relay to `port` that delays all bytes. Yield the relay's port."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            loop.call_later(one_way_s, writer.write, data)
        loop.call_later(one_way_s, writer.close)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    loop = asyncio.new_event_loop()
    outside = free_port()
    server = loop.run_until_complete(asyncio.start_server(relay, "127.0.0.1", outside))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield outside
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def delivery(broker: BrokerProcess, one_way_s: float, messages: int) -> float:
    """Return the median time from PUBLISH to delivery, as a multiple of `one_way_s`."""
    (topic,) = new_topics()
    subscriber = Peer(broker.port)
    subscriber.subscribe([topic], 2)
    times = []
    with far_away(broker.port, one_way_s) as port:
        publisher = Peer(port)
        for number in range(1, messages + 1):
            identifier = number.to_bytes(2, "big")
            began = time.monotonic()
            publisher.socket.sendall(publish_packet(2, number, topic=topic))
            # The publisher completes its exchange while the subscriber waits.
            answers = threading.Thread(target=complete, args=(publisher, identifier))
            answers.start()
            delivered = subscriber.expect(0x34)
            times.append(time.monotonic() - began)
            at = 4 + len(topic)
            for answer, wanted in ((PUBREC, PUBREL), (PUBCOMP, None)):
                subscriber.socket.sendall(bytes((answer, 2)) + delivered[at : at + 2])
                if wanted is not None:
                    subscriber.expect(wanted)
            answers.join()
        publisher.leave()
    subscriber.leave()
    return median(times) / one_way_s


def complete(publisher: Peer, identifier: bytes) -> None:
    """Complete the publisher's exchange: PUBREC, PUBREL and PUBCOMP."""
    publisher.expect(PUBREC)
    publisher.socket.sendall(bytes((PUBREL, 2)) + identifier)
    publisher.expect(PUBCOMP)


def measure(folder: Path, one_way_s: float = ONE_WAY_S, messages: int = MESSAGES) -> list[Figure]:
    with side_by_side(folder) as brokers:
        times = [delivery(broker, one_way_s, messages) for broker in brokers]
    name = f"QoS 2 delivery behind {one_way_s * 1000:.0f} ms one way"
    return [Figure(name, times[0], "one-way times", "≤ 1.05", (*times, None)[1])]


if __name__ == "__main__":
    main(measure)
