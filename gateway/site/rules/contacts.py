"""The other members of the site: the contact with each one, and the state that all parts of a
`Member` share (sending, the encoding of member names, planned calls, statistics, current time).

A *lease* is a promise of another member: for LEASE_S it will not decide about a client without
asking this member. While this member has a lease from each other member, a session here is the
newest, and its client is served without any message.

Both sides send *beats*. A beat contains the sender's clock, and echoes the latest clock that the
sender has received. A lease counts from the time at which this member sent the echoed clock. The
other member's promise counts from the time at which it received that clock, which is later, and the
promise lasts longer (PROMISE_S). So the other member counts this member as silent only after the
lease has ended. The only assumption is that the two clocks run equally fast within 10 %.

After a start no other member has a link yet. Every member is *expected* for START_S, or until it
has given a lease. A member that has announced its stop is expected for RESTART_S, because it may be
restarting. An expected member that has joined is *busy* for START_S, as long as it sends anything.
A member that has started since its last link is also busy, however long it was away and whatever
ended that link. `silent_from` returns the time until which a client waits for an expected or a busy
member.

A member may take ANSWER_S to answer a query, and longer over a slow line: `answer_s` follows the
measured round trip of beats, up to MOST_ANSWER_S.

A member that has left a query without an answer for `answer_s` is *mute* until it answers any
query. A mute member gets no more leases, and clients wait for it only until its last lease is over.
A mute member may still send queries and beats.

In: beats, answers, links that begin and end. Out: beats, `lease` and `promise` as times of this
member's clock, and the time at which a queried member counts as silent.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from gateway.site.rules.messages import Beat, Message, encode

BEAT_S = 0.25
LEASE_S = 0.7
PROMISE_S = 0.8
ANSWER_S = 1.0
"""Seconds that a member over a fast line may take to answer. A busy member may take longer, if it
sends something at least this often.
"""
MOST_ANSWER_S = 4.0
"""Upper bound of the seconds that a member over a slow line may take to answer."""
START_S = 3.0
"""Seconds for which the other members are expected after this member's start. Also the seconds for
which another member may be busy after it has joined. A client without a Keep Alive waits at most
this long for expected and busy members.
"""
RESTART_S = 15.0
"""Seconds for which a member is expected after it has announced its stop. A client, too, waits at
most this long for members that are expected or busy.
"""
_AVERAGED = 8
"""If a round trip is shorter than the average, the average falls by 1/_AVERAGED of the difference.
A longer round trip replaces the average at once.
"""


class Contact:
    """The contact with one other member."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.up = False
        """Whether there is a link."""
        self.links = 0
        """Number of links with the member since the start of this gateway."""
        self.names: tuple[str, ...] | None = None
        """Names in the member's message Names; None before this message arrives."""
        self.heard = float("-inf")
        """Time of the last frame from the member."""
        self.lease = float("-inf")
        """End of the lease that the member has given. Until this time, the member decides about no
        client without asking this gateway.
        """
        self.promise = now + PROMISE_S
        """Time until which this gateway decides about no client without asking the member. At a
        start it is PROMISE_S in the future, because promises from before a crash are unknown.
        """
        self.expected = now + START_S
        """Time up to which the member is expected. Used only while the member has no link."""
        self.fresh = float("-inf")
        """Time up to which the member may be busy, because it has joined lately. Used only while
        the member has a link."""
        self.granting = False
        """Whether beats to the member echo its clock, and so give it a lease. Set once the member
        has been sent all Over messages for which its lease has to wait (`ending.py`).
        """
        self.mute = False
        """Whether the member left a query unanswered for too long over its present link. Its next
        answer ends this.
        """
        self.round_trip = 0.0
        """Smoothed round trip of beats, in seconds. It contains the member's delay until its next
        beat, up to BEAT_S.
        """
        self._answered = float("-inf")
        self._linked = float("-inf")
        self._clock = 0

    def started(self, now: float) -> None:
        """If the member has had no link since this gateway's start, expect it for START_S from now
        on. Called when the links have started, and again when this gateway's start is complete.
        """
        if not self.links:
            self.expected = now + START_S

    def joined(self, now: float, begun: bool) -> None:
        """Note a new link. begun: whether the member has started since its last link."""
        self.up, self.names, self.heard, self.mute = True, None, now, False
        self._linked = now
        self.links += 1
        if begun or now < self.expected:
            self.fresh = now + START_S
        self.lease, self.granting, self._clock = float("-inf"), False, 0

    def link_ended(self, now: float, stopped: bool) -> None:
        """Note the end of the link. stopped: whether the member has announced its stop."""
        self.up, self.lease, self.granting = False, float("-inf"), False
        if stopped:
            self.expected = now + RESTART_S

    @property
    def answer_s(self) -> float:
        """Seconds that the member may take to answer a query."""
        return min(max(ANSWER_S, ANSWER_S / 2 + 1.5 * self.round_trip), MOST_ANSWER_S)

    def silent_from(self, asked: float, patience: float) -> float:
        """Return the time from which the member counts as silent if it has not answered by then.
        asked: time of the query. patience: time until which the client can wait for a member that
        is expected or busy.
        """
        deadline = asked + self.answer_s
        if self.up and self.mute:
            return min(self.promise, deadline)
        if self.up:
            return max(deadline, min(self.heard + ANSWER_S, self.fresh, patience))
        return max(min(self.promise, deadline), min(self.expected, patience))

    def passed_over(self, now: float, since: float) -> None:
        """Note that a decision was made without the member's answer to a query. A linked member
        becomes mute if it had enough time to answer. since: time of the query. If the link is newer
        than the query, the time is counted from the link's start.
        """
        since = max(since, self._linked)
        late = now >= max(since + self.answer_s, self.fresh)
        self.mute = self.mute or (self.up and late and self._answered < since)

    def answered(self, now: float) -> None:
        """Note an answer to a query. If the member was mute, `promise` is renewed, because the
        member gets leases again from now on.
        """
        if self.mute:
            self.promise = now + PROMISE_S
        self._answered, self.mute = now, False

    def beat(self, now: float) -> Beat:
        return Beat(int(now * 1000), self._clock if self.granting and not self.mute else 0)

    def on_beat(self, beat: Beat, now: float) -> None:
        self._clock = beat.clock
        if not self.mute:
            self.promise = now + PROMISE_S
        if beat.echo:
            self.expected = float("-inf")
            took = max(0.0, now - beat.echo / 1000)
            self.round_trip = max(took, self.round_trip + (took - self.round_trip) / _AVERAGED)
            self.lease = max(self.lease, min(beat.echo / 1000, now) + LEASE_S)


