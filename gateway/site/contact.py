"""How a member stands with another one: whether there is a link, and the leases.

A *lease* is a promise of another member: for that long it will not decide about a client without
asking us. As long as we have a lease from each, a session that is here is the newest, and its
client is served without a word to anybody. Each beat says our clock and echoes the other's: the
lease counts from the moment at which we sent what is echoed, the promise from the moment at which
it was heard, which is later, and it is longer. So whoever calls us silent does it when our lease
is over. Only that the two clocks run equally fast within 10 % is assumed.

In: beats, links that come and go. Out: beats, `lease` and `promise` as moments of our clock.
"""

from gateway.site.messages import Beat

BEAT_S = 0.25
LEASE_S = 0.7
PROMISE_S = 0.8


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
        self.granting = False
        """It has been told all that it must know: our beats may echo."""
        self._clock = 0

    def joined(self, now: float) -> None:
        self.up, self.names, self.heard = True, None, now
        self.links += 1
        self.lease, self.granting, self._clock = float("-inf"), False, 0

    def left(self) -> None:
        self.up, self.lease, self.granting = False, float("-inf"), False

    def beat(self, now: float) -> Beat:
        return Beat(int(now * 1000), self._clock if self.granting else 0)

    def on_beat(self, beat: Beat, now: float) -> None:
        self._clock = beat.clock
        self.promise = now + PROMISE_S
        if beat.echo:
            self.lease = max(self.lease, min(beat.echo / 1000, now) + LEASE_S)
