"""One search for a client's session: its callers, and the members' replies (`lookup.py`)."""

from collections.abc import Callable
from enum import Enum

from gateway.site.rules.contacts import Contacts
from gateway.site.rules.decision import Claim, Decision, decide, went_on_twice
from gateway.site.rules.holder import Outcome

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
