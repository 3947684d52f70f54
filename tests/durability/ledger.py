"""The checker: which subscriber got which messages.

In: arrivals, as publisher's name and number (0, 1, 2, … in the order published). Out: `faults`, in
words: twice, out of order, missing.
"""

from collections import Counter

Faults = list[str]


class Ledger:
    """Arrivals at one place. repeats: arrivals beyond the first of messages that may come again
    (QoS 1).
    """

    def __init__(self, place: str, faults: Faults) -> None:
        self.place = place
        self.repeats = 0
        self._faults = faults
        self._came: dict[str, Counter[int]] = {}
        self._settled: Counter[str] = Counter()
        self._last: dict[str, int] = {}

    def arrived(self, name: str, number: int, once: bool) -> None:
        """Record an arrival. once: the message may not arrive a second time (QoS 2)."""
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
        """Return the numbers below `published` that have not arrived."""
        came = self._came.get(name, Counter())
        return [number for number in range(self._settled[name], published) if number not in came]

    def newest(self, name: str) -> int:
        """Return the highest number that has arrived, -1 before the first."""
        return self._last.get(name, -1)

    def settle(self, name: str, published: int) -> None:
        """Check that every number below `published` has arrived."""
        if missing := self.missing(name, published):
            self._faults.append(
                f"{self.place}: {len(missing)} of {name} never came, the first {missing[0]}"
            )
        self._settled[name] = published
        self._came[name] = Counter()
