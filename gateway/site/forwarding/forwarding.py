"""Forwarding between two members: filters in one direction, packets of the matching messages in the
other. Sans-IO, one object for each other member.

In: the start and end of a link, frames, packets and filters of this side. Out: frames, and the
other side's data (`Port`). A *round* of a side is its attempt to exchange packets; each side
numbers its rounds.

- A link begins: this side sends all its filters, and HELLO at once or after a wait (`joined`).
- HELLO is received: if it begins another round of the other side, the present exchange ends, and
  this side sends HELLO again, with the number of that round.
- HELLO with this side's own round is received: `Port.open`. Packets flow in both directions until a
  side begins another round.
- This side ends the exchange: another round begins after AGAIN_S. Packets of an older round are
  dropped.

At most WINDOW_BYTES of a side's packets may be unprocessed at the other side; packets beyond that
wait here. A member that sends more unprocessed packets, or more filters than MOST_FILTERS, loses
its link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.site.errors import SiteError
from gateway.site.forwarding.messages import (
    GONE,
    PIECE_BYTES,
    Hello,
    Message,
    Packets,
    Taken,
    WantedFilter,
    WantedFilters,
    decode,
    encode,
    portions,
)

WINDOW_BYTES = 512 * 1024
MOST_FILTERS = 65_536
"""Largest number of filters of one member. The link of a member with more filters ends."""
AGAIN_S = 1.0
_ROUNDS = (1 << 32) - 1


class Port(Protocol):
    """The interface of this gateway's broker for one other member."""

    @property
    def queue(self) -> int:
        """Number that identifies the queue of messages for the member. The messages are numbered
        within this queue.
        """

    def open(self, queue: int, packet_bytes: int) -> None:
        """Begin the exchange: from now on packets may flow. queue: number of the other side's
        queue. packet_bytes: the largest packet that the other side accepts, in bytes.
        """

    def shut(self) -> None:
        """End the exchange: no packets flow any more."""

    def take(self, latest: int, data: bytes) -> None:
        """Take received packets; `MemberForwarding.processed` is called for them later. latest: see
        `Packets`.
        """

    def drained(self) -> None:
        """Send more packets. Called when no earlier packets wait for the other side."""

    def change_filters(self, filters: Iterable[WantedFilter]) -> None:
        """Apply changes of the filters of the other side's clients: added, changed or removed."""


