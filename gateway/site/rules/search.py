"""One search for a client's session: its callers, the members' replies (`lookup.py`), and the
decision where the newest session is.

In: the claims of the members that have a record of the client, and the silent members. Out: the
member that has the session, and the record of the deciding member.

A claim that names another member in `older` supersedes that member's claim: when the record of the
first claim was made, the other member could not be asked, or had an older record. If each of two
claims names the other's member, each record was made without the other one, and it is unknown which
session the client saw last. The result is then suspect. Among claims that do not name each other's
members, the claim with the higher epoch is newer. A claim from a copy of a store is older than any
other.

A claim of another member was true when that member answered. A silent member may have decided
something about the client since then. So a session that moves while a member is silent is suspect.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import combinations
from typing import NamedTuple

from gateway.site.rules.contacts import Contacts
from gateway.site.rules.holder import NOBODY, Held, Outcome


class Claim(NamedTuple):
    """A member's record of a client; the fields are those of `Held` in `holder.py`."""

    epoch: int
    session: bool
    given_to: str | None = None
    older: frozenset[str] = NOBODY
    suspect: bool = False
    copied: bool = False
    unsure: frozenset[str] = NOBODY
    """Members that may have a newer session: they have given this member no valid lease, or have
    said that they are about to decide about this client. Set only in this member's own claim.
    """


class Decision(NamedTuple):
    source: str | None
    """The member whose session the client gets; None if a new session begins."""
    epoch: int
    """Epoch of the record that this member makes for the decision."""
    older: frozenset[str]
    suspect: bool


def supersedes(newer: tuple[str, Claim], older: tuple[str, Claim]) -> bool:
    """Whether claim A (`newer`) replaces claim B (`older`). Each comes with the name of its member.
    If exactly one claim is from a copy of a store, that claim is replaced. Else A replaces B if A
    names B's member in `older`, and either B does not name A's member or B's session has moved to
    A's member.
    """
    (one, first), (other, second) = newer, older
    if first.copied != second.copied:
        return second.copied
    return other in first.older and (one not in second.older or second.given_to == one)


def went_on_twice(claims: Mapping[str, Claim]) -> bool:
    """Whether two members each have a session that continued without knowing of the other one."""
    live = {name: claim.older for name, claim in claims.items() if is_live(claim)}
    return any(one in live[other] and other in live[one] for one, other in combinations(live, 2))


def is_live(record: Claim | Held) -> bool:
    """Whether the record's member has the session, and has not given it to another member."""
    return record.session and record.given_to is None


def decide(me: str, claims: Mapping[str, Claim], silent: frozenset[str], clean: bool) -> Decision:
    """Return the decision of this member. me: its name. claims: the claim of each member that has a
    record, including this member. silent: members without an answer. clean: whether the client
    wants no session.
    """
    older = (silent | claims.keys()) - {me}
    if not claims:
        return Decision(None, int(bool(silent)), older, bool(silent))
    epoch = max(claim.epoch for claim in claims.values()) + 1
    standing = dict(claims)
    if len(claims) > 1:
        for one in claims.items():
            if any(supersedes(other, one) for other in claims.items()):
                del standing[one[0]]
    ambiguous = not standing
    standing = standing or dict(claims)
    source, best = max(standing.items(), key=lambda item: (item[1].epoch, item[0]))
    ambiguous |= any(
        source in claim.older and one in best.older and claim.given_to != source
        for one, claim in claims.items()
    )
    better = best.unsure if source == me else silent
    if best.given_to is not None:
        better |= {best.given_to}
    if clean or not best.session:
        suspect = bool(silent) or (not clean and (ambiguous or best.suspect))
        return Decision(None, epoch, older, suspect)
    return Decision(source, epoch, older, ambiguous or best.suspect or bool(silent & better))


GONE = "the client has disconnected"

Waiter = Callable[[Outcome], None]
Alive = Callable[[], bool]


class Stage(Enum):
    ASKING = 1
    MOVING = 2
    SETTLING = 3
    OVER = 4


