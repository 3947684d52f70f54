"""The same measurement of two brokers in turns, so that other load of the machine affects both.

In: brokers, and a measurement. Out: for Onceway and the peer, the medians of rounds of about a
second each; None for a peer that did not run. For small differences: the ratio of many short pairs,
and its confidence interval.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import comb
from statistics import median
from typing import NamedTuple

from tests.benchmarks.brokers import BrokerProcess
from tests.benchmarks.load import Throughput


def in_turns(
    brokers: Sequence[BrokerProcess], rounds: int, once: Callable[[BrokerProcess], Sequence[float]]
) -> list[tuple[float, float | None]]:
    """Measure the brokers in turns. For each number that `once` measures, return the medians of
    Onceway and of the peer.
    """
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
    """Return the messages a second of a run, and the broker's CPU time for a message in µs."""
    before = broker.cpu_s
    result = run(broker.port)
    return result.rate, (broker.cpu_s - before) / result.messages * 1e6


class Ratio(NamedTuple):
    """The median of ratios, with its confidence interval: `low` to `high`, at 95 %."""

    median: float
    low: float
    high: float


def ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio of pairs of measurements, each made at about the same time.

    The bounds are two of the ratios. Each ratio is above the true median with a probability of one
    half, whatever the noise is. With fewer than six pairs, the probability of the interval is less
    than 95 %.
    """
    found = sorted(one / other for one, other in pairs)
    count = len(found)
    tails = accumulate(comb(count, rank) for rank in range(count // 2))
    rank = max(0, sum(tail <= 0.025 * 2**count for tail in tails) - 1)
    return Ratio(median(found), found[rank], found[-1 - rank])
