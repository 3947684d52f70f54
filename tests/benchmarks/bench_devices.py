"""The load of a site: many devices, each with its own topic and one message in flight, and one
subscriber to all of them; the peer has the same load.

Onceway stores all of it on disk, the peer keeps it in memory. Payloads have 32 bytes. The first row
shows the present speed of the disk, because a device sends its next message only after the commit
of its previous one. A row shows for how much of the time the load generator was on a CPU: if it is
near 100 %, the load generator was the bottleneck. The last row is the time from a QoS 0 PUBLISH to
its delivery, without other load.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from tests.benchmarks.brokers import BrokerProcess, side_by_side
from tests.benchmarks.disk import fsync_s
from tests.benchmarks.load import Peer, Stalled, devices, new_topics, publish_packet
from tests.benchmarks.report import Figure, main
from tests.benchmarks.side import in_turns

ROUNDS = 5
SECONDS = 1.5
MESSAGES = 3000
STALLS = 4
"""Number of stalled measurements that are repeated. If one more stalls, the benchmark ends with an
error.
"""
GOALS = {10: (0.6, 45.0), 100: (1.0, 25.0), 1000: (1.0, 25.0)}
"""Goals by number of devices: lowest rate, as a multiple of the peer's, and highest CPU time of a
QoS 1 message, in µs.
"""


def rate_and_costs(
    broker: BrokerProcess, qos: int, seconds: float, count: int
) -> tuple[float, float, float]:
    """Return three figures: messages a second, the broker's CPU time for a message in µs, and the
    share of time in which the load generator was on a CPU, in %.
    """
    for _ in range(STALLS):
        with suppress(Stalled):  # the peer sometimes leaves an exchange open
            return _rate_and_costs(broker, qos, seconds, count)
    return _rate_and_costs(broker, qos, seconds, count)


def _rate_and_costs(
    broker: BrokerProcess, qos: int, seconds: float, count: int
) -> tuple[float, float, float]:
    with devices(broker.port, qos, count) as publish:
        publish(seconds / 5)  # topics and clients that are new to the broker are not measured
        before = broker.cpu_s
        result = publish(seconds)
        return result.rate, (broker.cpu_s - before) / result.messages * 1e6, result.busy * 100


def latency(broker: BrokerProcess, messages: int) -> tuple[float]:
    """Return the median time from a QoS 0 PUBLISH to its delivery, in µs."""
    (topic,) = new_topics()
    subscriber, publisher = Peer(broker.port), Peer(broker.port)
    subscriber.subscribe([topic], 0)
    packet = publish_packet(0, topic=topic)
    times = []
    for _ in range(messages):
        began = time.perf_counter()
        publisher.socket.sendall(packet)
        subscriber.expect(0x30)
        times.append(time.perf_counter() - began)
    for peer in (subscriber, publisher):
        peer.leave()
    return (median(times) * 1e6,)


def measure(
    folder: Path,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
    counts: Mapping[int, tuple[float, float]] = GOALS,
    messages: int = MESSAGES,
) -> list[Figure]:
    figures = [Figure("fsync of this disk", fsync_s(folder) * 1000, "ms")]
    with side_by_side(folder, spooled="up/#") as brokers:
        for qos in (1, 2):
            for count, (ratio, cpu) in counts.items():
                run = partial(rate_and_costs, qos=qos, seconds=seconds, count=count)
                rate, cost, busy = in_turns(brokers, rounds, run)
                name = f"{count} devices, QoS {qos}"
                figures += [
                    Figure(name, rate[0], "msg/s", f"≥ {ratio} × peer", rate[1]),
                    Figure(
                        f"{name}: CPU",
                        cost[0],
                        "µs/msg",
                        f"≤ {cpu:.0f}" if qos == 1 else None,
                        cost[1],
                    ),
                    Figure(f"{name}: load generator busy", busy[0], "%", None, busy[1]),
                ]
        ((ours, theirs),) = in_turns(brokers, rounds, partial(latency, messages=messages))
        figures.append(Figure("QoS 0 publish to delivery, p50", ours, "µs", "≤ 60", theirs))
    return figures


if __name__ == "__main__":
    main(measure)
