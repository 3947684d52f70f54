"""Messages per second of one publisher and one subscriber, beside the peer.

32-byte payloads, window 100 at QoS 1 and 2; at QoS 0, where nothing holds a publisher back, it is
20,000 messages ahead of the subscriber at most, from which neither broker needs to drop. Ours keeps
persistent sessions on disk, the peer keeps everything in memory. One topic is the best case for a
broker that takes runs of alike packets in one step, as ours does; the rows with 100 topics, where
no two neighbours are alike, show the worst.

With 100 messages in flight a durable broker does no more than 100 messages at QoS 1 and 50 at QoS 2
between two fsyncs: the first row says how fast this disk is at this time.
"""

from functools import partial
from pathlib import Path

from tests.benchmarks.brokers import side_by_side
from tests.benchmarks.disk import fsync_s
from tests.benchmarks.load import throughput
from tests.benchmarks.report import Figure, main
from tests.benchmarks.side import in_turns, rate_and_cost

ROUNDS = 5
SECONDS = 1.0
GOALS = {
    (False, 0): 2.4,
    (False, 1): 2.4,
    (False, 2): 2.4,
    (True, 0): 2.5,
    (True, 1): 4.5,
    (True, 2): 4.5,
}
"""Goals by clean session and QoS, as multiples of the peer's rate."""


def measure(folder: Path, seconds: float = SECONDS, rounds: int = ROUNDS) -> list[Figure]:
    figures = [Figure("fsync of this disk", fsync_s(folder) * 1000, "ms")]
    with side_by_side(folder) as brokers:
        for topics in (1, 100):
            for (clean, qos), goal in GOALS.items():
                run = partial(
                    throughput,
                    qos=qos,
                    clean=clean,
                    seconds=seconds,
                    window=100 if qos else 20_000,
                    topics=topics,
                )
                rate, cost = in_turns(brokers, rounds, partial(rate_and_cost, run=run))
                name = f"QoS {qos}, {'clean' if clean else 'persistent'} sessions" + (
                    f", {topics} topics" if topics > 1 else ""
                )
                figures.append(
                    Figure(
                        name, rate[0], "msg/s", f"≥ {goal} × peer" if topics == 1 else None, rate[1]
                    )
                )
                figures.append(Figure(f"{name}: CPU", cost[0], "µs/msg", None, cost[1]))
    return figures


if __name__ == "__main__":
    main(measure)
