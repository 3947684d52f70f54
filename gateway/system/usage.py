"""Use of resources by each user and by each origin of clients, and the users' quotas.

In: sessions, connections and publications, each with its user. Out: a reason to refuse, or the
seconds for which the messages of the user's clients wait. All anonymous clients are one user, "";
boards have no account.

An origin is a user, or the address of anonymous clients, which many clients may share (a proxy, a
router). An origin may use four fifths of a shared bound; the last fifth is the reserve for other
origins. Boards and the gateway's own clients have no origin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv6Address
from typing import Generic, Protocol, TypeVar

_BURST_S = 1.0
"""Size of a tolerated burst: as much as the rate allows in this many seconds."""

_RUN_S = 0.1
"""Size of the runs in which the messages of a limited client are accepted: as many messages as the
rate allows in this many seconds, at least one. So a burst may be larger by one run.
"""


_RESERVE = 5
"""1 / _RESERVE of a bound is the reserve. A single origin may use at most the rest."""


_NETWORK = 64
"""Prefix length of the IPv6 network that counts as one address (RFC 6177)."""


def origin(address: str) -> str:
    """Return the host in a peer's address; for IPv6, its /64 network. A text without a port is
    returned unchanged.
    """
    host, colon, _ = address.rpartition(":")
    if not host.startswith("["):
        return host if colon else address
    number = IPv6Address(host[1:-1].partition("%")[0])
    return str(IPv6Address(int(number) >> (128 - _NETWORK) << (128 - _NETWORK)))


def within(used: int, limit: int) -> bool:
    """Whether one origin may use the amount `used` of a resource. limit: the bound of all origins
    together. A part of it, 1 / _RESERVE, stays reserved for the others.
    """
    return used <= limit - limit // _RESERVE


class Origin:
    __slots__ = ("name", "retained", "retained_bytes", "sessions", "spooled")

    def __init__(self, name: str) -> None:
        self.name = name
        """The name as people see it: `user alice`, or `address 192.0.2.7`."""
        self.sessions = self.retained = 0
        self.retained_bytes = self.spooled = 0


class Origins:
    """The origins that use sessions, retained messages or the spool, by name."""

    def __init__(self) -> None:
        self._all: dict[str, Origin] = {}

    def of(self, name: str) -> Origin | None:
        """Return the origin with this name, or a new one; None for an empty name. An origin is kept
        until `sweep` finds that it uses nothing.
        """
        return self._all.setdefault(name, Origin(name)) if name else None

    def sweep(self) -> None:
        """Forget origins without sessions, retained messages and spooled rows."""
        for item in list(self._all.values()):
            if not (item.sessions or item.retained or item.spooled):
                del self._all[item.name]


class Shared:
    """The use of a bound that all clients share: in total, and by each origin."""

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[Origin, int] = {}

    def add(self, owner: Origin | None, amount: int) -> None:
        """Add an amount to the use of an origin. owner: None for a board or an internal client.
        amount: negative to subtract.
        """
        self.total += amount
        if owner is not None:
            self._of[owner] = self._of.get(owner, 0) + amount
            if not self._of[owner]:
                del self._of[owner]

    def fits(self, owner: Origin | None, amount: int, limit: int) -> bool:
        """Whether an origin may use `amount` more of the bound `limit`."""
        return self.total + amount <= limit and (
            owner is None or within(self._of.get(owner, 0) + amount, limit)
        )

    def greedy(self, limit: int) -> Origin | None:
        """Return an origin that uses more of the bound `limit` than one origin may, or None."""
        return next((owner for owner, used in self._of.items() if not within(used, limit)), None)


class Quota(Protocol):
    """A section [[quota]] of the configuration."""

    @property
    def sessions(self) -> int | None: ...

    @property
    def connections(self) -> int | None: ...

    @property
    def messages_per_s(self) -> int | None: ...

    @property
    def bytes_per_s(self) -> int | None: ...

    @property
    def spool_share(self) -> float: ...


class Account:
    __slots__ = (
        "_bytes_paid",
        "_messages_paid",
        "connections",
        "longest_run",
        "metered",
        "quota",
        "sessions",
        "spool_share",
        "spooled",
    )

    def __init__(self, quota: Quota | None) -> None:
        self.apply_quota(quota)
        self.sessions = 0
        self.connections = 0
        self.spooled = 0
        """Bytes of this user's rows in the spool."""
        self._messages_paid = self._bytes_paid = float("-inf")
        """Times until which the rate of messages, and the rate of bytes, are used up by what the
        user has already published.
        """

    def lacks(self, *, session: bool, connection: bool) -> str | None:
        """Return, in words, the quota that one more session or connection would exceed, or None.
        session, connection: whether one more is wanted.
        """
        quota = self.quota
        if quota is None:
            return None
        if session and quota.sessions is not None and self.sessions >= quota.sessions:
            return "too many sessions of this user (quota.sessions)"
        if connection and quota.connections is not None and self.connections >= quota.connections:
            return "too many connections of this user (quota.connections)"
        return None

    def apply_quota(self, quota: Quota | None) -> None:
        """Apply another quota section from now on."""
        self.quota = quota
        self.metered = quota is not None and (
            quota.messages_per_s is not None or quota.bytes_per_s is not None
        )
        """Whether the user's quota limits the rate of publications."""
        self.longest_run = 1
        """Largest number of messages that the broker handles at once if `metered`."""
        if quota is not None and quota.messages_per_s and quota.bytes_per_s is None:
            self.longest_run = max(1, int(quota.messages_per_s * _RUN_S))
        self.spool_share = 1.0 if quota is None else quota.spool_share

    def is_idle(self, now: float) -> bool:
        """Whether the account may be forgotten: it has no session, connection or spooled row, and
        has not used its rate in advance.
        """
        paid = max(self._messages_paid, self._bytes_paid)
        return not (self.sessions or self.connections or self.spooled or paid > now)

    def publishes(self, messages: int, size: int, now: float) -> float:
        """Count published messages and their bytes. Return for how many seconds the user's clients
        must pause, to stay within the quota.
        """
        quota = self.quota
        if quota is None:
            return 0.0
        if quota.messages_per_s is not None:
            self._messages_paid = max(self._messages_paid, now) + messages / quota.messages_per_s
        if quota.bytes_per_s is not None:
            self._bytes_paid = max(self._bytes_paid, now) + size / quota.bytes_per_s
        return max(0.0, max(self._messages_paid, self._bytes_paid) - now - _BURST_S)


