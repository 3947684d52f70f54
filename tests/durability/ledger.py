"""Checks which messages arrived at a place.

In: arrivals, each with the publisher's name and the number of the message (0, 1, 2, … in the order
of publishing). Out: `faults`, a text for each message that is missing, doubled or out of order.
"""

from collections import Counter

Faults = list[str]


class Ledger:
    """The messages that arrived at one place. repeats: number of repeated arrivals that are allowed
    (QoS 0 and 1).
    """

    def __init__(self, place: str, faults: Faults) -> None:
        self.place = place
        self.repeats = 0
        self._faults = faults
        self._came: dict[str, Counter[int]] = {}
        self._settled: Counter[str] = Counter()
        self._last: dict[str, int] = {}

    def arrived(self, name: str, number: int, once: bool) -> None:
        """Record an arrival. once: a second arrival is a fault, as at QoS 2."""
        came = self._came.setdefault(name, Counter())
        seen = came[number] or number < self._settled[name]
        came[number] += 1
        if seen and once:
            self._faults.append(f"{self.place}: {name}:{number} came twice")
        elif seen:
            self.repeats += 1
        elif number < self._last.get(name, -1):
            self._faults.append(f"{self.place}: {name}:{number} came after {self._last[name]}")
        else:
            self._last[name] = number

    def missing(self, name: str, published: int) -> list[int]:
        """Return the numbers below `published` of messages that have not arrived."""
        came = self._came.get(name, Counter())
        return [number for number in range(self._settled[name], published) if number not in came]

    def newest(self, name: str) -> int:
        """Return the highest number that has arrived, or -1 if none has."""
        return self._last.get(name, -1)

    def settle(self, name: str, published: int) -> None:
        """Add a fault if a message with a number below `published` has not arrived. Later checks
        begin with the number `published`.
        """
        if missing := self.missing(name, published):
            self._faults.append(
                f"{self.place}: {len(missing)} of {name} never came, the first {missing[0]}"
            )
        self._settled[name] = published
        self._came[name] = Counter()
