"""What a member needs of its gateway: the sessions that are here, on disk.

In: what the member has decided. Out: what this gateway holds of a client, and the news that a
change is on disk. The broker and the store implement it; the member knows neither.

Of each client a gateway holds nothing, or one *record*: its epoch, a session or none, and the
members that may still hold an older session (`older`). A record lasts while there is a session, or
such a member. So a session that ends leaves its record behind as long as `older` names somebody.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

Done = Callable[[], None]
NOBODY: frozenset[str] = frozenset()
ALL_CLIENTS = ""
"""No client has this key. The record under it stands for all. A gateway has it that may have
forgotten that a session elsewhere is over, or that has a member which was not in the site before.
`older` names the members that have not heard of that."""


class Held(NamedTuple):
    """What this gateway holds of a client."""

    epoch: int
    session: bool = True
    """False: nothing but the knowledge that what `older` may hold is over."""
    given_to: str | None = None
    """The session has left for that member, which has not said yet that it is there: it is kept
    and cannot be used."""
    older: frozenset[str] = NOBODY
    """Members that may hold an older session, which has to end."""
    doubtful: bool = False
    """The client may have been elsewhere since. Set by `take`, `mistrust` and `mistrust_all`, and
    for each session of a store that was restored. The broker clears it in the commit that acts on
    an `Outcome` of kind doubt or none."""
    copied: bool = False
    """It comes from a copy of this store, and nothing was decided about the client since."""


class Outcome(NamedTuple):
    """Where a client's session is.

    here: it is here, and the newest: Session Present 1.
    none: nobody has one that counts: Session Present 0, and a new session in this client's record,
        in place of one that may be there. Marked (metric, log line) if somebody was silent.
    doubt: it is here, and doubtful on disk: somebody who was silent may know better. If it holds
        received QoS 2 identifiers that are no proved board's mark, they are forgotten: Session
        Present 0. Without such identifiers it goes on. Marked.
    failed: nothing was decided (`reason`): the session is at another member and cannot come here,
        or the client has gone. Refuse the CONNECT.

    A new session gets `epoch`; the record with that epoch is on disk already, or needs none.
    """

    kind: Literal["here", "none", "doubt", "failed"]
    epoch: int = 0
    silent: tuple[str, ...] = ()
    reason: str = ""


class Holder(Protocol):
    """The sessions of this gateway. `done` is called after the commit, from the member's thread,
    and possibly before the method returns.
    """

    def held(self, client: str) -> Held | None:
        """What is here; it may wait for its commit (`on_disk`)."""

    def on_disk(self, done: Done) -> None:
        """Call `done` when all that `held` says now is on disk."""

    def give(self, client: str, to: str, done: Callable[[Sequence[bytes] | None], None]) -> None:
        """One commit: the client is disconnected (0x8E) if it is connected, its session is given to
        that member; `epoch` and `older` stay. done: its parts, each of at most PART_BYTES; None
        when there is no session that outlives its connection. Asked again, also for another member:
        the same parts.
        """

    def take(
        self,
        client: str,
        epoch: int,
        older: frozenset[str],
        doubtful: bool,
        parts: Sequence[bytes],
        done: Callable[[str | None], None],
    ) -> None:
        """One commit: the session of these parts is here, in place of what was; `epoch`, `older`
        and `doubtful` stand in its record. `held` may show what was until then. done: None, or why
        it cannot be (bad parts, limits); then nothing has changed.
        """

    def stand(self, client: str, epoch: int, older: frozenset[str], done: Done) -> None:
        """One commit: the client's record has this epoch and these members, and is no copy. A
        session that is here stays, one that was given away is here again. Where there is none, the
        broker makes one next if a client waits. (The record stays without one, should that fail.)
        """

    def end(self, client: str, below: int, done: Done) -> None:
        """One commit: a record with an epoch below this one goes, with session, given parts and
        `older`. A connected client is disconnected (0x8E).
        """

    def mistrust(self, client: str, done: Done) -> None:
        """One commit: the session is doubtful. A connected client is disconnected."""

    def mistrust_all(self, done: Done) -> None:
        """One commit: each session that is here, was given away, or is on its way here is doubtful.
        Connected clients stay.
        """

    def confirmed(self, client: str, member: str) -> None:
        """That member holds nothing older any more: it leaves `older`, with any later commit."""

    def release(self, client: str, identifier: int, done: Callable[[bool], None]) -> None:
        """One commit: the received identifier goes. done: whether it was held."""

    def older_at(self, member: str) -> Iterable[str]:
        """The clients whose records name that member in `older`."""

    def unsettled(self) -> Iterable[str]:
        """The clients whose sessions are given away and not over, or doubtful. Asked at the
        start."""
