"""Messages a second from one publisher to one subscriber; the peer has the same load.

Payloads of 32 bytes, and 100 messages in flight at QoS 1 and 2. At QoS 0, where a publisher waits
for nothing, it is at most 20,000 messages ahead of the subscriber, so that neither broker needs to
drop any. Onceway keeps persistent sessions on disk, the peer keeps everything in memory.

One topic is the best case for a broker such as Onceway, which handles a run of alike packets in one
step. The rows with 100 topics, where no two neighbouring packets are alike, show the worst case.
With 100 messages in flight, a durable broker can do at most 100 messages at QoS 1, or 50 at QoS 2,
between two fsyncs. The first row shows the present speed of the disk.
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
"""Goals by clean session and QoS: lowest rate, as a multiple of the peer's."""


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
