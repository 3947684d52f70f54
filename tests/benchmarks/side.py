"""The same measurement of our broker and of the peer, in turns.

In: brokers, ours first, and what to do with one of them. Out: the medians of the rounds, of ours
and of the peer, None where it did not run. Turns of a second or so, so that whatever else the
machine does meets both.
"""

from collections.abc import Callable, Sequence
from statistics import median

from tests.benchmarks.brokers import BrokerProcess
from tests.benchmarks.load import Throughput


def in_turns(
    brokers: Sequence[BrokerProcess], rounds: int, once: Callable[[BrokerProcess], Sequence[float]]
) -> list[tuple[float, float | None]]:
    """For each number that `once` measures: (ours, peer's)."""
    results = [[once(broker) for broker in brokers] for _ in range(rounds)]
    medians = [
        [median(values) for values in zip(*(each[index] for each in results), strict=True)]
        for index in range(len(brokers))
    ]
    return [
        (ours, theirs)
        for ours, theirs in zip(
            medians[0], medians[1] if len(brokers) > 1 else [None] * len(medians[0]), strict=True
        )
    ]


def rate_and_cost(broker: BrokerProcess, run: Callable[[int], Throughput]) -> tuple[float, float]:
    """Messages per second of a run on a broker's port, and the broker's CPU time per message in
    µs.
    """
    before = broker.cpu_s
    result = run(broker.port)
    return result.rate, (broker.cpu_s - before) / result.messages * 1e6