class MemberForwarding:
    """Forwarding to and from one member. packet_bytes: largest packet that this side accepts, in
    bytes. known: the other side's filters from before the start. send: sends a frame to the member,
    or drops it. later: calls a function after a number of seconds.
    """

    def __init__(
        self,
        port: Port,
        packet_bytes: int,
        known: Iterable[str],
        send: Callable[[bytes], None],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._port = port
        self._packet_bytes = packet_bytes
        self._send = send
        self._later = later
        self._up = False
        self.holds = False
        """Whether the exchange over the present link is still postponed (`joined`, hold_s)."""
        self._mine = 0
        self._peer = 0
        """Number of the other side's current round (see `Hello`), 0 while unknown."""
        self.is_open = False
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.waiting = 0
        """Bytes of packets that wait on this side, because the other side's window is full."""
        self._unanswered = 0
        """Bytes that were sent and that the other side has not processed yet."""
        self._owed = 0
        """Bytes that were received and are not processed yet."""
        self._known = set(known)
        self._coming: set[str] | None = None
        """Filters received so far of a list that comes in several parts. None if no list is
        incomplete.
        """

    def _say(self, message: Message) -> None:
        self._send(encode(message))

    # -- the link

    def joined(self, filters: Iterable[WantedFilter], hold_s: float = 0.0) -> None:
        """Begin the exchange on a new link. filters: all filters of this side. hold_s: seconds for
        which the exchange waits; 0: it begins at once.
        """
        self._up = True
        self._peer = 0
        self._mine = self._mine % _ROUNDS + 1
        self.holds = hold_s > 0
        if self.holds:
            self.begin_in(hold_s)
        else:
            self._greet()
        parts = list(portions(filters))
        for index, part in enumerate(parts):
            self._say(WantedFilters(not index, index == len(parts) - 1, part))

    def begin_in(self, seconds: float) -> None:
        """Begin the exchange after this number of seconds, unless it has begun by then."""
        number = self._mine
        self._later(seconds, lambda: self._again(number))

    def link_ended(self) -> None:
        self._up, self._coming = False, None
        self._shut()

    def change_filters(self, filters: Iterable[WantedFilter]) -> None:
        """Send filters of this side that were added, changed or removed."""
        for part in portions(filters) if self._up else ():
            self._say(WantedFilters(False, False, part))

    def _greet(self) -> None:
        self._say(Hello(self._mine, self._peer, self._port.queue, self._packet_bytes))

    # -- this side

    def sent(self, latest: int, data: bytes) -> None:
        """Send packets of this gateway's broker to the other side; drop them if no exchange is
        open. latest: as in `Packets`.
        """
        if self.is_open:
            for at in range(0, len(data), PIECE_BYTES):
                self._waiting.append((latest, data[at : at + PIECE_BYTES]))
            self.waiting += len(data)
            self._flush()

    def _flush(self) -> None:
        while self._waiting:
            latest, data = self._waiting[0]
            if self._unanswered + len(data) > WINDOW_BYTES:
                return
            self._waiting.popleft()
            self.waiting -= len(data)
            self._unanswered += len(data)
            self._say(Packets(self._peer, latest, data))

    def processed(self, size: int) -> None:
        """Tell the other side that `size` more bytes of its packets were processed."""
        if self.is_open and size:
            self._owed -= size
            self._say(Taken(self._peer, size))

    def ended(self) -> None:
        """Begin a new exchange after AGAIN_S, because this gateway's broker has ended the present
        one.
        """
        if self.is_open:
            self._shut()
            self._mine = self._mine % _ROUNDS + 1
            self.begin_in(AGAIN_S)

    def _again(self, number: int) -> None:
        if self._up and number == self._mine and not self.is_open:
            self.holds = False
            self._greet()

    # -- the other side

    def received(self, frame: bytes) -> None:
        """Handle a frame. Raises SiteError if it is invalid."""
        match decode(frame):
            case Hello() as hello:
                self._greeted(hello)
            case Packets(number, latest, data):
                if number == self._mine and self.is_open:
                    self._owed += len(data)
                    if self._owed > WINDOW_BYTES:
                        raise SiteError("it sends more packets than allowed")
                    self._port.take(latest, data)
            case Taken(number, size):
                if number == self._mine and self.is_open:
                    if size > self._unanswered:
                        raise SiteError("it confirms more packets than were sent to it")
                    self._unanswered -= size
                    self._flush()
                    if not self._waiting:
                        self._port.drained()
            case WantedFilters() as filters:
                self._filters_changed(filters)

    def _greeted(self, hello: Hello) -> None:
        if not self._up or self.holds:
            return  # the member repeats it after our HELLO
        if hello.sender_round != self._peer:
            self._shut()
            self._peer = hello.sender_round
            self._greet()
        if hello.receiver_round == self._mine and not self.is_open:
            self.is_open = True
            self._port.open(hello.queue, hello.packet_bytes)

    def _shut(self) -> None:
        if self.is_open:
            self.is_open = False
            self._waiting.clear()
            self.waiting = self._unanswered = self._owed = 0
            self._port.shut()

    def _filters_changed(self, message: WantedFilters) -> None:
        if message.first:
            self._coming = set()
        for topic_filter, qos in message.filters:
            if qos == GONE:
                self._known.discard(topic_filter)
            else:
                self._known.add(topic_filter)
                if self._coming is not None:
                    self._coming.add(topic_filter)
        if len(self._known) > MOST_FILTERS:
            raise SiteError(f"it has more than {MOST_FILTERS} filters")
        self._port.change_filters(message.filters)
        if message.last and self._coming is not None:
            unwanted, self._coming = self._known - self._coming, None
            self._known -= unwanted
            self._port.change_filters(WantedFilter(topic_filter, GONE) for topic_filter in unwanted)
