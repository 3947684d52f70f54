"""Messages on their way to the gateway, by the rules of MQTT 5 for a sender (section 4.3.3),
without I/O.

In: messages of the journal, answers, the time. Out: bytes to send, and messages that the gateway
has. A flow is the exchange of packets for one message:

  PUBREC, 0x80 and above          → the flow is over; the message goes out again, after a pause
  PUBREC, below 0x80              → PUBREL
  PUBCOMP, 0                      → the gateway has the message
  PUBCOMP, anything else          → the message goes out again, after a pause
  session present at a reconnect  → PUBLISH with DUP, or PUBREL, with the same packet identifier
  no session                      → each message goes out again, in a new flow

"Again" always means: with the same incarnation and sequence, by which the table recognises the
message. A refusal for lack of room (0x97) stops all messages for a while. Any other refusal
concerns one message.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from onceway_publisher import packets
from onceway_publisher.packets import Answer, Kind

WINDOW = 32
"""Largest number of messages in flight, even if the gateway allows more."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
QUOTA_EXCEEDED = 0x97
FAILURE = 0x80
"""Lowest reason code that means a failure."""
_NOT_FOUND = 0x92


@dataclass(eq=False)
class Message:
    """A message of the journal. tries: number of refusals so far."""

    incarnation: int
    sequence: int
    topic: str
    payload: bytes
    retain: bool = False
    tries: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.incarnation, self.sequence

    def packet(self, id: int, dup: bool) -> bytes:
        pairs = ("incarnation", str(self.incarnation)), ("seq", str(self.sequence))
        return packets.publish(self.topic, self.payload, id, dup, self.retain, pairs)


@dataclass(frozen=True)
class Refusal:
    """The gateway's reason for not accepting a message."""

    message: Message
    kind: Kind
    reason: int
    text: str


@dataclass
class _Sent:
    message: Message
    released: bool = False
    """Whether PUBREC has arrived. From then on, PUBREL is retransmitted, never PUBLISH
    [MQTT-4.3.3-6].
    """


@dataclass
class Outcome:
    """The consequences of an answer. out: bytes to send. accepted: the message that the gateway has
    accepted. refusal: the refusal of a message.
    """

    out: bytes = b""
    accepted: Message | None = None
    refusal: Refusal | None = None


@dataclass
class Flow:
    """The messages of one client on their way to the gateway. Times are those of any monotonic
    clock, in seconds.
    """

    chance: random.Random = field(default_factory=random.Random)
    on_sent: Callable[[Message], object] = lambda message: None
    """Callback for each message that is about to be sent in a new PUBLISH; not for a repetition
    with DUP.
    """
    window: int = 0
    """Largest number of messages that may be in flight; 0 without a connection."""
    limit: int = 0
    """Largest packet that the gateway accepts, in bytes."""
    _ready: deque[Message] = field(default_factory=deque)
    _later: list[tuple[float, int, Message]] = field(default_factory=list)
    """Refused messages, each with the time of its next attempt and a number that makes the entry
    unique.
    """
    _sent: dict[int, _Sent] = field(default_factory=dict)
    _turn: int = 0
    _closed_until: float = float("-inf")
    """Time until which no new message is sent, because the gateway has no room."""
    _closed: int = 0
    """Number of times that the gateway had no room for a message since it last accepted one."""
    _id: int = 0

    def __post_init__(self) -> None:
        self._id = self.chance.randrange(0xFFFF)

    def __len__(self) -> int:
        return len(self._ready) + len(self._later) + len(self._sent)

    @property
    def in_flight(self) -> int:
        return len(self._sent)

    @property
    def refused(self) -> int:
        return len(self._later)

    def add(self, messages: Iterable[Message]) -> None:
        self._ready.extend(messages)

    def connected(self, present: bool, receive_maximum: int, limit: int) -> bytes:
        """Begin a new connection. Return the packets that are sent again, in their original order
        [MQTT-4.6.0-1]. present: whether the gateway still has the session. receive_maximum, limit:
        Receive Maximum and Maximum Packet Size of CONNACK.
        """
        self.window, self.limit = min(WINDOW, receive_maximum), limit
        out: list[bytes] = []
        anew = []
        for id, one in list(self._sent.items()):
            packet = packets.pubrel(id) if one.released else one.message.packet(id, dup=True)
            if present and len(packet) <= limit and len(out) < receive_maximum:
                out.append(packet)
            else:
                anew.append(self._sent.pop(id).message)
        self._ready.extendleft(reversed(anew))
        return b"".join(out)

    def disconnected(self) -> None:
        self.window = 0

    def send(self, now: float) -> tuple[bytes, list[Refusal]]:
        """Return the packets that may be sent now, and a refusal for each message that is larger
        than the gateway accepts.
        """
        out, refused, again = [], [], []
        while self._later and self._later[0][0] <= now:
            again.append(heapq.heappop(self._later)[2])
        self._ready.extendleft(reversed(again))
        while self._ready and len(self._sent) < self.window and now >= self._closed_until:
            message = self._ready.popleft()
            packet = message.packet(id := self._next_id(), dup=False)
            if len(packet) > self.limit:
                refused.append(self._refuse(message, Answer(Kind.PUBREC, id, 0x95), now))
                continue
            self._sent[id] = _Sent(message)
            self.on_sent(message)
            out.append(packet)
        return b"".join(out), refused

    def due(self, now: float) -> float | None:
        """Return the seconds after which `send` must be called, if nothing else happens before;
        None if it need not be called.
        """
        times = [self._later[0][0]] if self._later else []
        if self._ready and len(self._sent) < self.window:
            times.append(self._closed_until)
        return max(0.0, min(times) - now) if times else None

    def take(self, answer: Answer, now: float) -> Outcome:
        """Process an answer of the gateway. An answer that fits no message in flight changes no
        state.
        """
        one = self._sent.get(answer.id)
        if answer.kind is Kind.PUBREC:
            if one is None:
                return Outcome(packets.pubrel(answer.id, _NOT_FOUND))
            if answer.reason < FAILURE or one.released:
                one.released = True
                return Outcome(packets.pubrel(answer.id))
        elif answer.kind is not Kind.PUBCOMP or one is None or not one.released:
            return Outcome()
        del self._sent[answer.id]
        if answer.kind is Kind.PUBCOMP and answer.reason == 0:
            self._closed = 0
            return Outcome(accepted=one.message)
        return Outcome(refusal=self._refuse(one.message, answer, now))

    def _refuse(self, message: Message, answer: Answer, now: float) -> Refusal:
        message.tries += 1
        until = now + self._pause(message.tries)
        if answer.reason == QUOTA_EXCEEDED:
            if now >= self._closed_until:
                self._closed += 1
                self._closed_until = now + self._pause(self._closed)
            until = self._closed_until
        self._turn += 1
        heapq.heappush(self._later, (until, self._turn, message))
        return Refusal(message, answer.kind, answer.reason, answer.text)

    def _pause(self, tries: int) -> float:
        """Return a pause in seconds, which grows with each attempt. It has a random part, so that
        clients do not all try again at the same time.
        """
        longest: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 16))
        return longest * self.chance.uniform(0.5, 1)

    def _next_id(self) -> int:
        """Return a packet identifier that no message in flight has [MQTT-2.2.1-3]."""
        self._id = self._id % 0xFFFF + 1
        return self._next_id() if self._id in self._sent else self._id
