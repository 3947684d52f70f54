"""The same measurement of two brokers, in turns, so that other load of the machine affects both.

In: brokers, and what to do with one of them. Out: of ours and the peer, in turns of a second or so,
the medians of the rounds, None of a peer that did not run. Of two whose difference is small, the
ratio in many short pairs, and how well that is known.
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
    """Return (our figure, the peer's) for each number that `once` measures."""
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
    """Return messages per second of a run on a broker's port, and the broker's CPU time per message
    in µs.
    """
    before = broker.cpu_s
    result = run(broker.port)
    return result.rate, (broker.cpu_s - before) / result.messages * 1e6


class Ratio(NamedTuple):
    """The median of ratios. low, high: the true one is between them, with a chance of 95 %."""

    median: float
    low: float
    high: float


def ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio of two measurements that were made at about the same time. The bounds are
    two of the ratios: each ratio is above the true median with a chance of one half, whatever the
    noise is like. With fewer than six pairs, the chance is less than 95 %.
    """
    found = sorted(one / other for one, other in pairs)
    count = len(found)
    tails = accumulate(comb(count, rank) for rank in range(count // 2))
    rank = max(0, sum(tail <= 0.025 * 2**count for tail in tails) - 1)
    return Ratio(median(found), found[rank], found[-1 - rank])
