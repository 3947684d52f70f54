"""Deliveries a second from one publisher to many subscribers, and from many publishers to one
subscriber; the peer has the same load.

Clean sessions, and payloads of 32 bytes. To many subscribers, 100 messages are in flight, and the
subscribers are at most 1,000 messages behind. From many publishers at QoS 1, each has one message
in flight, as a sensor has; at QoS 0, each sends 20 at a time.
"""

from functools import partial
from pathlib import Path

from tests.benchmarks.brokers import side_by_side
from tests.benchmarks.load import throughput
from tests.benchmarks.report import Figure, main
from tests.benchmarks.side import in_turns, rate_and_cost

ROUNDS = 3
SECONDS = 1.5
MANY = 500


def measure(
    folder: Path, seconds: float = SECONDS, rounds: int = ROUNDS, many: int = MANY
) -> list[Figure]:
    figures = []
    with side_by_side(folder) as brokers:
        for qos in (0, 1):
            fan_out = partial(
                throughput, qos=qos, clean=True, seconds=seconds, behind=1000, subscribers=many
            )
            (rate, peer), _ = in_turns(brokers, rounds, partial(rate_and_cost, run=fan_out))
            figures.append(
                Figure(
                    f"fan-out 1 → {many}, QoS {qos}",
                    rate * many,
                    "deliveries/s",
                    "≥ 1.0 × peer",
                    peer and peer * many,
                )
            )
        for qos in (0, 1):
            fan_in = partial(
                throughput,
                qos=qos,
                clean=True,
                seconds=seconds,
                window=1 if qos else 20,
                publishers=many,
            )
            (rate, peer), _ = in_turns(brokers, rounds, partial(rate_and_cost, run=fan_in))
            figures.append(
                Figure(f"fan-in {many} → 1, QoS {qos}", rate, "msg/s", "≥ 1.0 × peer", peer)
            )
    return figures


if __name__ == "__main__":
    main(measure)
