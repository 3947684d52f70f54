"""A queue of clients that wait, for example for a login, with a total bound and a bound per
address.

In: a client and its address. Out: the client to drop if too many wait, and the client to serve
next. An address can harm only its own clients: if too many wait, the address with the most waiting
clients loses its oldest one. Addresses are served in turn.
"""

from typing import Generic, TypeVar

from gateway.system.usage import origin

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue of clients in which addresses take turns: `pop` returns the oldest client of the next
    address. most: largest number of clients in total. share: largest number of clients per address.
    """

    def __init__(self, most: int, share: int) -> None:
        self._most = most
        self._share = share
        self._size = 0
        self._waiting: dict[str, dict[int, T]] = {}

    def __len__(self) -> int:
        return self._size

    def add(self, address: str, item: T) -> T | None:
        """Add a client. If there are then too many clients of this address, or too many in total,
        remove the client to drop and return it. Else return None. address: as in `Peer.address`.
        """
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
        """Remove a client that has gone, or that does not wait any more. Do nothing if the client
        is not in the queue.
        """
        known = origin(address)
        if id(item) in self._waiting.get(known, {}):
            self._remove(known, item)

    def pop(self) -> T | None:
        """Remove and return the oldest client of the next address in turn; None if no client
        waits.
        """
        address = next(iter(self._waiting), None)
        if address is None:
            return None
        item = self._first(address)
        if address in self._waiting:  # the address has its next turn after all others
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
