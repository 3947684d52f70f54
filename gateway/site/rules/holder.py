"""Interface of a member to its gateway: the sessions that are here, on disk.

In: decisions of the member. Out: this gateway's record of a client, and the news that a change is
on disk. The broker and the store implement this interface; the member knows neither.

For each client, a gateway holds nothing, or one *record*: its epoch, a session or none, and the
members that may still hold an older session (`older`). A record lasts while it has a session, while
`older` names a member, or while the client may not know that its session has ended.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

Done = Callable[[], None]
NOBODY: frozenset[str] = frozenset()
ALL_CLIENTS = ""
"""Key of a record for all clients; no client has this key. A gateway has this record if it may have
forgotten that a session elsewhere is outdated, or if the site has a new member. The record's
`older` names the members that have not been notified.
"""


class Held(NamedTuple):
    """The record of a client at this gateway."""

    epoch: int
    session: bool = True
    """Whether there is a session. Without a session, the record only states that older sessions at
    the members in `older` are no longer valid. If such a record is also suspect, the client may not
    know this.
    """
    given_to: str | None = None
    """Member to which the session has moved, until the member confirms it. Meanwhile the session is
    kept here and cannot be used.
    """
    older: frozenset[str] = NOBODY
    """Members that may hold an older session, which has to end."""
    suspect: bool = False
    """Whether the session is suspect: the client may have been at another member later. Set by
    `take`, `mark_suspect` and `mark_all_suspect`, and for each session of a restored store. The
    broker clears the flag in the commit that follows an `Outcome` whose kind is "doubt" or "none".
    If the client may not know that its session is new (`unheard.py`), the flag is set again until
    the client has sent a packet.
    """
    copied: bool = False
    """Whether the record comes from a copy of this store, and nothing was decided about the client
    after the copy.
    """


class Outcome(NamedTuple):
    """The result of a session lookup.

    - here: the session is here, and is the newest: Session Present 1.
    - none: no valid session exists: Session Present 0, and a new session replaces any session here.
      Counted and logged if a member was silent, or if `suspect` is set.
    - doubt: the session is here, and marked as suspect on disk: a silent member may have a newer
      one. If the session holds received QoS 2 identifiers outside a proved board's anti-replay
      window, they are forgotten: Session Present 0. Otherwise the session continues. Counted and
      logged.
    - failed: nothing was decided (`reason`): the session is at another member and cannot move here,
      or the client has gone. Refuse the CONNECT.

    A new session gets `epoch`. If the client's record has to be on disk with that epoch, it is
    there already.
    """

    kind: Literal["here", "none", "doubt", "failed"]
    epoch: int = 0
    silent: tuple[str, ...] = ()
    reason: str = ""
    suspect: bool = False
    """Whether it is possible that the client does not know that its last session has ended."""
    twofold: bool = False
    """Whether two sessions of the client continued without knowing of one another. If so, the
    suspect session does not continue: a new session replaces it.
    """


class Holder(Protocol):
    """The sessions of this gateway. `done` is called on the member's thread when the change is on
    disk. This may be before the method returns.
    """

    def record(self, client: str) -> Held | None:
        """Return the record of a client, None if there is none. The latest change of the record may
        still wait for a commit (`on_disk`).
        """

    def on_disk(self, done: Done) -> None:
        """Call `done` when the present records of all clients are on disk."""

    def give(self, client: str, to: str, done: Callable[[Sequence[bytes] | None], None]) -> None:
        """Move a session to another member in one commit. A connected client is disconnected
        (0x8E). The record's `epoch` and `older` stay.

        done: called with the session's parts, each of at most PART_BYTES, or with None if there is
        no durable session. A repeated call, also for another member, gives the same parts.
        """

    def take(
        self,
        client: str,
        epoch: int,
        older: frozenset[str],
        suspect: bool,
        parts: Sequence[bytes],
        done: Callable[[str | None], None],
    ) -> None:
        """Store the session in `parts` in one commit, in place of any session of the client here.
        The client's record gets `epoch`, `older` and `suspect`. Until the commit is done, `record`
        may return the previous record. done: called with None, or with the reason of a failure (bad
        parts, limits). After a failure the record is as before. The session that was here stays,
        except if the fault of the parts was found only in the commit.
        """

    def stand(self, client: str, epoch: int, older: frozenset[str], done: Done) -> None:
        """Set epoch and `older` of the client's record in one commit. From then on, the record no
        longer counts as taken from a copy of the store (`Held.copied`). A session that is here
        stays. A session that has moved away returns. If there is no session and a client waits, the
        broker creates a session next. If that fails, the record stays without a session. A suspect
        record stays suspect until the client has connected.
        """

    def end(self, client: str, below: int, done: Done) -> None:
        """If the epoch of the client's record is lower than `below`, delete the record with its
        session, parts and `older`, in one commit. A connected client is disconnected (0x8E).
        """

    def mark_suspect(self, client: str, done: Done) -> None:
        """Mark the session as suspect in one commit. A connected client is disconnected."""

    def mark_twofold(self, client: str) -> None:
        """Note, with the next commit, that the client has also used another session, at a member
        that did not know of the session here. If the session here is suspect, a new session will
        replace it.
        """

    def mark_all_suspect(self, done: Done) -> None:
        """Mark each session that is here, has moved away, or is on its way here as suspect, in one
        commit. Connected clients stay.
        """

    def confirmed(self, client: str, member: str) -> None:
        """Note that a member has no older session of the client any more. A later commit removes
        the member from `older`.
        """

    def release(self, client: str, identifier: int, done: Callable[[bool], None]) -> None:
        """Forget a packet identifier that the client's session has received, in one commit. done:
        called with whether the identifier was known.
        """

    def older_at(self, member: str) -> Iterable[str]:
        """Return the clients in whose records `older` contains this member."""

    def unsettled(self) -> Iterable[str]:
        """Return the clients whose session is suspect, or has moved to a member that has not
        confirmed the session yet. Called at the start.
        """
