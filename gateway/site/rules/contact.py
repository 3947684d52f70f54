"""How a member stands with another one: whether there is a link, and the leases.

A *lease* is a promise of another member: for that long it will not decide about a client without
asking us. As long as we have a lease from each, a session that is here is the newest, and its
client is served without a word to anybody. Each beat says our clock and echoes the other's: the
lease counts from the moment at which we sent what is echoed, the promise from the moment at which
it was heard, which is later, and it is longer. So whoever calls us silent does it when our lease
is over. Only that the two clocks run equally fast within 10 % is assumed.

After a start no other member has a link yet. Each of them is *expected* for START_S, or until it
has given a lease. A member that has said that it stops is expected in the same way, since it may be
restarting. An expected member that has joined is *busy* for START_S, as long as it says something.
So is a member that has started since its last link, however long it was away and whatever ended it.
`silent_from` says how long a client waits for an expected or a busy member.

In: beats, links that come and go. Out: beats, `lease` and `promise` as moments of our clock, and
the moment at which a member that was asked counts as silent.
"""

from gateway.site.rules.messages import Beat

BEAT_S = 0.25
LEASE_S = 0.7
PROMISE_S = 0.8
ANSWER_S = 1.0
"""Seconds that a member may take to answer, or to say anything."""
START_S = 3.0
"""Seconds for which a member is expected, for which it may be busy after that, and for which a
client waits at most because of either."""


class Contact:
    """One other member."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.up = False
        """There is a link."""
        self.links = 0
        """So many there have been."""
        self.names: tuple[str, ...] | None = None
        """What its Names said; None before it came."""
        self.heard = float("-inf")
        """When it last said something."""
        self.lease = float("-inf")
        """Until then it does not decide without us."""
        self.promise = now + PROMISE_S
        """Until then we do not decide without it. A start may follow a crash, and what was promised
        before it is not known."""
        self.expected = now + START_S
        """Moment up to which the member is expected, if it has no link."""
        self.fresh = float("-inf")
        """Moment up to which the member may be busy, if it has a link."""
        self.granting = False
        """It has been told all that it must know: our beats may echo."""
        self._clock = 0

    def started(self, now: float) -> None:
        """Begin the wait for the member anew, unless it has joined: our start lasted until now."""
        if not self.links:
            self.expected = now + START_S

    def joined(self, now: float, begun: bool) -> None:
        """begun: the member has started since its last link."""
        self.up, self.names, self.heard = True, None, now
        self.links += 1
        if begun or now < self.expected:
            self.fresh = now + START_S
        self.lease, self.granting, self._clock = float("-inf"), False, 0

    def left(self, now: float, stopped: bool) -> None:
        """End the link. stopped: the member has said that it stops."""
        self.up, self.lease, self.granting = False, float("-inf"), False
        if stopped:
            self.expected = now + START_S

    def silent_from(self, deadline: float, patience: float) -> float:
        """Return the moment from which the member is silent if it has not answered.

        deadline: of the question. patience: moment up to which the client can wait for a member
        that is expected or busy.
        """
        if self.up:
            return max(deadline, min(self.heard + ANSWER_S, self.fresh, patience))
        return max(min(self.promise, deadline), min(self.expected, patience))

    def beat(self, now: float) -> Beat:
        return Beat(int(now * 1000), self._clock if self.granting else 0)

    def on_beat(self, beat: Beat, now: float) -> None:
        self._clock = beat.clock
        self.promise = now + PROMISE_S
        if beat.echo:
            self.expected = float("-inf")
            self.lease = max(self.lease, min(beat.echo / 1000, now) + LEASE_S)