@dataclass(slots=True)
class Statistics:
    """Counters since the start of this gateway."""

    asked: int = 0
    """Number of queries; a query to two members counts twice."""
    calls: int = 0
    """Number of Ask, Take and End frames sent. Each causes work at another member."""
    moved_in: int = 0
    moved_out: int = 0
    silent: int = 0
    """Number of decisions that were made while a member was silent."""
    superseded: int = 0
    """Number of CONNECTs whose client connected again before the session lookup had ended."""
    released: int = 0
    """Number of packet identifiers that other members have released at this member's request."""
    by_member: dict[str, int] = field(default_factory=dict)
    """Number of session lookups in which a member was silent, by member."""


class Contacts(dict[str, Contact]):
    """The other members by name. send: sends a frame to one of them, or drops it. wake: requests a
    call of `Member.advance` at the given time or earlier.
    """

    def __init__(
        self,
        me: str,
        others: Iterable[str],
        send: Callable[[str, bytes], None],
        wake: Callable[[float], None],
        now: float,
    ) -> None:
        super().__init__({name: Contact(name, now) for name in sorted(others)})
        self.me = me
        self.now = now
        """Current time for all parts of this member, in seconds of a monotonic clock."""
        self.names = tuple(sorted((me, *self)))
        self.statistics = Statistics()
        self.timed: list[tuple[float, int, Callable[[], None]]] = []
        """Heap of planned calls: time, serial number, function."""
        self.afterwards: dict[Callable[[], None], None] = {}
        """Functions to call at the end of the present call of a `Member` method, each once."""
        self._count = count()
        self._bits = {name: 1 << bit for bit, name in enumerate(self.names)}
        self._send = send
        self.wake = wake

    def plan(self, time: float, call: Callable[[], None]) -> None:
        """Call a function at `time`. A planned call cannot be withdrawn, so it must do no harm if
        it has become needless.
        """
        entry = time, next(self._count), call
        heapq.heappush(self.timed, entry)
        if self.timed[0] is entry:
            self.wake(time)

    @property
    def starting(self) -> float:
        """Time after which no other member can still be starting (`Contact.expected`,
        `Contact.fresh`). Minus infinity if there are no other members.
        """
        times = (max(contact.expected, contact.fresh) for contact in self.values())
        return max(times, default=float("-inf"))

    def say(self, member: str, message: Message, *, call: bool = False) -> None:
        """Send a message to a member. call: whether it counts in `Statistics.calls`."""
        if self[member].up:
            self.statistics.calls += call
            self._send(member, encode(message))

    def mask(self, names: Iterable[str]) -> int:
        """Return the number that stands for the members `names` in a message: bit n is the n-th
        name of this member's Names, from 0. Members that were removed from the site have no bit.
        """
        return sum(self._bits.get(name, 0) for name in names)

    def place(self, name: str | None) -> int:
        """Return the number that stands for a member in a message: the position of its name in this
        member's Names, from 1; 0 for None or a name outside the site.
        """
        return self.names.index(name) + 1 if name in self.names else 0

    def unmask(self, member: str, mask: int) -> frozenset[str]:
        """Return the members for which `mask` stands in a message from `member`. Bits without a
        name are ignored.
        """
        if not mask:
            return frozenset()
        names = self[member].names or ()
        return frozenset(name for bit, name in enumerate(names) if mask >> bit & 1)

    def placed(self, member: str, place: int) -> str | None:
        """Return the member for which `place` stands in a message from `member`; None for 0 or a
        number without a name.
        """
        names = self[member].names or ()
        return names[place - 1] if 0 < place <= len(names) else None