class Search:
    __slots__ = (
        "answered",
        "asked",
        "busy",
        "claims",
        "clean",
        "client",
        "decision",
        "dropped",
        "in_vain",
        "later",
        "looks",
        "patience",
        "queried",
        "quiet_until",
        "restored",
        "silent",
        "since",
        "stage",
        "suspects",
        "turn",
        "twofold",
        "waiters",
    )

    def __init__(
        self,
        client: str,
        suspects: frozenset[str],
        now: float,
    ) -> None:
        self.client = client
        self.since = now
        self.asked = now
        """Time from which the members' time to answer counts: the client's latest CONNECT, or the
        latest time at which all members were queried again.
        """
        self.patience = now
        """Time up to which the client waits for members that are expected or busy."""
        self.quiet_until = 0.0
        """Time up to which no member is queried (TURN_S); 0 if members may be queried."""
        self.looks = now
        """Time of the next check of this search."""
        self.stage = Stage.ASKING
        self.clean = False
        """Whether the client wants existing sessions to end (Clean Start 1). A session at another
        member moves here first, and ends here. So the session's will is published before the client
        is answered, and its messages of shared subscriptions go to other subscribers.
        """
        self.in_vain = False
        """Whether a move of the session to this gateway has already failed. From then on, a
        decision for a client with Clean Start 1 needs no move.
        """
        self.waiters: list[tuple[Waiter, Alive]] = []
        """For each caller: a function that gets the outcome, and one that says whether the caller's
        client still waits. Empty for a recall (`Lookup.recall`).
        """
        self.suspects = suspects
        """Members that asked for the client before this search began."""
        self.turn = 0
        """Number of rounds in which all members were queried again. Replies to queries of an
        earlier round do not count.
        """
        self.queried: dict[str, float] = {}
        """Time of the newest query to each member; replies to earlier queries do not count."""
        self.answered: set[str] = set()
        self.busy: set[str] = set()
        """Members whose last reply was BUSY."""
        self.claims: dict[str, Claim] = {}
        self.restored: set[str] = set()
        """Members that have answered, and may have forgotten something, because their store was
        restored.
        """
        self.twofold = False
        """Whether two members have sessions that continued without knowing of one another."""
        self.dropped: Callable[[], None] = lambda: None
        """For a recall (`Lookup.recall`): called if the search ends without bringing the session
        back.
        """
        self.silent: tuple[str, ...] = ()
        self.later: list[Callable[[], None]] = []
        """Calls of `Lookup.want` that came after the decision. Each of them searches again when
        this search ends.
        """
        self.decision: Decision | None = None

    def forget_replies(self) -> None:
        """Forget all replies so far, and ignore replies to queries that are already sent."""
        self.turn += 1
        self.answered.clear()
        self.busy.clear()
        self.claims.clear()

    def forget_reply(self, member: str) -> None:
        self.answered.discard(member)
        self.claims.pop(member, None)

    def supersede(self) -> int:
        """Drop the callers whose connection is gone. Call this when a newer connection of the
        client takes their place. Return the number of dropped callers.
        """
        superseded = [done for done, alive in self.waiters if not alive()]
        self.waiters = [(done, alive) for done, alive in self.waiters if alive()]
        for done in superseded:
            done(Outcome("failed", 0, (), GONE))
        return len(superseded)

    def silent_from(self, contacts: Contacts, member: str) -> float:
        """Return the time from which a member without an answer counts as silent."""
        until = contacts[member].silent_from(self.asked, self.patience)
        if member in self.busy and contacts[member].up:  # the member may wait for a starting one
            until = max(until, min(contacts.starting, self.patience))
        return until

    def decide(self, me: str) -> Decision:
        """Return the decision that follows from the claims."""
        silent = frozenset(self.silent)
        self.twofold = len(self.claims) > 1 and went_on_twice(self.claims)
        decision = decide(me, self.claims, silent, False)
        simple = decision.source in (None, me) or decision.suspect or self.in_vain
        if self.clean and simple:
            return decide(me, self.claims, silent, True)
        return decision
