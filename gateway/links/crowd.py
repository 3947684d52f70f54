"""Clients that wait for something, such as a login, with a bound on all and on each address.

In: a client and its address. Out: which one has to go when there are too many, and whose turn it
is. An address costs itself only: the one that has the most waiting loses its oldest, and turns go
round by address.
"""

from typing import Generic, TypeVar

from gateway.broker.admission import origin

T = TypeVar("T")


class Crowd(Generic[T]):
    """most: in all. share: of one address."""

    def __init__(self, most: int, share: int) -> None:
        self._most = most
        self._share = share
        self._size = 0
        self._waiting: dict[str, dict[int, T]] = {}

    def __len__(self) -> int:
        return self._size

    def add(self, address: str, item: T) -> T | None:
        """Let one in; returns who has to go for it, if anybody. address: as in `Peer`."""
        known = origin(address)
        mine = self._waiting.setdefault(known, {})
        mine[id(item)] = item
        self._size += 1
        if len(mine) > self._share:
            return self._first(known)
        if self._size > self._most:
            return self._first(max(self._waiting, key=lambda other: len(self._waiting[other])))
        return None

    def discard(self, address: str, item: T) -> None:
        """One has gone, or has got what it waited for."""
        known = origin(address)
        if id(item) in self._waiting.get(known, {}):
            self._remove(known, item)

    def pop(self) -> T | None:
        """Whose turn it is; it waits no longer."""
        address = next(iter(self._waiting), None)
        if address is None:
            return None
        item = self._first(address)
        if address in self._waiting:  # the next one of it comes after all others
            self._waiting[address] = self._waiting.pop(address)
        return item

    def _first(self, address: str) -> T:
        item = next(iter(self._waiting[address].values()))
        self._remove(address, item)
        return item

    def _remove(self, address: str, item: T) -> None:
        mine = self._waiting[address]
        del mine[id(item)]
        self._size -= 1
        if not mine:
            del self._waiting[address]
