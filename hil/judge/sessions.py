"""Checks subscribers against a model of their sessions.

In: a history. Out: messages that a subscriber received and must not, or must receive and did not.

For each message of a client or a board (hop `board`) and each subscriber whose filter matches its
topic:

- it *must* come if it was acknowledged and was published after the subscription was granted. This
  holds only if the QoS of message and subscription are above 0, and the session outlives its
  connections;
- it *may* come otherwise: at QoS 0, or while it is not acknowledged;
- it *must not* come at a QoS other than the lower one [MQTT-3.8.4-8], or with another payload. It
  must not come on a topic that the filter does not match, or after a later message of the same
  publisher [MQTT-4.6.0-6]. It must not come if it was acknowledged before the first SUBSCRIBE. It
  must come only once: at QoS 2 in a session, at QoS 1 and 0 on a connection;
- it *must* come with DUP when it is sent again, and without DUP if it cannot have been sent before
  [MQTT-3.3.1-1, -2]. It must come without RETAIN, which no client here sets [MQTT-3.3.1-12];
- if it came at QoS 2 and was not released, it is sent or released once more when the session
  continues, before messages published since then [MQTT-4.4.0-1];
- no more messages are in flight than the subscriber's Receive Maximum [MQTT-3.3.4-9];
- a connection on which the subscriber sends nothing ends after one and a half times its Keep Alive
  [MQTT-3.1.2-22].

If a client publishes again in another flow (`again`), or sends PUBLISH again at QoS 1 (`resent`),
one more copy may come each time. A board's message has no identity in it: the model knows it by its
payload on the wire. A board's PUBREL shows that the board has the PUBREC.

Before its end, the run waits for the messages that sessions hold. A subscriber without any message
at a QoS has proved nothing about this QoS.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hil.formats.topics import matches, shared
from hil.judge.lines import Lines
from hil.observe.history import Event, taking

HOP = "subscriber"
PUBACK_WITHIN = 1_000_000_000
"""Nanoseconds until a gateway must have the PUBACK of a message that a subscriber has received."""
ENDS_LATE, ENDS_EARLY = 5_000_000_000, 200_000_000
"""Tolerance in nanoseconds for the end of a silent subscriber's connection: the gateway looks once
a second, and a busy machine delays this."""
EXPIRES_LATE = 1_500_000_000
"""Nanoseconds that a session may outlive its expiry: the gateway looks once a second."""
RETAINED_WITHIN = 2_000_000_000
"""Nanoseconds after a SUBSCRIBE in which retained messages must arrive, on a busy machine."""
SOME = 10
"""Number of messages of which at least one is expected to arrive, even if each may get lost."""
Key = tuple[str, int, int]
"""Topic, incarnation and sequence; each publisher has its own topics."""
KEEP_ALIVE_TIMEOUT = "reason=141,"
"""Text of a `broken` connection that the gateway has ended with the reason code 0x8D."""
CLIENTS = 1
"""Value that stands for the incarnation of a client, which has none."""


@dataclass(slots=True)
class _Message:
    """A message. t: when its publisher reported it. repeats: number of further copies that the
    publisher may have caused. again: whether a copy was sent in another flow.
    """

    t: int
    qos: int
    payloads: set[str]
    """Payloads of the message: a board may send a message in several forms."""
    acknowledged: int | None = None
    repeats: int = 0
    again: bool = False
    retain: bool = False


@dataclass(slots=True)
class _Subscriber:
    name: str
    filter: str
    qos: int
    clean: bool
    receive_maximum: int
    silent_ns: int = 0
    """Time after which the gateway must end the connection of a subscriber that sends nothing; 0:
    never."""
    events: list[Event] = field(default_factory=list)
    complete: bool = False
    beyond_bridge: bool = False
    """Whether the subscriber is at the other end of a bridge. The bridge may repeat a message at
    QoS 1. A mosquitto that ends before it reads PUBCOMP sends PUBLISH with DUP again."""
    expiry_ns: int = 0
    """Session Expiry Interval in nanoseconds; 0: it does not end in a run."""
    share: str | None = None
    """Share Name of the subscriber's subscription; None if the subscription is not shared."""


