"""The time from a durable QoS 1 PUBLISH to its PUBACK: without the fsync, and with a slow disk.

A persistent session subscribes, so each message needs a commit. First, messages are sent one at a
time. A library records each fsync, and the time that a message waited for an fsync is subtracted.
Then 1,000 messages a second are sent to a disk of known slowness: a folder in memory, with 8 ms for
each fsync of the store. The fsyncs of checkpoints count, too, but must not show in the 99.9th
percentile. The last row shows whether this run is valid: a gateway that waits for a CPU which
others use answers late in any case.
"""

import select
import tempfile
import time
from pathlib import Path

from tests.benchmarks.brokers import onceway
from tests.benchmarks.disk import build, syncs
from tests.benchmarks.load import PUBACK, Peer, Subscriber, new_topics, publish_packet
from tests.benchmarks.report import Figure, main

MESSAGES = 3000
SECONDS = 20.0
PER_SECOND = 1000
SLOW_MS = 8


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def beyond_the_fsync(folder: Path, messages: int) -> list[float]:
    """Return for each message the seconds from PUBLISH to PUBACK, without the time of the log's
    fsync. One message is in flight at a time.
    """
    record = folder / "record"
    times = []
    with onceway(folder, preload=build("recorder", folder), ONCEWAY_RECORD=str(record)) as broker:
        topics = new_topics()
        reader = Subscriber(broker.port, topics, 1, clean=False)
        publisher = Peer(broker.port, clean=False)
        for number in range(1, messages + 1):
            began = time.monotonic()
            publisher.socket.sendall(publish_packet(1, number, topic=topics[0]))
            publisher.expect(PUBACK)
            times.append((began, time.monotonic()))
            reader.on_readable()
    waits = syncs(record)
    beyond, first = [], 0
    for began, ended in times:
        while waits[first][1] < began:
            first += 1
        waited, at = 0.0, first
        while at < len(waits) and waits[at][0] < ended:
            waited += min(ended, waits[at][1]) - max(began, waits[at][0])
            at += 1
        beyond.append(ended - began - waited)
    return beyond


def on_a_slow_disk(folder: Path, seconds: float, per_second: int) -> tuple[list[float], float]:
    """Publish at a steady rate to a gateway whose disk takes SLOW_MS for each sync. Return the time
    from PUBLISH to PUBACK of each message, in seconds, and the share of the time in which threads
    of the gateway waited for a CPU.
    """
    library, plan = build("faults", folder), folder / "plan"
    plan.write_text(f"delay {SLOW_MS}")
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as memory,
        onceway(Path(memory), preload=library, ONCEWAY_FAULTS=str(plan)) as broker,
    ):
        topics = new_topics()
        reader = Subscriber(broker.port, topics, 1, clean=False)
        publisher = Peer(broker.port, clean=False)
        sent: list[float] = []
        latencies: list[float] = []
        began, starved = time.monotonic(), broker.starved_s
        while len(latencies) < len(sent) or time.monotonic() < began + seconds:
            due = began + len(sent) / per_second - time.monotonic()
            if due <= 0 and time.monotonic() < began + seconds:
                publisher.socket.sendall(publish_packet(1, len(sent) % 65535 + 1, topic=topics[0]))
                sent.append(time.monotonic())
                continue
            ready, _, _ = select.select(
                [reader.socket, publisher.socket],
                [],
                [],
                max(0.0, min(due, 1.0)) if due > 0 else 1.0,
            )
            if reader.socket in ready:
                reader.on_readable()
            if publisher.socket in ready:
                data = publisher.read()
                end = len(data) // 4 * 4
                assert data[0:end:4].count(PUBACK) == end // 4, data[:80].hex()
                now = time.monotonic()
                latencies += [
                    now - start for start in sent[len(latencies) : len(latencies) + end // 4]
                ]
                publisher.unread = data[end:]
        return latencies, (broker.starved_s - starved) / (time.monotonic() - began)


def measure(
    folder: Path, messages: int = MESSAGES, seconds: float = SECONDS, per_second: int = PER_SECOND
) -> list[Figure]:
    quick = beyond_the_fsync(folder / "quick", messages)
    slow, starved = on_a_slow_disk(folder / "slow", seconds, per_second)
    return [
        Figure(
            "durable QoS 1 publish beyond the fsync, p50",
            percentile(quick, 0.5) * 1000,
            "ms",
            "≤ 1",
        ),
        Figure(
            "durable QoS 1 publish beyond the fsync, p99",
            percentile(quick, 0.99) * 1000,
            "ms",
            "≤ 5",
        ),
        Figure(
            f"durable QoS 1 publish, fsync of {SLOW_MS} ms, p50", percentile(slow, 0.5) * 1000, "ms"
        ),
        Figure(
            f"durable QoS 1 publish, fsync of {SLOW_MS} ms, p99.9",
            percentile(slow, 0.999) * 1000,
            "ms",
            "≤ 50",
        ),
        Figure(
            f"durable QoS 1 publish, fsync of {SLOW_MS} ms: gateway waited for a CPU",
            starved * 100,
            "%",
        ),
    ]


if __name__ == "__main__":
    main(measure)
