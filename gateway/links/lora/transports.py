"""The sessions of the turn link as the broker sees them: one `Transport` for each session. Sans-IO.

In: events of the link. Out: transports, handed to `accept` with the identity from the HELLO, and
the broker's output, handed to the link. A board waits for its answer before it sends again. So
while the broker does not read, at most one frame of each board is kept.
"""

import logging
from collections.abc import Callable

from gateway.access.peer import DeviceIdentity, Peer
from gateway.links.faults import blame
from gateway.links.lora.frames import LONGEST_NAME
from gateway.links.lora.turns import (
    Event,
    Received,
    Session,
    SessionEnded,
    SessionStarted,
    TurnLink,
)
from gateway.links.transport import Accept, Receiver
from gateway.system.logs import about

log = logging.getLogger(__name__)


class TurnTransport:
    """The `Transport` of one session of one board."""

    high_water = 1024

    receiver: Receiver

    def __init__(
        self, link: TurnLink, session: Session, peer: Peer, wake: Callable[[], None]
    ) -> None:
        self.peer = peer
        self.session = session
        self.closed = False
        self._link = link
        self._wake = wake
        self._paused = False
        self._waiting: list[bytes] = []
        self._above_high_water = False
        self._failure: str | None = None
        """Reason why a `write` has ended the session. `go_on` tells the broker, because `write` is
        called in the middle of the broker's work.
        """

    def write(self, data: bytes) -> None:
        if self.session.closing:
            return
        try:
            self._link.write(self.session, data)
        except ValueError as error:
            log.error(
                "%s: connection closed: the broker tried to send %s", self.peer.address, error
            )
            self._drop()
            self._failure = "a packet that is too long"
            self._wake()
            return
        self._above_high_water |= self.unsent > self.high_water
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._link.close(self.session)
        self._wake()

    def abort(self) -> None:
        self.session.pending.clear()
        self.close()

    def _drop(self) -> None:
        self.session.pending.clear()
        self._link.close(self.session)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._wake()

    @property
    def unsent(self) -> int:
        return self.session.unsent

    undelivered = unsent

    def lose(self, reason: str) -> None:
        """Tell the broker that the session has ended, unless the broker closed it."""
        if not self.closed:
            self.closed = True
            self.receiver.lost(reason)

    def deliver(self, data: bytes) -> None:
        """Hand bytes to the broker, now or as soon as the broker reads again. An exception in the
        broker's code ends only this session.
        """
        self._waiting.append(data)
        self.go_on()

    def go_on(self) -> None:
        """Tell the broker if a write has ended the session. Deliver kept bytes if the broker reads
        again, and tell the broker if it can write again.
        """
        if self._failure is not None:
            self.lose(self._failure)
        while self._waiting and not self._paused and not self.closed:
            data = self._waiting.pop(0)
            try:
                self.receiver.receive(data)
            except Exception as error:
                blame(self.peer.address, error)
                self._drop()
                self.lose("internal error")
        if self._above_high_water and self.unsent <= self.high_water // 4 and not self.closed:
            self._above_high_water = False
            self.receiver.writable()


class Transports:
    """The sessions of all boards of one radio. listener, path: names for logs and access rules.
    name: returns the name of a board by its number. wake: called when `Station.tick` and `go_on`
    have work. The broker may be in the middle of its own work then, so `wake` must only schedule
    these two calls.
    """

    def __init__(
        self,
        link: TurnLink,
        accept: Accept,
        name: Callable[[int], str | None],
        *,
        listener: str,
        path: str,
        wake: Callable[[], None],
    ) -> None:
        self._link = link
        self._accept = accept
        self._name = name
        self._listener = listener
        self._path = path
        self._wake = wake
        self._transports: dict[Session, TurnTransport] = {}
        self._too_long: set[str] = set()
        """Names that are too long for a frame, and about which a warning was logged."""

    @property
    def names(self) -> list[str]:
        """Names of the boards that have a session."""
        peers = [transport.peer for transport in self._transports.values() if not transport.closed]
        return [peer.device.name for peer in peers if peer.device is not None]

    def handle(self, event: Event) -> None:
        match event:
            case SessionStarted(session, hello, incarnation):
                # a number with a key has a name; access checks a later revocation
                name = self._name(hello.device) or ""
                log.info(
                    "%s: %s greets, boot %d, next sequence %d",
                    self._path,
                    name,
                    hello.boot,
                    hello.next_sequence,
                    extra=about(port=self._path, device=name),
                )
                self._check_name(name)
                device = DeviceIdentity(name, incarnation, hello.next_sequence, proved=True)
                self._begin(session, Peer(self._listener, self._path, device))
            case Received(session, data):
                if session in self._transports:
                    self._transports[session].deliver(data)
            case SessionEnded(session, reason):
                self._end(session, reason)

    def go_on(self) -> None:
        """Call `go_on` of each transport, and forget closed transports."""
        for session, transport in list(self._transports.items()):
            transport.go_on()
            if transport.closed:
                del self._transports[session]

    def lose(self, reason: str) -> None:
        """End all sessions, because the radio is gone."""
        for session in list(self._transports):
            self._end(session, reason)

    def _check_name(self, name: str) -> None:
        """Log a warning, once for each name, about a name that is too long for a frame. `device
        add` refuses such a name, but it may come from an older version, a backup or `[[lora]]`.
        """
        if len(name) > LONGEST_NAME and name not in self._too_long:
            self._too_long.add(name)
            log.warning(
                "%s: %s: the name has %d characters. So a reading that also reports missed readings"
                " does not fit into a frame, and is lost. `onceway device rename` gives the board a"
                " name of at most %d characters",
                self._path,
                name,
                len(name),
                LONGEST_NAME,
                extra=about(port=self._path, device=name),
            )

    def _begin(self, session: Session, peer: Peer) -> None:
        transport = TurnTransport(self._link, session, peer, self._wake)
        try:
            transport.receiver = self._accept(transport)
        except Exception as error:
            blame(self._path, error)
            transport.abort()
            return
        self._transports[session] = transport

    def _end(self, session: Session, reason: str) -> None:
        transport = self._transports.pop(session, None)
        if transport is not None and not transport.closed:
            device = transport.peer.device
            log.info(
                "%s: %s: connection lost: %s",
                self._path,
                device.name if device else "",
                reason,
                extra=about(port=self._path, reason=reason),
            )
            transport.lose(reason)