def wrong(events: Iterable[Event]) -> list[str]:
    """Return a sentence for each kind of mistake of each subscriber and shared subscription."""
    messages, subscribers = _sort_events(events)
    reasons: list[str] = []
    groups: dict[tuple[str, str], list[_Model]] = defaultdict(list)
    for subscriber in subscribers:
        model = _Model(subscriber, messages)
        reasons += _summaries(subscriber.name, _judged(model))
        if subscriber.share is not None:
            groups[subscriber.share, subscriber.filter].append(model)
    for (name, filter), members in groups.items():
        reasons += _summaries(f"the share {name} of {filter}", _shared_out(members))
    return reasons


def _summaries(name: str, faults: "Iterable[Fault]") -> Iterator[str]:
    """Yield a sentence per kind of mistake, with its first message and the number of others."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for mistake, subject in faults:
        found[mistake][subject] = None
    for mistake, each in found.items():
        first, more = next(iter(each)), len(each) - 1
        yield f"{name} {mistake}: {first}" + f", and {more} more" * bool(more)


def doubts(events: Iterable[Event]) -> list[str]:
    """Return a sentence for each subscriber whose events were not all recorded. For each other
    subscriber without a shared subscription, return a sentence for each QoS at which it got no
    message, although at least `SOME` were published to it. Such a loss may be correct: QoS 0 and
    ended sessions allow it.
    """
    messages, subscribers = _sort_events(events)
    return [
        f"not all events were recorded: {subscriber.name}"
        for subscriber in subscribers
        if not subscriber.complete
    ] + [
        f"{subscriber.name} got no message at QoS {qos}, but some were published to it"
        for subscriber in subscribers
        if subscriber.complete
        if subscriber.share is None  # another subscriber of its share may have it
        for qos in _without(subscriber, messages)
    ]


def _without(subscriber: _Subscriber, messages: dict[Key, _Message]) -> list[int]:
    """Return each QoS at which the subscriber received nothing, although at least `SOME` messages
    were published while it was subscribed. On each connection, only messages up to the newest
    received one count. A newer one may still have been queued when the connection ended, and then
    the gateway drops it at QoS 0. If nothing was received, all messages up to the connection's end
    count.
    """
    since: int | None = None
    newest: int | None = None  # newest on this connection, by time of publishing
    listened, received = [], set()
    for event in subscriber.events:
        if event.event == "received":
            received.add(event.data["qos"])
            if message := messages.get((event.data["topic"], CLIENTS, event.data["sequence"])):
                newest = max(newest or 0, message.t)
        elif event.event == "subscribed":
            since = event.t
        elif event.event == "connected":  # a continued session needs no new subscription
            since = event.t if event.data["session_present"] else None
            newest = None
        elif event.event in ("left", "broken") and since is not None:
            listened.append((since, newest or event.t))
            since = None
    if since is not None:
        last = max((message.t for message in messages.values()), default=0)
        listened.append((since, newest or last))
    due = Counter(
        min(subscriber.qos, message.qos)
        for (topic, *_), message in messages.items()
        if matches(subscriber.filter, topic)
        and any(begin <= message.t <= end for begin, end in listened)
    )
    return sorted(qos for qos, count in due.items() if count >= SOME and qos not in received)


def _sort_events(events: Iterable[Event]) -> tuple[dict[Key, _Message], list[_Subscriber]]:
    messages: dict[Key, _Message] = {}
    published: dict[tuple[str, int, int], _Message] = {}  # by device, incarnation, sequence
    lines = Lines()
    subscribers: dict[str, _Subscriber] = {}
    retaining: set[str] = set()
    # the rig's events come first, because its event `run` names the subscriptions
    for event in sorted(events, key=lambda event: (event.hop != "rig", event.t)):
        with taking(event):
            data = event.data
            if (event.hop, event.event) == ("rig", "run"):
                subscribers |= _tables(data["bench"])
                retaining |= _retaining(data["bench"])
            elif event.hop == HOP and event.event == "complete":
                subscribers[data["subscriber"]].complete = True
            elif event.hop == HOP:
                subscribers[data["subscriber"]].events.append(event)
            elif event.hop == "board" and event.event == "publication" and data.get("topic"):
                of_client = "qos" in data
                payloads = {data["payload"]} if of_client else set()
                message = _Message(event.t, data.get("qos", 2), payloads)
                message.retain = data["device"] in retaining
                published[_publisher(data)] = message
                messages[data["topic"], data["incarnation"], data["sequence"]] = message
                if not of_client:
                    lines.publications.append((event, message))
            elif event.hop == "board" and "sequence" in data and _publisher(data) in published:
                _follow(published[_publisher(data)], event)
            elif event.hop in ("wire", "air"):
                lines.take(event)
    lines.tell()
    return messages, list(subscribers.values())


def _publisher(data: dict[str, Any]) -> tuple[str, int, int]:
    return str(data["device"]), int(data["incarnation"]), int(data["sequence"])


def _tables(bench: dict[str, Any]) -> dict[str, _Subscriber]:
    tables = [table for table in bench.get("subscriber", []) for _ in range(table["count"])]
    return {
        name: _Subscriber(
            name,
            shared(table["filter"])[1],
            table["qos"],
            table["clean"],
            table.get("receive_maximum", 65_535),
            table.get("keep_alive_s", 0) * 1_500_000_000,
            expiry_ns=table.get("expiry_s", 0) * 1_000_000_000,
            beyond_bridge=table.get("there", False),
            share=shared(table["filter"])[0],
        )
        for name, table in ((f"subscriber-{n}", table) for n, table in enumerate(tables, 1))
    }


def _retaining(bench: dict[str, Any]) -> set[str]:
    """Return the clients whose messages are retained."""
    tables = [table for table in bench.get("client", ()) for _ in range(table.get("count", 1))]
    return {f"client-{n}" for n, table in enumerate(tables, 1) if table.get("retain")}


def _follow(message: _Message, event: Event) -> None:
    match event.event:
        case "acknowledged":
            message.acknowledged = event.t
        case "again":
            message.again = True
            message.repeats += 1
        case "resent" if message.qos == 1:
            message.repeats += 1


Fault = tuple[str, str]
"""A mistake, and the message that it concerns."""


@dataclass(slots=True)
class _Model:
    """A model of a subscriber's session, from its events. asked: time of this session's SUBSCRIBE.
    granted: whether its SUBACK arrived. since: time of the first SUBACK in any session.
    """

    subscriber: _Subscriber
    messages: dict[Key, _Message]
    asked: int | None = None
    granted: bool = False
    since: int | None = None
    in_session: set[Key] = field(default_factory=set)
    """Messages that were received in this session."""
    sent_until: dict[Key, int] = field(default_factory=dict)
    """For each message, the end of the last connection on which it arrived."""
    unfinished: set[int] = field(default_factory=set)
    """Identifiers of QoS 2 messages that arrived and were not released in this session."""
    owed: set[int] = field(default_factory=set)
    """Identifiers of QoS 2 messages that had no PUBREL when this connection began, and have had no
    packet on this connection."""
    resumed: bool = False
    """Whether the session began on an earlier connection."""
    connected: int = 0
    """Time at which this connection began."""
    sent: int | None = None
    """Time of the last packet on this connection of a subscriber that sends only CONNECT and
    SUBSCRIBE. None without a connection."""
    has_newer_qos_2: bool = False
    """Whether this connection has brought a QoS 2 message that was published after `connected`.
    Messages that were in flight before must come first [MQTT-4.4.0-1, MQTT-4.6.0-6]."""
    ended: int | None = None
    """End of the last connection; None before it, and while there is a connection."""
    has_left: bool = False
    """Whether the subscriber ended that connection, so that the gateway has stored its end."""
    tried: int = 0
    """The last time from which the gateway may count the session's expiry: the end of a connection
    that reached it, or after its death a time before its next start.
    """
    owed_retained: dict[str, int] = field(default_factory=dict)
    """For each topic, the sequence of the message that was retained at this session's SUBSCRIBE.
    That message, or a later one, must come with RETAIN."""
    ever: set[Key] = field(default_factory=set)
    received_at: dict[Key, int] = field(default_factory=dict)
    """Time of the last arrival of each message."""
    unsure: set[Key] = field(default_factory=set)
    """Messages whose PUBACK may not have arrived before a connection ended."""
    newest: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """Highest sequence so far in this session, by topic, incarnation and QoS."""
    times: Counter[Key] = field(default_factory=Counter)
    """Number of arrivals of each message: at QoS 2 in this session, else on this connection."""
    of_clients: set[str] = field(init=False)
    """Topics of messages that clients, not boards, have published."""

    def __post_init__(self) -> None:
        self.of_clients = {topic for topic, one, _ in self.messages if one == CLIENTS}

    def take(self, event: Event) -> Iterator[Fault]:
        yield from self._silent(event)
        match event.event:
            case "connected":
                yield from self._connected(event.data["session_present"], event.t)
                self.connected, self.has_newer_qos_2 = event.t, False
            case "subscribing":
                self.asked = event.t
                self.owed_retained = self._retained()
            case "subscribed":
                if event.data["granted"] != self.subscriber.qos:
                    yield "was not granted the requested QoS", f"{event.data['granted']:#04x}"
                self.granted = True
                self.since = self.since or event.t
            case "received":
                yield from self._received(event)
            case "released":
                self.unfinished.discard(event.data["id"])
                self.owed.discard(event.data["id"])
            case "left" | "broken":
                yield from self._ended(event)
                if self.has_newer_qos_2:
                    yield from self.unreleased()
                self.has_newer_qos_2 = False
                self.sent_until |= dict.fromkeys(self.times, event.t)
                fresh = event.t - PUBACK_WITHIN
                self.unsure |= {key for key, t in self.received_at.items() if t > fresh}
                for key in [key for key in self.times if self._qos(key) < 2]:
                    del self.times[key]

    def _silent(self, event: Event) -> Iterator[Fault]:
        """Yield a mistake if a silent subscriber's connection lasts for too long, or if the gateway
        ends it too early, because of its Keep Alive.
        """
        most = self.subscriber.silent_ns
        if most and self.sent is not None:
            lasted = event.t - self.sent
            named = f"silent for {lasted / 1e9:.1f} s"
            if lasted > most + ENDS_LATE:
                yield "kept its connection beyond its Keep Alive", named
            if lasted < most - ENDS_EARLY and KEEP_ALIVE_TIMEOUT in event.data.get("why", ""):
                yield "lost its connection before its Keep Alive was over", named
        if event.event in ("connected", "subscribing"):
            self.sent = event.t
        elif event.event in ("broken", "left"):
            self.sent = None

    def _ended(self, event: Event) -> Iterator[Fault]:
        """Note the end of a connection, or of an attempt to connect."""
        if self.ended is None:  # else no connection has come about
            self.ended, self.has_left = event.t, event.event == "left"
            if self.granted and event.t - (self.asked or 0) > RETAINED_WITHIN:
                for topic, sequence in self.owed_retained.items():
                    yield "did not get a retained message", f"{topic} {sequence}"
        if not (self.has_left and "Connection refused" in event.data.get("why", "")):
            self.tried = event.t

    def _retained(self) -> dict[str, int]:
        """Return what the gateway retains now at least: for each topic, the newest sequence."""
        found: dict[str, int] = {}
        for (topic, _, sequence), message in self.messages.items():
            kept = message.retain and (message.acknowledged or self.asked or 0) < (self.asked or 0)
            if kept and self.subscriber.share is None and matches(self.subscriber.filter, topic):
                found[topic] = max(sequence, found.get(topic, 0))
        return found

    def _expired(self, present: bool, t: int) -> Iterator[Fault]:
        """Yield a mistake if a session outlives its Session Expiry Interval, or ends before."""
        most, ended = self.subscriber.expiry_ns, self.ended
        if not most or ended is None:
            return
        if present and t - self.tried > most + EXPIRES_LATE:
            yield "found a session that had expired", f"after {(t - self.tried) / 1e9:.1f} s"
        if not present and self.granted and t - ended < most - ENDS_EARLY:
            yield "has lost its session before it expired", f"after {(t - ended) / 1e9:.1f} s"

    def _connected(self, present: bool, t: int) -> Iterator[Fault]:
        yield from self._expired(present, t)
        self.ended = None
        self.resumed = present
        self.owed = self.unfinished if present else set()
        self.unfinished = set(self.owed)
        if present and self.subscriber.clean:
            yield "found a session that it had ended", "Session Present 1"
        if not present:
            self.owed_retained = {}
            if self.granted and not (self.subscriber.clean or self.subscriber.expiry_ns):
                yield "has lost its session", f"{len(self.in_session)} messages had arrived"
            self.asked = None
            self.granted = False
            self.in_session.clear()
            self.newest.clear()
            self.times.clear()
            self.sent_until.clear()

    def _qos(self, key: Key) -> int:
        """Return the QoS at which the subscriber must get a message."""
        return min(self.subscriber.qos, self.messages[key].qos)

    def _received(self, event: Event) -> Iterator[Fault]:
        data = event.data
        topic, sequence = str(data["topic"]), data["sequence"]
        if not matches(self.subscriber.filter, topic):
            yield f"got a message that its filter {self.subscriber.filter} does not match", topic
        if sequence is None and topic in self.of_clients:
            yield "got a client's message without its identity", topic
            return
        key = self._key(topic, sequence, data["payload"])
        message = self.messages.get(key)
        named = f"{topic} {key[2] or data['payload']}"
        if message is None:
            yield "got an unpublished message", named
            return
        if data["payload"] not in message.payloads:
            yield "got another payload", named
        if data["qos"] != self._qos(key):
            yield f"got at QoS {data['qos']} a message of QoS {self._qos(key)}", named
        if data["retain"] and message.retain:
            yield from self._retained_came(topic, key[2], data, named)
            return
        if self.asked is None or (
            message.acknowledged is not None and message.acknowledged < self.asked
        ):
            yield "got a message that was acknowledged before the subscription", named
        yield from self._flagged(key, message, data, named)
        if data["qos"] == 2:
            self.unfinished.add(data["id"])
            self.owed.discard(data["id"])
        if data["again"]:
            return
        self.has_newer_qos_2 |= (
            data["qos"] == 2 and sequence is not None and message.t > self.connected
        )
        self.times[key] += 1
        by_there = key in self.in_session and data["dup"]
        any_number = self.subscriber.beyond_bridge and (data["qos"] == 1 or by_there)
        if self.times[key] > 1 + message.repeats and not any_number:
            yield f"got a message too often at QoS {data['qos']}", named
        if key not in self.in_session:
            yield from self._in_order(key, message, named)
        self.in_session.add(key)
        self.ever.add(key)
        self.received_at[key] = event.t

    def _retained_came(
        self, topic: str, sequence: int, data: dict[str, Any], named: str
    ) -> Iterator[Fault]:
        if self.asked is None or sequence < self.owed_retained.pop(topic, sequence):
            yield "got with RETAIN a message that was not retained", named
        if data["qos"] == 2:
            self.unfinished.add(data["id"])

    def _flagged(
        self, key: Key, message: _Message, data: dict[str, Any], named: str
    ) -> Iterator[Fault]:
        again = data["again"] or (data["qos"] == 1 and self._was_sent(key, message))
        if data["retain"]:
            yield "got with RETAIN a message that was published without RETAIN", named
        if data["dup"] and not (data["qos"] and (again or self.resumed)):
            yield "got with DUP a message that was not sent to it before", named
        if again and data["qos"] and not data["dup"]:
            yield "got a message again without DUP", named
        if data["under_way"] > self.subscriber.receive_maximum:
            most = self.subscriber.receive_maximum
            yield f"got more messages at once than its Receive Maximum of {most}", named

    def _was_sent(self, key: Key, message: _Message) -> bool:
        """Whether the gateway must know that it has already sent a QoS 1 message: the publisher had
        its PUBACK before the end of an earlier connection on which the message arrived. (A gateway
        that was killed before the commit accepts a repeated message as new.)
        """
        if message.acknowledged is None or message.repeats or self.subscriber.beyond_bridge:
            return False
        return message.acknowledged < self.sent_until.get(key, 0)

    def _key(self, topic: str, sequence: int | None, payload: str) -> Key:
        """Return the key of a received message. Without a sequence, find it by topic and payload:
        the first such message that has not arrived yet, or else the first one.
        """
        if sequence is not None:
            return topic, CLIENTS, int(sequence)
        found = [
            key
            for key, message in self.messages.items()
            if key[0] == topic and payload in message.payloads
        ]
        return next((key for key in found if not self.times[key]), (found or [(topic, 0, 0)])[0])

    def _in_order(self, key: Key, message: _Message, named: str) -> Iterator[Fault]:
        """Yield a mistake if this message comes after one with a higher sequence of the same topic,
        incarnation and QoS, unless it was published again or the subscription is shared."""
        topic, incarnation, sequence = key
        if self.subscriber.share is not None:
            return  # another subscriber's message may come late
        lane = topic, incarnation, self._qos(key)
        if not message.again:
            if sequence < self.newest.get(lane, 0):
                yield "got messages in another order than they were published", named
            self.newest[lane] = max(sequence, self.newest.get(lane, 0))

    def unreleased(self) -> Iterator[Fault]:
        """Yield a mistake for each QoS 2 message of an earlier connection without a PUBREL on this
        one. Call this at the end of a connection that brought newer messages, or of a run whose
        last connection brought all missing messages.
        """
        for identifier in sorted(self.owed):
            yield "got no PUBREL for a message of an earlier connection", str(identifier)

    def missing(self) -> Iterator[Fault]:
        for key, message in self.messages.items():
            topic, _, sequence = key
            if (
                self.since is not None
                and message.acknowledged is not None
                and message.t > self.since
                and matches(self.subscriber.filter, topic)
                and self._qos(key)
                and key not in self.ever
            ):
                yield "did not get a message", f"{topic} {sequence}"


def _judged(model: _Model) -> Iterator[Fault]:
    subscriber = model.subscriber
    for event in subscriber.events:
        with taking(event):
            yield from model.take(event)
    if subscriber.complete and not (subscriber.clean or subscriber.expiry_ns):
        if subscriber.share is None:
            yield from model.missing()
        if subscriber.events[-1:] and subscriber.events[-1].event in ("received", "released"):
            yield from model.unreleased()


def _shared_out(members: Sequence[_Model]) -> Iterator[Fault]:
    """Yield a mistake for each message that no subscriber of a shared subscription received, or
    that several received. At QoS 1, two may receive it if the connection of the first ends before
    its PUBACK [MQTT-4.8.2-5, -6]. A message may be missing if the session that held it has ended.
    """
    in_session = Counter(key for model in members for key in model.ever)
    for key, times in sorted(in_session.items()):
        message = members[0].messages[key]
        unsure = any(key in model.unsure and model._qos(key) == 1 for model in members)
        if times > 1 and not message.repeats and not unsure:
            yield f"delivered a message to {times} subscribers", f"{key[0]} {key[2]}"
    whole = all(one.subscriber.complete and not one.subscriber.clean for one in members)
    if not whole or any(model.since is None for model in members):
        return
    since = max(model.since or 0 for model in members)
    for key, message in members[0].messages.items():
        due = message.acknowledged is not None and message.t > since and key not in in_session
        if due and matches(members[0].subscriber.filter, key[0]) and members[0]._qos(key):
            yield "delivered a message to no subscriber", f"{key[0]} {key[2]}"
