"""Subscriptions that are newer than messages on their way from another gateway.

While there is no exchange between this gateway and another one, the other gateway queues its
messages for clients of this gateway. When the exchange begins, these messages must not go to a
subscription that was made in between, because the messages may be older than the subscription.

In: new subscriptions, exchanges that begin and end, and CUT notices. Out: sessions whose new
filters do not apply to such messages, and ASK notices. The answer CUT comes after all messages that
were in the other gateway's queue, so it ends this state. A session in this state has a
`SessionMove` although it does not move, and is stored and moved like other sessions.
"""

from __future__ import annotations

from secrets import randbelow

from gateway.broker.core import Core
from gateway.broker.session import Session
from gateway.config import INSIDE
from gateway.mqtt.topics import SHARE_PREFIX
from gateway.site.moving.addresses import OWN_STAGES, Kind, Stage
from gateway.site.moving.cuts import AGAIN_S, say
from gateway.site.moving.session_moves import NEW, SessionMove, move_of, moves_of, note


class Behind:
    """Other gateways whose forwarded messages may be older than the newest subscriptions here."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._moves = moves = moves_of(core)
        self._own = randbelow(OWN_STAGES - 1) + 1
        """Random number of this gateway's present start. A CUT with another number is for an
        earlier start.
        """
        self._latest = 0
        """Highest number used so far. Each ASK gets the next number. The new subscriptions of a
        commit have the number of the ASK that is sent for them.
        """
        self._commit = -1
        """Number of the commit with the latest new subscriptions."""
        self._open: set[str] = set()
        """Gateways with which an exchange is open."""
        self._asked: dict[str, tuple[int, float]] = {}
        """Number and time of the latest ASK to each gateway, until the gateway answers it."""
        self._again: set[str] = set()
        """Gateways that get another ASK after their answer, because their exchange began again
        before it.
        """
        self.members = set(moves.queues)

    def opened(self, member: str) -> None:
        """Note that an exchange with a member has begun, and send ASK to the member. If an ASK that
        was sent within the last AGAIN_S seconds is still unanswered, send another one after its
        answer.
        """
        self._open.add(member)
        asked = self._asked.get(member)
        if asked is not None and self._core.now < asked[1] + AGAIN_S:
            self._again.add(member)
        else:
            with self._core.step:
                say(self._core, [member], Kind.ASK, self._earlier(member))
                self._next([member])

    def _earlier(self, member: str) -> list[Stage]:
        """Return the stages of ASKs from earlier starts of this gateway that `member` has not
        answered by a CUT yet.
        """
        stages = [
            move.stage
            for _, move in self._moves
            if member in move.closed and move.stage.moving_id < OWN_STAGES
        ]
        return [stage for stage in dict.fromkeys(stages) if stage.moving_id != self._own]

    def shut(self, member: str) -> None:
        self.members.add(member)
        self._open.discard(member)

    def cut(self, member: str, stage: Stage) -> None:
        """Handle a CUT for new subscriptions. If it answers the latest ASK to `member`, all earlier
        messages of `member` have arrived. But if another ASK has become necessary since then, send
        it.
        """
        asked = self._asked.get(member)
        if asked is None or stage != (self._own, asked[0]):
            return
        del self._asked[member]
        if member in self._again:
            self._next([member])
        else:
            self.members.discard(member)

    def subscribed(self, session: Session, topic_filter: str) -> None:
        """Handle a new subscription of a connected client."""
        if not self.members or session.user == INSIDE:
            return
        if topic_filter.startswith(SHARE_PREFIX):  # each message has one receiver in any case
            return
        move = move_of(session)
        if move is not None and move.stage.moving_id >= OWN_STAGES:
            if move.closed & self.members:  # the cuts of the move come later
                move.filters += (topic_filter,)
                note(self._core, session)
            return
        if self._core.changes.number != self._commit:
            self._commit = self._core.changes.number
            self._next(sorted(self.members & self._open))
        closed, filters = set(self.members), [NEW]
        if move is not None:
            self._moves.drop(session)
            closed, filters = closed | move.closed, [*move.filters]
        stage = Stage(self._own, self._latest)
        self._moves.add(session, SessionMove(stage, closed, None, (*filters, topic_filter)))
        note(self._core, session)

    def _next(self, members: list[str]) -> None:
        """Send these gateways an ASK with a new number."""
        self._latest += 1
        self._again -= {*members}
        self._asked.update(dict.fromkeys(members, (self._latest, self._core.now)))
        self._core.neighbours.has_news = True
        say(self._core, members, Kind.ASK, [Stage(self._own, self._latest)])