class Accounts:
    """The accounts of all users, by user name. quota: returns the quota section for a user name."""

    def __init__(self, quota: Callable[[str], Quota | None]) -> None:
        self._quota = quota
        self._all: dict[str, Account] = {}

    def of(self, user: str | None) -> Account:
        """Return the account of a user, which is kept until `sweep` finds it idle. user: None for
        an anonymous client.
        """
        name = user or ""
        account = self._all.get(name)
        if account is None:
            account = self._all[name] = Account(self._quota(name))
        return account

    def reconfigure(self, quota: Callable[[str], Quota | None]) -> None:
        """Apply other [[quota]] sections from now on."""
        self._quota = quota
        for name, account in self._all.items():
            account.apply_quota(quota(name))

    def sweep(self, now: float) -> None:
        """Forget users who have no sessions, connections or spooled bytes, and do not exceed their
        rate.
        """
        for name in [name for name, account in self._all.items() if account.is_idle(now)]:
            del self._all[name]

    def __len__(self) -> int:
        return len(self._all)


Notes = dict[tuple[str, str], tuple[str, int] | None]
"""Changes of the table `origin`. Key: kind and key of a row. Value: the row's origin and its number
of bytes; None deletes the row.
"""


class Shares:
    """Bytes of a part of the spool by account and origin. number: the number of the part."""

    __slots__ = ("_noted", "_sizes", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._sizes: dict[Account | Origin, int] = {}
        self._noted: dict[Origin, int] = {}
        """Bytes by origin, as `notes` last returned them."""

    def charge(self, owner: Account | Origin, size: int) -> None:
        """Count `size` more bytes of the spool for an account or an origin."""
        owner.spooled += size
        self._sizes[owner] = self._sizes.get(owner, 0) + size

    def notes(self, least: int) -> Notes:
        """Return the rows of the table `origin` that have to be written. The row of an origin has
        to be written if its bytes exceed the stored number by more than `least`.
        """
        found: Notes = {}
        for owner, size in self._sizes.items():
            if isinstance(owner, Origin) and size - self._noted.get(owner, 0) > least:
                self._noted[owner] = size
                found["spool", f"{self.number} {owner.name}"] = owner.name, size
        return found

    def release(self) -> Notes:
        """Subtract the bytes of this part from its owners' counts, because the part has left the
        spool. Return the rows to delete from the table `origin`.
        """
        for owner, size in self._sizes.items():
            owner.spooled -= size
        return {("spool", f"{self.number} {owner.name}"): None for owner in self._noted}


Item = TypeVar("Item")


class Spare(Generic[Item]):
    """Items that may be removed to make room for new ones. all_items: returns all items, those to
    remove first at the beginning. is_spare: whether an item may be removed. now: a clock in
    seconds.
    """

    LOOKED_AT = 10_000
    """Largest number of items that are checked per second, on average."""

    def __init__(
        self,
        all_items: Callable[[], Sequence[Item]],
        is_spare: Callable[[Item], bool],
        now: Callable[[], float],
    ) -> None:
        self._all_items, self._is_spare, self._now = all_items, is_spare, now
        self._found: dict[Item, None] = {}
        """Items that were spare when all items were last checked, without those that `take` has
        removed."""
        self._next_look = float("-inf")

    def take(self, fits: Callable[[Item], bool]) -> Item | None:
        """Return a spare item for which `fits` is true. Return None if no such item is known. All
        items are searched again only as often as LOOKED_AT allows.
        """
        for _ in range(2):
            while (found := next(filter(fits, self._found), None)) is not None:
                del self._found[found]
                if self._is_spare(found):
                    return found
            if self._now() < self._next_look:
                break
            items = self._all_items()
            self._next_look = self._now() + len(items) / self.LOOKED_AT
            self._found = dict.fromkeys(filter(self._is_spare, items))
        return None
