"""The queue of a bridge, and the handling of messages that are not forwarded.

In: answers of the other broker, and messages that cannot or must not be forwarded. Out: such
messages are set aside (`aside.py`), removed from the queue, or dropped. Each of these changes is
made in a turn of the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.bridge.aside import BridgeAside
from gateway.bridge.counts import Counts
from gateway.bridge.near import NearClient
from gateway.bridge.pairing import Pairing
from gateway.bridge.reasons import own_words
from gateway.bridge.setting_aside import take_out
from gateway.bridge.suspects import TIMES, Release, Suspects
from gateway.broker.fan_out import explained, lacks
from gateway.broker.publish_run import PublishRun
from gateway.broker.session import Session
from gateway.config import BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.packets import Ack, Puback, Pubcomp, Publish, Pubrec
from gateway.mqtt.properties import pass_through
from gateway.mqtt.wire import encode_string
from gateway.runtime.engine import Engine

log = logging.getLogger(__name__)


class OwnQueue:
    """The queue of messages for the other broker, in the bridge's session at our broker."""

    def __init__(
        self,
        engine: Engine,
        section: BridgeSection,
        pairing: Pairing,
        suspects: Suspects,
        counts: Counts,
    ) -> None:
        self._engine = engine
        self._section = section
        self._pairing = pairing
        self._suspects = suspects
        self._counts = counts
        self.aside = BridgeAside(engine, section)
        self.in_flight = 65_535
        """Limit of messages in flight, set by the other broker."""
        self.near: NearClient | None = None
        """The bridge as a client of our broker, at the latest connection; None before the first."""
        self.start_over: Callable[[str], None] = lambda reason: None
        """Callback that ends the connection, and the session at the other broker. Its argument is
        the reason, for the log.
        """
        self._released: set[int] = set()
        """Packet identifiers that wait for PUBCOMP, of messages that are set aside or not
        forwarded.
        """

    @property
    def session(self) -> Session | None:
        """The session, None after an administrator has ended it."""
        return self._engine.broker.sessions.get(self._section.client)

    def suspect_answered(self) -> None:
        """Allow the usual number of messages in flight, because the last suspect (`suspects.py`)
        was answered.
        """
        near = self.near

        def widen() -> None:
            session = self.session
            if near is not None and near is self.near and session is not None:
                self._engine.begin()
                flow = session.send_flow
                flow.maximum = min(self.in_flight, self._engine.broker.limits.inflight)
                flow.pump()

        self._soon("raising the number of messages in flight", widen)

    def held_back(self) -> None:
        """Give up the messages at whose PUBREL the other broker closes the connection. Do nothing
        while the PUBREL of any other message waits for PUBCOMP.

        The other broker may keep the packet identifier of such a message forever, and would treat a
        later message with this identifier as the old message. So a new session begins at the other
        broker, with a new client identifier (`pairing.py`). The new client identifier is on disk
        before the packet identifier is used again. The old session ends at the other broker, and
        each message that still waits there for its PUBREL is lost. So all other messages must have
        their PUBCOMP first.
        """
        near = self.near

        def give_up() -> None:
            session = self.session
            if near is None or near is not self.near or session is None:
                return
            released = tuple(session.send_flow.flights.released)
            if not released or not all(map(self._suspects.guilty, map(Release, released))):
                return
            try:
                self._pairing.draw()
            except OncewayError as error:
                self.start_over(str(error))
                return
            near.leave()  # so no message is sent into the session that ends at the other broker
            self._engine.begin()
            with self._engine.broker.step:
                session.send_flow.pubcomp(released)
            self._give_up(released)
            self.start_over(
                "the bridge begins a new session at the other broker, and gives up the message that"
                " made the other broker close the last connection"
            )

        self._soon("giving a message up", give_up)

    def _give_up(self, released: tuple[int, ...]) -> None:
        """Count and log the messages that the bridge gives up, because the other broker closes the
        connection at their PUBREL. Messages that are set aside were counted before.
        """
        for identifier in released:
            self._suspects.forget_guilty(Release(identifier))
            if identifier in self._released:  # already set aside, with its reason
                self._released.discard(identifier)
                continue
            self._counts.unconfirmed += 1
            if self._engine.broker.log_throttle.allows(f"bridge {self._section.name} gives up"):
                log.warning(
                    "bridge %s: the other broker closes the connection at the PUBREL of a message,"
                    " %d times (packet identifier %d). The message may have arrived; it is not sent"
                    " again; later messages are sent",
                    self._section.name,
                    TIMES,
                    identifier,
                )

    def put_aside(self, packet: Publish, kind: str, reason: str, *, received: bool) -> None:
        """Set aside a message that our broker is sending to this bridge, as soon as our broker has
        finished its current work. received: whether the other broker may have the message.
        """
        near = self.near

        def put() -> None:
            self._engine.begin()
            if not packet.qos:
                self.aside.keep(packet, kind, reason)
            elif near is not None and near is self.near:
                self._set_aside(packet.packet_id, kind, reason, received=received)

        self._soon("setting a message aside", put)

    def _soon(self, doing: str, call: Callable[[], None]) -> None:
        """Call a function after the current work of our broker. If the call raises an exception,
        this bridge's connection to our broker ends. doing: words for the log, after "while".
        """

        def serve() -> None:
            connection = None if self.session is None else self.session.connection
            if connection is None:
                call()
            else:
                self._engine.serve(connection, doing, call)

        self._engine.call_later(0, serve)

    def refused(self, answer: Puback | Pubrec) -> None:
        """Set aside a message that the other broker refuses for good."""
        kind = f"the other broker refuses a message for good: {answer.reason.name}"
        reason = f"{kind}{own_words(answer)}"
        self._engine.begin()
        self._counts.refused += self._set_aside(answer.packet_id, kind, reason, received=False)

    def _set_aside(self, identifier: int, kind: str, reason: str, *, received: bool) -> bool:
        session = self.session
        if session is None:
            return False
        moved = self.aside.move(session, identifier, kind, reason, received=received)
        if moved and identifier in session.send_flow.flights.released:
            self._released.add(identifier)
        return moved

    def expects(self, packet: Puback | Pubrec | Pubcomp) -> bool:
        """Whether a message in flight waits for this acknowledgement. If not, log the
        acknowledgement.
        """
        session, identifier = self.session, packet.packet_id
        if session is not None:
            flow = session.send_flow
            found = flow.flights.find(identifier)
            if found is not None and not isinstance(packet, Pubcomp):
                return (found[0].flags >> 1 & 3 == 1) is isinstance(packet, Puback)
            if identifier in flow.flights.released and not isinstance(packet, Puback):
                return True
        if self._engine.broker.log_throttle.allows(f"bridge {self._section.name} expects no ack"):
            log.warning(
                "bridge %s: the other broker acknowledges a message that is not in flight (%s,"
                " packet identifier %d). The packet is ignored",
                self._section.name,
                type(packet).__name__.upper(),
                identifier,
            )
        return False

    def finished(self, packet: Ack) -> None:
        """Count a message that the other broker has fully acknowledged, unless it was given up
        before.
        """
        if isinstance(packet, Pubcomp) and packet.packet_id in self._released:
            self._released.discard(packet.packet_id)
        else:
            self._counts.sent += 1

    def take_out(self, packet: Publish) -> None:
        """Remove a message at QoS 1 or 2 from our broker's queue, because it must not be forwarded.
        This happens after our broker's current work (`_soon`).
        """
        near = self.near

        def forget() -> None:
            session = self.session
            if near is not self.near or session is None or session.connection is None:
                return
            self._engine.begin()
            with self._engine.broker.step:
                take_out(session, packet.packet_id, packet.qos, received=packet.dup)
            if packet.packet_id in session.send_flow.flights.released:
                self._released.add(packet.packet_id)

        if packet.qos:
            self._soon("removing a message that the bridge does not forward", forget)

    def is_for_now(self, packet: Publish) -> bool:
        """Whether our broker's refusal of a message is temporary."""
        broker, session = self._engine.broker, self.session
        if session is None:
            return True
        with broker.step:
            run = PublishRun(
                broker.router.known(encode_string(packet.topic), packet.topic),
                packet.payload,
                packet.qos,
                packet.retain,
                ids=(packet.packet_id,),
                properties=pass_through(packet.properties or {}),
                publisher=session,
            )
            lack = lacks(broker, run, session.durable)
            return lack is None or explained(broker, run, lack).passes
