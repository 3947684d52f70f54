"""The records of the site's clients at this gateway: sessions of the broker, sessions that have
left and are kept until they arrive at another member, and the site's facts about each session
(`Place`).

In: decisions of the site (`gateway/site/rules/holder.py` defines each). Out: the same changes in
the broker and on disk, each in one commit, and a notice when it is on disk. Each client has one
`Place` (`places.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from math import isinf

from gateway.broker.broker import Broker
from gateway.broker.session import Session
from gateway.config import INSIDE
from gateway.mqtt.reason import ReasonCode
from gateway.site.moving import moving
from gateway.site.moving.neighbours import site_of
from gateway.site.moving.session_moves import move_rows
from gateway.site.rules.holder import ALL_CLIENTS, NOBODY, Done, Held
from gateway.site.wiring.places import Place, Places
from gateway.site.wiring.unheard import Unheard
from gateway.store.move_records import Unfit, read_head
from gateway.store.move_rows import Moved, SessionExport, SessionImport, key_of, name_of
from gateway.system.logs import about, printable

log = logging.getLogger(__name__)

_OTHERS = 0xFFFF
"""Packet identifier that stands for all identifiers that the client has used at another member."""
_MOVED = ReasonCode.SESSION_TAKEN_OVER, "the client is at another gateway of the site"
_LOST = (
    "%s. This gateway may not know of newer sessions of its clients, so all sessions are suspect"
    " until their clients connect"
)


class _Given:
    """A session that has left this gateway, or is leaving it."""

    __slots__ = ("commit", "ends", "member", "order")

    def __init__(
        self, member: str, ends: float, order: SessionExport | None = None, commit: int = 0
    ):
        self.member = member
        self.ends = ends
        """Time at which the session expires, in seconds on the time axis; infinity for never."""
        self.order = order
        """The order to move the session; None once the move is on disk."""
        self.commit = commit


_NO_PLACE = Place()
"""The empty `Place`, used for each client that has none. It is never changed."""


def own_key(session: Session) -> str:
    return key_of(session.client, session.user, session.incarnation)


class SessionHolder:
    """The records of this gateway about sessions: their places and moves (a `Holder`). begin: must
    be called before the broker is changed. parts: returns the parts of a moved session, by key.
    members: the other members; former members are forgotten. returned: whether a gateway with this
    name was in the site before. If `returned` is set and this store has never run in a site, the
    records of the earlier store are lost, and all sessions become suspect.
    """

    def __init__(
        self,
        broker: Broker,
        begin: Callable[[], None],
        parts: Callable[[str], Sequence[bytes]],
        members: Iterable[str],
        returned: bool = False,
    ) -> None:
        self._broker = broker
        self._site = site_of(broker)
        self._begin = begin
        self._parts = parts
        self.known = known = frozenset(members)
        self.places = Places(
            broker,
            self._site.moved.places,
            lambda key: self.moves(key) or key in self._moved_out or self.session(key) is not None,
        )
        self.unheard = Unheard(self.places)
        self._moved_out = {
            key: _Given(member, _seconds(ends))
            for key, member, _, _, ends in self._site.moved.moved_out
        }
        self._taking: dict[str, Place] = {}
        """`Place` of each inbound session, until the session is on disk."""
        self.closed = False
        """Whether the site's work at this gateway has ended. From then on, parts of sessions are
        not handed over.
        """
        self.lost = 0
        """Number of messages that were lost because their session here ended in favour of a newer
        one.
        """
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        """Functions to call at the end of a session's move, by the session's key."""
        self._forget_strangers(known)
        self._compare_members(known, returned)

    def _compare_members(self, known: frozenset[str], returned: bool) -> None:
        """Compare the members in the store with the current ones. A removed member may have decided
        about any client, and no record here shows the decision. So all sessions here become
        suspect, and all members must be notified. A new member must be notified because its
        sessions may be older: while it was outside the site, no record named it.
        """
        broker, before = self._broker, self._site.moved.members
        departed = (before or NOBODY) - known
        replaced = returned and before is None
        if departed:
            names = ", ".join(map(printable, sorted(departed)))
            log.warning(_LOST, f"no longer in [site.members]: {names}")
        elif replaced:
            log.warning(_LOST, "this gateway was in the site before, with another store")
        hear = NOBODY if before is None else known - before
        if departed or replaced or self._site.moved.is_suspect:
            self._mark_all_suspect()
            hear = known
        if self._site.moved.is_suspect:
            self.places.mark_copies()
        if hear:
            self.places.of(ALL_CLIENTS).older |= hear
            self.places.save(ALL_CLIENTS)
        if before != known or self._site.moved.is_suspect:
            move_rows(broker).members = known
            broker.promise()

    def _forget_strangers(self, known: frozenset[str]) -> None:
        """Forget members that are no longer in the site, because they will never confirm anything.
        A session that has moved to such a member may have been used there, so it is suspect.
        """
        for key in self.moved_out():
            if self._moved_out[key].member not in known:
                self.places.of(key).suspect = True
                self.places.save(key)
        for key, place in list(self.places.items()):
            if not place.older <= known:
                place.older &= known
                self.places.save(key)
        self.places.forget_idle()

    def _mark_all_suspect(self) -> None:
        """Mark all sessions as suspect that are here, have moved away, or are on their way here.
        Sessions of internal clients are left out.
        """
        self.unheard.doubt()
        sessions = self._broker.sessions.values()
        keys = [own_key(session) for session in sessions if session.user != INSIDE]
        for key in (*keys, *self.moved_out()):
            if key not in self._taking:
                self.places.of(key).suspect = True
                self.places.save(key)
        for key, place in self._taking.items():
            place.suspect = True
            move_rows(self._broker).places[key] = place.row(key)

    # -- reading

    def session(self, key: str) -> Session | None:
        """Return the session with this key; None if it has left or expired, or if there is none."""
        # `name_of` and `own_key`, inlined because each look at a record runs them
        session = self._broker.sessions.get(key.partition("\0")[0])
        if session is None or session.ended or session.ends <= self._broker.now:
            return None
        own = key_of(session.client, session.user, session.incarnation)
        return session if own == key else None

    def moves(self, key: str) -> bool:
        """Whether a session is moving here or away."""
        moved = self._moved_out.get(key)
        return key in self._taking or (moved is not None and moved.order is not None)

    def when_moved(self, key: str, call: Callable[[], None]) -> None:
        """Call a function when the present move of this session ends."""
        self._waiting.setdefault(key, []).append(call)

    def record(self, client: str) -> Held | None:
        if self.unheard:
            self.unheard.look_at(client)
        place = self.places.get(client, _NO_PLACE)
        moved = self._given_of(client) if client in self._moved_out else None
        is_present = moved is not None or self.session(client) is not None
        if not is_present and not place.older and not place.unheard:
            return None
        return Held(
            place.epoch,
            is_present,
            None if moved is None else moved.member,
            place.older,
            place.suspect,
            place.copied,
        )

    def older_at(self, member: str) -> Iterable[str]:
        return [key for key, place in self.places.items() if member in place.older]

    def moved_out(self) -> Iterable[str]:
        return [key for key in list(self._moved_out) if self._given_of(key) is not None]

    def unsettled(self) -> Iterable[str]:
        suspect = (key for key, place in self.places.items() if place.suspect)
        return dict.fromkeys([*self.moved_out(), *suspect])

    def given_to(self) -> dict[str, str]:
        """Return, by client, the new member of each session that is leaving, or has left without a
        confirmation by that member.
        """
        return {name_of(key): self._moved_out[key].member for key in self.moved_out()}

    def _given_of(self, key: str) -> _Given | None:
        """Return the record of a session that is leaving, or has left without a confirmation by its
        new member. None if there is no such session, or if it has expired.
        """
        moved = self._moved_out.get(key)
        if moved is not None and moved.order is None and moved.ends <= self._broker.now:
            _forget_given(self, key)
            return None
        return moved

    # -- changing

    def on_disk(self, done: Done) -> None:
        broker = self._broker
        # if no changes wait for a commit, only the current commit has to be waited for
        number = broker.changes.number - 1 if broker.changes.empty else broker.promise()
        if broker.committed < number:
            self._begin()
        broker.when_on_disk(number, done)

    def give(self, client: str, to: str, done: Callable[[Sequence[bytes] | None], None]) -> None:
        self._begin()
        broker, moved = self._broker, self._given_of(client)
        if moved is not None:
            if moved.order is not None:
                self.when_moved(client, lambda: self.give(client, to, done))
            elif moved.member == to:
                self._hand_over(client, to, done)
            else:
                moved.member = to
                move_rows(broker).redirected.append((to, client))
                commit = broker.promise()
                broker.when_on_disk(commit, lambda: self._hand_over(client, to, done))
            return
        session = self.session(client)
        if session is not None and session.connection is not None:
            address = session.connection.peer.address
            broker.fights.take_over(session.client, address, f"one at {printable(to)}")
            broker.hang_up(session.connection, *_MOVED)
            broker.settle(session.client)
            session = self.session(client)
        if (place := self.places.get(client)) is not None and place.unheard:
            self.mark_twofold(client)
        if session is None or not session.durable:
            broker.settle()
            done(None)
            return
        order = SessionExport(session.id, client, to)
        commit = moving.give(broker, session, order)
        self._moved_out[client] = _Given(to, float("inf"), order, commit)
        broker.when_on_disk(commit, lambda: self._gave(client, order, done))

    def _gave(
        self, key: str, order: SessionExport, done: Callable[[Sequence[bytes] | None], None]
    ) -> None:
        moved = self._moved_out[key]
        moved.order = None
        if order.released is None:
            del self._moved_out[key]
            done(None)
        else:
            moved.ends = _seconds(order.ends)
            moving.release_messages(self._broker, order)
            client = name_of(key)
            log.info(
                "%s: its session has moved to %s",
                printable(client),
                order.member,
                extra=about(client=client),
            )
            self._hand_over(key, order.member, done)
        self._moved(key)

    def _hand_over(self, key: str, to: str, done: Callable[[Sequence[bytes] | None], None]) -> None:
        """Hand the parts of a session to the member `to`. The parts are on this disk already. With
        `copies = 2`, first wait until all commits so far are replicated or have landed. The reason:
        the member will acknowledge packet identifiers that the session has received, so their
        publications must not be on one disk only. done: gets the parts, or None if the session no
        longer goes to this member; not called after the end of the site.
        """

        def hand_over() -> None:
            moved = self._given_of(key)
            if not self.closed:
                done(self._parts(key) if moved is not None and moved.member == to else None)

        if self._site.second_disk is None:
            hand_over()
        else:
            self._site.second_disk.call(self._broker.committed, hand_over)

    def take(
        self,
        client: str,
        epoch: int,
        older: frozenset[str],
        suspect: bool,
        parts: Sequence[bytes],
        done: Callable[[str | None], None],
    ) -> None:
        self._begin()
        broker = self._broker
        try:
            head = read_head(parts)
        except Unfit as error:
            done(str(error))
            return
        most = broker.limits
        if head.messages > most.queue_messages + most.inflight:
            done(f"{head.messages} messages wait in its queue, too many (limits.queue_messages)")
        elif len(broker.sessions) >= most.sessions and name_of(client) not in broker.sessions:
            done("there are too many sessions (limits.sessions)")
        elif lack := broker.lacks_room(size := sum(map(len, parts))):
            done(lack)
        else:
            broker.changes.bytes += size
            self._bring(client, parts, head.messages, Place(epoch, suspect, older), done)

    def _bring(
        self,
        key: str,
        parts: Sequence[bytes] | None,
        messages: int,
        place: Place,
        done: Callable[[str | None], None],
    ) -> None:
        """Import a session with the next commit. parts: None if this gateway's store still has
        them. done: called after the commit, with the reason if the import has failed, else None.
        """
        broker = self._broker
        self._end(key)
        order = SessionImport(
            broker.next_session(),
            key,
            int(broker.now * 1000),
            parts,
            broker.needed_rows.reserve(messages),
            messages,
            2 * broker.limits.queue_messages + 0xFFFF,  # with messages in flight, and a margin
            broker.limits.subscriptions,
            self._site.session_moves.me,
            sorted(self._site.session_moves.queues),
        )
        changes = move_rows(broker)
        changes.imports.append(order)
        changes.places[key] = place.row(key)
        if key in self._moved_out:
            changes.forgotten.append(key)
            if parts is not None:
                moving.over(broker, key)
        self._taking[key] = place
        commit = broker.promise()
        broker.when_on_disk(commit, lambda: self._arrived(order, place, done))

    def _arrived(
        self, order: SessionImport, place: Place, done: Callable[[str | None], None]
    ) -> None:
        key, client = order.key, name_of(order.key)
        name = printable(client)
        del self._taking[key]
        if order.state is None:
            log.error("%s: its session cannot be moved here: %s", name, order.wrong)
        else:
            self._moved_out.pop(key, None)
            moving.arrive(self._broker, order.state)
            self.places[key] = place
            log.info("%s: its session has moved here", name, extra=about(client=client))
        done(order.wrong)
        self._moved(key)

    def stand(self, client: str, epoch: int, older: frozenset[str], done: Done) -> None:
        self._begin()
        before = self.places.of(client)
        moved = self._given_of(client)
        untold = before.suspect and moved is None and self.session(client) is None
        place = Place(epoch, before.suspect, older, unheard=before.unheard or untold)
        if moved is None:
            self.places[client] = place
            self.places.save(client)
            self.on_disk(done)
        elif moved.order is not None:
            self.when_moved(client, lambda: self.stand(client, epoch, older, done))
        else:
            parts = self._parts(client)
            messages = read_head(parts).messages
            self._bring(client, None, messages, place, lambda _: done())

    def end(self, client: str, below: int, done: Done) -> None:
        self._begin()
        if self.moves(client):
            self.when_moved(client, lambda: self.end(client, below, done))
            return
        if self.places.get(client, _NO_PLACE).epoch < below:
            self._end(client)
            if client in self._moved_out:
                moving.over(self._broker, client)
                _forget_given(self, client)
            self.places.end(client)
        self.on_disk(done)

    def _end(self, key: str) -> None:
        """End the session that is here. Its client has a newer session at another member, so the
        will is not published.
        """
        broker, session = self._broker, self.session(key)
        if session is None:
            return
        if session.connection is not None:
            broker.hang_up(session.connection, *_MOVED)
            broker.settle(session.client)
        will = broker.wills.pop(session.client, None)
        if will is not None:
            broker.will_use.add(will.origin, -will.size)
            broker.changes.wills[session.client] = None
            broker.effects.wills.pop(session.client, None)
        if not session.ended:
            why = "its client has a newer session at another gateway"
            end_with_loss(self, broker, session, why)

    def mark_suspect(self, client: str, done: Done) -> None:
        self._begin()
        session = self.session(client)
        if session is not None and session.connection is not None:
            self._broker.hang_up(session.connection, *_MOVED)
            self._broker.settle()
        self.unheard.doubt(client)
        self.places.of(client).suspect = True
        self.places.save(client)
        self.on_disk(done)

    def mark_twofold(self, client: str) -> None:
        self._begin()
        session = self.session(client)
        if session is not None and not session.incarnation and not session.receive_flow.received:
            # keep an identifier that the client may have used at the other member: then a new
            # session replaces this one if it is suspect, wherever it moves
            session.receive_flow.keep((_OTHERS,))
            if session.durable:
                session.receive_flow.commit = self._broker.keep_flow(session)

    def mark_all_suspect(self, done: Done) -> None:
        self._begin()
        self._mark_all_suspect()
        if self.places.in_doubt:
            log.warning(
                "another member does not know whether sessions of this gateway have ended: these"
                " sessions are suspect until their clients connect"
            )
        self._broker.promise()
        self.on_disk(done)

    def trust(self, client: str) -> None:
        """Clear the suspect mark of a session, with the next commit (`Places.trust`)."""
        self.places.trust(client)

    def confirmed(self, client: str, member: str) -> None:
        place = self.places.get(client)
        if place is not None and member in place.older:
            place.older -= {member}
            self.places.save(client)

    def release(self, client: str, identifier: int, done: Callable[[bool], None]) -> None:
        self._begin()
        broker, session = self._broker, self.session(client)
        if session is None or self.moves(client):
            done(False)
            return
        flow = session.receive_flow
        if flow.release((identifier,)):
            done(False)
        elif not session.durable:
            done(True)
        else:
            flow.commit = commit = broker.keep_flow(session)
            broker.when_on_disk(commit, lambda: done(True))

    # -- ending

    def _moved(self, key: str) -> None:
        for call in self._waiting.pop(key, ()):
            call()


def is_busy(holder: SessionHolder) -> bool:
    """Whether a commit that moves a session is not on disk yet."""
    leaving = any(moved.order is not None for moved in holder._moved_out.values())
    return bool(holder._taking) or leaving


def records_of(holder: SessionHolder) -> Moved:
    """Return the records of `holder` as the store has them after the next commit, so that another
    holder can take over. `holder` must not be busy.
    """
    return Moved(
        places=[place.row(key) for key, place in holder.places.items()],
        moved_out=[
            (key, moved.member, 0, 0, None if isinf(moved.ends) else int(moved.ends * 1000))
            for key, moved in holder._moved_out.items()
        ],
        members=holder.known,
    )


def _forget_given(holder: SessionHolder, key: str) -> None:
    del holder._moved_out[key]
    move_rows(holder._broker).forgotten.append(key)
    holder._broker.promise()


def end_with_loss(holder: SessionHolder, broker: Broker, session: Session, why: str) -> None:
    """End a session, and log how many messages that waited for it are lost."""
    if count := session.send_flow.messages:
        holder.lost += count
        if broker.log_throttle.has_room():
            log.warning(
                "%s: the session here ends, because %s: %d waiting messages are lost",
                printable(session.client),
                why,
                count,
                extra=about(client=session.client, reason="lost"),
            )
    broker.end_session(session)


def _seconds(ends: int | None) -> float:
    return float("inf") if ends is None else ends / 1000
