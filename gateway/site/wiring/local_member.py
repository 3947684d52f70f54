"""The membership of this gateway in its site, at run time.

In: CONNECTs whose session may be at another gateway, PUBRELs with unknown identifiers, and messages
of the other members. Out: the answers to clients, in the engine's turns; outbound and inbound moves
(`sessions.py`); figures for users.

A client waits at most 1 s for a silent member, or 4 s if the line to the member is slow. It waits
up to 15 s for a member that may be starting, and longer only while its session is moving. Meanwhile
its packets wait, within the bound that holds for any unanswered CONNECT. If two connections of a
client wait, the later connection counts [MQTT-3.1.4-3].
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

from gateway.access.rules import Refusal, WaitingCaller
from gateway.broker.connection import Connection
from gateway.broker.exchanges import released
from gateway.broker.session import Session, State
from gateway.mqtt.packets import Connect, Version
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.engine import Engine
from gateway.site.errors import SiteError
from gateway.site.moving.neighbours import site_of
from gateway.site.rules.contacts import START_S
from gateway.site.rules.holder import Outcome
from gateway.site.rules.member import Member
from gateway.site.wiring.sessions import SessionHolder, end_with_loss, own_key, records_of
from gateway.store.doubts import reason
from gateway.store.move_out import StoredParts
from gateway.store.move_rows import key_of, name_of
from gateway.store.schema import FILE, connect_to_read
from gateway.store.session_views import IN_DOUBT
from gateway.system.logs import about, printable

log = logging.getLogger(__name__)

MOST_RELEASES = 16_384
"""Largest number of PUBRELs that wait for the other members. Further PUBRELs are counted and are
not sent to the other members: in MQTT 5 they are answered at once, in earlier versions the
connection ends.
"""
_UNSURE = (
    ReasonCode.PACKET_IDENTIFIER_NOT_FOUND,
    "PUBREL: the packet identifier is unknown here, and another gateway could not be asked",
)
"""Reason to end a connection with an MQTT version below 5: its PUBCOMP cannot report this failure.
"""
_OTHER = ReasonCode.SESSION_TAKEN_OVER, "another connection uses this client identifier"
_KEEP_ALIVE = 0.75
"""Longest wait of a CONNECT for members that may be starting, as a share of the client's Keep
Alive. A client gives up when its Keep Alive is over.
"""
_TWICE = 2
"""If there are more places (`Place`) than `limits.sessions` times this number, a CONNECT that needs
a session lookup is refused.
"""


class Site:
    """The part of this gateway that is a member of its site.

    engine: drives the broker. name: this gateway's name. members: names of all members. send: sends
    a frame to a member, or drops it. parts: returns the parts of a moved session, by its key.
    doubted: called with each client that gets an answer although its session is suspect, and with
    the members that were silent. returned: whether a gateway with this name was in the site before.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        members: Iterable[str],
        send: Callable[[str, bytes], None],
        parts: Callable[[str], Sequence[bytes]],
        loop: asyncio.AbstractEventLoop,
        doubted: Callable[[str, Sequence[str]], None] = lambda client, silent: None,
        returned: bool = False,
    ) -> None:
        self._doubted = doubted
        self._engine = engine
        self._broker = broker = engine.broker
        self._loop = loop
        self._others = sorted(set(members) - {name})
        self.holder = SessionHolder(broker, engine.begin, parts, self._others, returned)
        self._unheard = self.holder.unheard
        self._waiting: dict[str, tuple[Connection, Connect]] = {}
        """CONNECTs that wait until other members have replied, by session key."""
        self._releases: set[tuple[Connection, int]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._rings = float("inf")
        self.member = Member(name, self._others, self.holder, send, self._wake, loop.time())
        self.up: set[str] = set()
        """Members with a link."""
        self.suspect_answers = 0
        """Number of answers to CONNECTs and PUBRELs of clients whose session was suspect."""
        self._neighbours = site_of(broker)
        self._neighbours.lookup = self

    def close(self) -> None:
        self.holder.closed = True
        self._neighbours.lookup = None
        if self._timer is not None:
            self._timer.cancel()

    def hand_on(self) -> tuple[list[tuple[Connection, Connect]], set[tuple[Connection, int]]]:
        """Close this object, because another object with a new list of members replaces it. Return
        the waiting CONNECTs and PUBRELs, for `take_on` of the new object.
        """
        self.close()
        self._neighbours.moved = records_of(self.holder)
        connects, self._waiting = list(self._waiting.values()), {}
        return connects, self._releases

    def take_on(
        self, connects: Iterable[tuple[Connection, Connect]], releases: set[tuple[Connection, int]]
    ) -> None:
        for connection, packet in connects:
            if connection.state is not State.CLOSED and not self.waits(connection, packet):
                self._loop.call_soon(self._engine.placed, connection, packet, None)
        for connection, identifier in list(releases):
            if connection.state is State.CLOSED:
                continue
            if not self.release(connection, (identifier,)):
                self._loop.call_soon(self._release, connection, identifier, False, ())

    def has_newest(self, session: Session) -> bool:
        key = own_key(session)
        record = self.holder.record(key)
        sure = record is not None and record.session and not record.suspect and not record.older
        return sure and not self.holder.moves(key)

    # -- members

    def started(self) -> None:
        """For START_S from now on, expect the members that have had no link yet to connect. Called
        when the links have started, and again when this gateway's start is complete.
        """
        self.member.started(self._loop.time())

    def joined(self, member: str, begun: bool = False) -> None:
        """Note a link to a member. begun: whether the member has started since its last link."""
        self.up.add(member)
        self._engine.begin()
        with self._broker.step:
            self.member.joined(member, self._loop.time(), begun)

    def link_ended(self, member: str, stopped: bool = False) -> None:
        """Note the end of a link. stopped: whether the member has announced its stop."""
        self.up.discard(member)
        self._engine.begin()
        with self._broker.step:
            self.member.link_ended(member, self._loop.time(), stopped)

    def received(self, member: str, frame: bytes) -> None:
        """Handle a frame of a member. Raises SiteError."""
        self._engine.begin()
        wrong: SiteError | None = None
        with self._broker.step:
            try:
                self.member.received(member, frame, self._loop.time())
            except SiteError as error:  # raised before any change
                wrong = error
        if wrong is not None:
            raise wrong

    # -- time

    def _wake(self, time: float) -> None:
        """Set the timer to `time`, unless it is set to an earlier time."""
        if time < self._rings:
            if self._timer is not None:
                self._timer.cancel()
            self._rings = time
            delay = max(0.0, time - self._loop.time())
            self._timer = self._loop.call_later(delay, self._advance)

    def _advance(self) -> None:
        self._timer, self._rings = None, float("inf")
        if self._neighbours.lookup is not self:
            return
        self._engine.begin()
        if self._unheard:
            self._unheard.look(self._broker.now)
        with self._broker.step:
            following = self.member.advance(self._loop.time())
        self._wake(following)

    # -- CONNECT

    def waits(self, connection: WaitingCaller, packet: Connect) -> bool:
        """If the session of a CONNECT has to be looked up at the other members, begin the lookup
        and return True: the CONNECT waits for the result. Otherwise return False.
        """
        connection = cast("Connection", connection)
        if connection.policy.never_moves or not packet.client_id:
            return False
        key = self._key(connection)
        if key is None:
            return False
        if self._unheard:
            self._unheard.look(self._broker.now)
        if not self.holder.moves(key) and self.member.is_newest(key, self._loop.time()):
            return False
        if len(self.holder.places) > _TWICE * self._broker.limits.sessions:
            self._loop.call_soon(self._engine.placed, connection, packet, _TOO_MANY)
        else:
            earlier = self._waiting.get(key)
            self._waiting[key] = connection, packet
            if earlier is not None:
                self._broker.hang_up(earlier[0], *_OTHER)
            self._loop.call_soon(self._ask, key, connection, packet)
        if connection.state is State.NEW:
            connection.become(State.ASKED)
        return True

    def _key(self, connection: Connection) -> str | None:
        """Return the key of the session that this client may use. Return None if the session under
        its client identifier belongs to another user; the broker then refuses the client.
        """
        device = connection.peer.device
        key = key_of(connection.client, connection.user, device.incarnation if device else 0)
        session = self._broker.sessions.get(connection.client)
        if session is None or session.ended or own_key(session) == key:
            return key
        adopts = device is None and not session.incarnation and session.user is None
        return own_key(session) if adopts else None

    def _ask(self, key: str, connection: Connection, packet: Connect) -> None:
        if self._waiting_connect(key, connection) is None:
            return
        if self.holder.moves(key):
            self.holder.when_moved(key, partial(self._ask, key, connection, packet))
            return
        done = partial(self._found, key, connection)
        alive = partial(_is_open, connection)
        now, patience = self._loop.time(), packet.keep_alive * _KEEP_ALIVE or START_S
        with self._broker.step:
            self.member.want_session(key, now, done, packet.clean_start, alive, patience)

    def _waiting_connect(self, key: str, connection: Connection) -> Connect | None:
        """Return the CONNECT that waits on this connection. Return None if the connection has
        ended, or if a later CONNECT has taken the place of this one.
        """
        waiting = self._waiting.get(key)
        if waiting is None or waiting[0] is not connection:
            return None
        if connection.state is State.CLOSED:
            del self._waiting[key]
            return None
        return waiting[1]

    def _found(self, key: str, connection: Connection, outcome: Outcome) -> None:
        """Answer the CONNECT in a later turn, because this method may be called in a step of the
        broker.
        """
        self._loop.call_soon(self._placed, key, connection, outcome)

    def _placed(self, key: str, connection: Connection, outcome: Outcome) -> None:
        self._engine.begin()
        if outcome.kind != "failed" and (
            outcome.kind == "doubt" or outcome.suspect or outcome.silent
        ):
            self._mark(key, connection, outcome.silent)
        packet = self._waiting_connect(key, connection)
        if packet is None:
            return
        del self._waiting[key]
        refusal: Refusal | None = None
        unheard = False
        if outcome.kind == "failed":
            text = f"its session cannot be moved here from another gateway: {outcome.reason}"
            refusal = ReasonCode.SERVER_BUSY, text
        elif outcome.kind == "none":
            self.holder.trust(key)
            session = self.holder.session(key)
            if session is not None and packet.clean_start:
                self._broker.end_session(session)
            elif session is not None:
                end_with_loss(
                    self.holder, self._broker, session, "another gateway has ended the session"
                )
            unheard = outcome.suspect and not packet.clean_start and not _is_proved(connection)
        elif outcome.kind == "doubt":
            unheard = self._begin_again(key, connection, packet, outcome.twofold)
        if unheard:
            self._unheard.begin(key)
        self._engine.placed(connection, packet, refusal)
        if unheard:
            self._await_packet(key, connection)

    def _await_packet(self, key: str, connection: Connection) -> None:
        """Expect the client's first packet, which will show that the client knows that its session
        is new. If the session is not durable, or no longer on this connection, trust it at once.
        """
        session = self.holder.session(key)
        if session is not None and session.durable and session.connection is connection:
            self._unheard.answered(key, connection)
        elif session is not None:
            self.holder.trust(key)

    def _begin_again(
        self, key: str, connection: Connection, packet: Connect, twofold: bool
    ) -> bool:
        """End a suspect session if it holds received packet identifiers: the client may now use one
        of them for another message, which would be acknowledged and lost. Also end it if the client
        has had two sessions, because both may have delivered a message. The session of a proved
        board stays: its anti-replay window is never outdated in this way. A session also stays if
        the CONNECT has Clean Start. Return whether the session was ended.
        """
        place, session = self.holder.places.get(key), self.holder.session(key)
        twofold |= place is not None and place.unheard
        self.holder.trust(key)
        if session is None or packet.clean_start or _is_proved(connection):
            return False
        if not session.receive_flow.received and not twofold:
            return False
        end_with_loss(
            self.holder, self._broker, session, "another gateway may have a newer session"
        )
        return True

    def _mark(self, key: str, connection: Connection, silent: Sequence[str]) -> None:
        self.suspect_answers += 1
        self._doubted(name_of(key), silent)
        if self._broker.log_throttle.allows(f"doubt about {connection.client}"):
            log.warning(
                "%s got a suspect session: %s. Messages that the client publishes again may be in"
                " the spool twice; the table keeps each message with an identity once",
                printable(name_of(key)),
                reason(silent),
                extra=about(**connection.about, reason="doubt"),
            )

    # -- PUBREL

    def release(self, connection: WaitingCaller, identifiers: Sequence[int]) -> bool:
        """Query the other members about PUBRELs whose packet identifiers are unknown here. Return
        False if no member is queried; the broker then has to answer at once. If too many PUBRELs
        wait for members, no member is queried. The connection of a client with a version before
        MQTT 5 then ends without an answer, and the method returns True.
        """
        connection = cast("Connection", connection)
        if not self._others or connection.policy.never_moves:
            return False
        if len(self._releases) + len(identifiers) > MOST_RELEASES:
            self.suspect_answers += len(identifiers)
            if connection.version < Version.V5:
                self._loop.call_soon(self._part, connection)
                return True
            return False
        key = self._key(connection)
        if key is None:
            return False
        for identifier in identifiers:
            if (connection, identifier) not in self._releases:
                self._releases.add((connection, identifier))
                self._loop.call_soon(self._ask_release, key, connection, identifier)
        return True

    def _ask_release(self, key: str, connection: Connection, identifier: int) -> None:
        done = partial(self._released, connection, identifier)
        with self._broker.step:
            self.member.want_release(key, identifier, self._loop.time(), done)

    def _released(
        self, connection: Connection, identifier: int, known: bool, silent: tuple[str, ...]
    ) -> None:
        self._loop.call_soon(self._release, connection, identifier, known, silent)

    def _release(
        self, connection: Connection, identifier: int, known: bool, silent: tuple[str, ...]
    ) -> None:
        self._releases.discard((connection, identifier))
        self._engine.begin()
        if silent and not known:
            self.suspect_answers += 1
            self._doubted(connection.client, silent)
            if self._broker.log_throttle.allows(f"PUBREL of {connection.client}"):
                log.warning(
                    "%s: the packet identifier of a PUBREL is unknown here, and %s, which may know"
                    " it, did not answer",
                    connection.name,
                    ", ".join(map(printable, silent)),
                    extra=about(**connection.about, reason="doubt"),
                )
            if connection.version < Version.V5:
                self._part(connection)
                return
        released(connection, identifier, known)

    def _part(self, connection: Connection) -> None:
        self._engine.begin()
        self._broker.hang_up(connection, *_UNSURE)
        self._broker.settle()

    # -- figures for people

    def state_of(self, session: Session) -> str | None:
        """Return the special state of a session, for `onceway session list`; None for a usual
        one.
        """
        record = self.holder.record(own_key(session))
        return IN_DOUBT if record is not None and record.suspect else None

    def figures(self) -> dict[str, int]:
        """Return counters since the start, and the current `given`, `in_doubt`, `members` and
        `members_up`.
        """
        statistics = self.member.statistics
        return {
            "members": len(self._others),
            "members_up": len(self.up),
            "asked": statistics.asked,
            "calls": statistics.calls,
            "moved_in": statistics.moved_in,
            "moved_out": statistics.moved_out,
            "silent": statistics.silent,
            "lost": self.holder.lost,
            "superseded": statistics.superseded,
            "marked": self.suspect_answers,
            "released": statistics.released,
            "given": len(list(self.holder.moved_out())),
            "in_doubt": self.holder.places.in_doubt,
        }


def _is_proved(connection: Connection) -> bool:
    device = connection.peer.device
    return device is not None and device.proved


def _is_open(connection: Connection) -> bool:
    return connection.state is not State.CLOSED


_TOO_MANY: Refusal = (
    ReasonCode.QUOTA_EXCEEDED,
    "the site has too many suspect sessions (limits.sessions)",
)


class StoreParts:
    """A reader of session parts from the store, on the event loop, one part at a time."""

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._path = folder / FILE
        self._now = now
        self._database: sqlite3.Connection | None = None

    def __call__(self, key: str) -> StoredParts:
        if self._database is None:
            self._database = connect_to_read(self._path)
        return StoredParts(self._database, key, lambda: int(self._now() * 1000))

    def close(self) -> None:
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
