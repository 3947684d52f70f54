"""Resource use of each user over all sessions, and its quota.

In: sessions, connections and publications, each with its user. Out: a reason to refuse, or the
seconds for which the messages of the user's clients wait. All anonymous clients are one user, "";
boards have no account.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.config import QuotaSection

_BURST_S = 1.0
"""Tolerance of a rate, in seconds of that rate. One read of a connection may also exceed the rate:
the data is published, and the user's clients are paused until the rate has caught up."""


class Account:
    __slots__ = (
        "_bytes_paid",
        "_messages_paid",
        "connections",
        "metered",
        "quota",
        "sessions",
        "spool_share",
        "spooled",
    )

    def __init__(self, quota: QuotaSection | None) -> None:
        self.apply_quota(quota)
        self.sessions = 0
        self.connections = 0
        self.spooled = 0
        """Bytes of this user's rows in the spool."""
        self._messages_paid = self._bytes_paid = float("-inf")
        """Times from which on the published messages, and bytes, are within the rate again."""

    def lacks(self, *, session: bool, connection: bool) -> str | None:
        """Return the bound that one more session or connection would exceed, in words, or None."""
        quota = self.quota
        if quota is None:
            return None
        if session and quota.sessions is not None and self.sessions >= quota.sessions:
            return "too many sessions of this user (quota.sessions)"
        if connection and quota.connections is not None and self.connections >= quota.connections:
            return "too many connections of this user (quota.connections)"
        return None

    def apply_quota(self, quota: QuotaSection | None) -> None:
        """Apply another quota section from now on."""
        self.quota = quota
        self.metered = quota is not None and (
            quota.messages_per_s is not None or quota.bytes_per_s is not None
        )
        """Whether the rate of publications is limited."""
        self.spool_share = 1.0 if quota is None else quota.spool_share

    def is_idle(self, now: float) -> bool:
        """Whether the account may be forgotten."""
        paid = max(self._messages_paid, self._bytes_paid)
        return not (self.sessions or self.connections or self.spooled or paid > now)

    def publishes(self, messages: int, size: int, now: float) -> float:
        """Count published messages and bytes. Return the seconds to pause the user's clients."""
        quota = self.quota
        if quota is None:
            return 0.0
        if quota.messages_per_s is not None:
            self._messages_paid = max(self._messages_paid, now) + messages / quota.messages_per_s
        if quota.bytes_per_s is not None:
            self._bytes_paid = max(self._bytes_paid, now) + size / quota.bytes_per_s
        return max(0.0, max(self._messages_paid, self._bytes_paid) - now - _BURST_S)


class Accounts:
    """All accounts, by user name. quota: returns the section for a user."""

    def __init__(self, quota: Callable[[str], QuotaSection | None]) -> None:
        self._quota = quota
        self._all: dict[str, Account] = {}

    def of(self, user: str | None) -> Account:
        """Return the account of a user. It stays until `sweep` finds it idle."""
        name = user or ""
        account = self._all.get(name)
        if account is None:
            account = self._all[name] = Account(self._quota(name))
        return account

    def reconfigure(self, quota: Callable[[str], QuotaSection | None]) -> None:
        """Apply other sections from now on."""
        self._quota = quota
        for name, account in self._all.items():
            account.apply_quota(quota(name))

    def sweep(self, now: float) -> None:
        """Forget users without sessions, connections, spooled bytes or excess over their rate."""
        for name in [name for name, account in self._all.items() if account.is_idle(now)]:
            del self._all[name]

    def __len__(self) -> int:
        return len(self._all)
