"""The model of sessions: messages that a subscriber must, may and must not receive."""

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.judge.sessions import doubts, wrong
from hil.observe.history import Event


class Run:
    """A history that a test builds, with one subscriber and named clients. Each event is one
    nanosecond later than the previous one.
    """

    def __init__(
        self, qos: int = 2, clean: bool = False, pattern: str = "sensors/#", most: int = 65_535
    ) -> None:
        table = {"filter": pattern, "qos": qos, "clean": clean, "count": 1}
        table["receive_maximum"] = most
        self.qos = qos
        self.events = [Event(0, "rig", "run", {"bench": {"subscriber": [table]}})]
        self._published: dict[tuple[str, int], int] = {}

    def add(self, hop: str, event: str, **data: Any) -> None:
        self.events.append(Event(len(self.events), hop, event, data))

    def says(self, event: str, **data: Any) -> None:
        self.add("subscriber", event, subscriber="subscriber-1", **data)

    def subscribes(self, present: bool = False) -> None:
        if present:
            self.says("broken", why="")
        self.says("connected", session_present=present)
        if not present:
            self.says("subscribing")
            self.says("subscribed", granted=self.qos)

    def publishes(
        self, *sequences: int, qos: int = 2, client: str = "c", done: bool = True
    ) -> None:
        for sequence in sequences:
            self._published[client, sequence] = qos
            self.board(
                "publication",
                sequence,
                client,
                qos=qos,
                payload="aa",
                topic=f"sensors/{client}/data",
            )
            if done and qos:
                self.board("acknowledged", sequence, client)

    def board(self, event: str, sequence: int, client: str = "c", **data: Any) -> None:
        self.add("board", event, device=client, incarnation=1, sequence=sequence, **data)

    def gets(self, *sequences: int, client: str = "c", **other: Any) -> None:
        for sequence in sequences:
            qos = min(self.qos, self._published.get((client, sequence), 2))
            said = {"qos": qos, "id": 1, "dup": False, "again": False, "payload": "aa"}
            said |= {"retain": False, "under_way": 1 if qos else 0}
            topic = f"sensors/{client}/data"
            self.says("received", **{"topic": topic, "sequence": sequence, **said, **other})

    def ends(self) -> list[str]:
        self.says("complete")
        return wrong(self.events)


ENDED = "the broker has ended the connection: Disconnect(reason={}, properties=())"


@pytest.mark.parametrize(
    ("lasts_s", "reason", "mistake"),
    [
        (3.0, 141, None),
        (7.9, 141, None),
        (8.1, 141, "kept its connection beyond its Keep Alive: silent for 8.1 s"),
        (8.1, 139, "kept its connection beyond its Keep Alive: silent for 8.1 s"),
        (2.7, 141, "lost its connection before its Keep Alive was over: silent for 2.7 s"),
        (2.7, 139, None),
    ],
)
@pytest.mark.parametrize("present", [False, True])
def test_silent_subscriber_is_disconnected_in_time(
    lasts_s: float, reason: int, mistake: str | None, present: bool
) -> None:
    """The Keep Alive is 2 s. present: whether the connection continues a session."""
    run = Run(0)
    run.events[0].data["bench"]["subscriber"][0]["keep_alive_s"] = 2
    run.subscribes()
    if present:
        run.subscribes(present=True)
    sent = "connected" if present else "subscribing"
    begun = max(one.t for one in run.events if one.event == sent)
    data = {"subscriber": "subscriber-1", "why": ENDED.format(reason)}
    run.events.append(Event(begun + int(lasts_s * 1e9), "subscriber", "broken", data))
    refused = {"subscriber": "subscriber-1", "why": "Connection refused"}
    run.events.append(Event(int(60e9), "subscriber", "broken", refused))
    assert run.ends() == ([f"subscriber-1 {mistake}"] if mistake else [])


@pytest.mark.parametrize(("qos", "clean"), [(0, False), (2, True)])
def test_subscriber_without_messages_leaves_a_doubt(qos: int, clean: bool) -> None:
    run = subscribed(qos, clean)
    run.publishes(*range(1, 11), qos=qos)
    run.publishes(99, qos=0)
    run.gets(*[99] * (qos > 0))
    assert run.ends() == []
    assert doubts(run.events) == [
        f"subscriber-1 got no message at QoS {qos}, but some were published to it"
    ]
    run.gets(2)
    assert doubts(run.events) == []
    away = subscribed(qos, clean)
    away.says("left")
    away.publishes(*range(1, 11))
    away.says("complete")
    assert doubts(away.events) == []


def test_slow_subscriber_is_owed_nothing_at_qos_0() -> None:
    """Messages at QoS 0 wait while the subscriber's window is full. If the connection ends, these
    messages are dropped.
    """
    run = subscribed(2)
    run.publishes(1)
    run.publishes(*range(2, 12), qos=0)
    run.publishes(12)
    run.gets(1)
    run.says("left")
    run.says("connected", session_present=True)
    run.gets(12)
    assert run.ends() == []
    assert doubts(run.events) == []
    ahead = subscribed(2)
    ahead.publishes(*range(1, 11), qos=0)
    ahead.publishes(11)
    ahead.gets(11)
    ahead.ends()
    assert len(doubts(ahead.events)) == 1


def subscribed(qos: int = 2, clean: bool = False, pattern: str = "sensors/#") -> Run:
    run = Run(qos, clean, pattern)
    run.subscribes()
    return run


@given(
    qos=st.integers(0, 2),
    messages=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=12),
)
def test_delivery_once_and_in_order_holds(qos: int, messages: list[tuple[str, int]]) -> None:
    run = subscribed(qos)
    for number, (client, published_at) in enumerate(messages, 1):
        run.publishes(number, qos=published_at, client=client)
    for number, (client, _) in enumerate(messages, 1):
        run.gets(number, client=client)
    assert run.ends() == []


def test_acknowledged_message_must_come() -> None:
    run = subscribed()
    run.publishes(1, 2, 3)
    run.gets(2)
    assert run.ends() == ["subscriber-1 did not get a message: sensors/c/data 1, and 1 more"]


def test_messages_that_may_be_missing() -> None:
    run = Run()
    run.publishes(1)  # before the subscription
    run.subscribes()
    run.publishes(2, done=False)
    run.publishes(3, qos=0)
    run.publishes(4, client="other")
    run.gets(4, client="other")
    assert run.ends() == []
    clean = subscribed(clean=True)
    clean.publishes(1)
    assert clean.ends() == []
    at_most_once = subscribed(0)
    at_most_once.publishes(1)
    assert at_most_once.ends() == []


def test_delivery_beyond_the_end_is_a_doubt_and_not_a_loss() -> None:
    run = subscribed()
    run.publishes(1)
    assert wrong(run.events) == []
    assert doubts(run.events) == ["not all events were recorded: subscriber-1"]
    run.ends()
    assert doubts(run.events) == []


@pytest.mark.mqtt("MQTT-4.3.3-10")
def test_at_qos_2_a_message_comes_once_in_a_session_also_after_a_reconnect() -> None:
    run = subscribed()
    run.publishes(1)
    run.gets(1)
    run.gets(1, again=True, dup=True)  # the same flow
    run.subscribes(present=True)
    run.gets(1, again=True, dup=True)
    assert run.ends() == []
    run.subscribes(present=True)
    run.gets(1)
    assert run.ends() == ["subscriber-1 got a message too often at QoS 2: sensors/c/data 1"]


@pytest.mark.mqtt("MQTT-4.4.0-1")
def test_at_qos_1_a_message_comes_again_on_another_connection_only() -> None:
    run = subscribed(1)
    run.publishes(1)
    run.gets(1)
    run.subscribes(present=True)
    run.gets(1, dup=True)
    assert run.ends() == []
    run.gets(1, dup=True)
    assert run.ends() == ["subscriber-1 got a message too often at QoS 1: sensors/c/data 1"]
    run.events[0].data["bench"]["subscriber"][0]["there"] = True
    assert wrong(run.events) == [], "a bridge may send a message at QoS 1 again"


@pytest.mark.parametrize(("dup", "count"), [(True, 0), (False, 1)])
def test_only_the_other_brokers_repetition_may_arrive_again_at_qos_2(dup: bool, count: int) -> None:
    """If mosquitto 2.0.11 ends before it has read PUBCOMP, it later repeats PUBLISH instead of
    PUBREL.
    """
    run = subscribed(2)
    run.events[0].data["bench"]["subscriber"][0]["there"] = True
    run.publishes(1)
    run.gets(1)
    run.says("released", id=1)
    run.subscribes(present=True)
    run.gets(1, dup=dup)
    run.says("released", id=1)
    assert len([said for said in run.ends() if "too often" in said]) == count


@pytest.mark.mqtt("MQTT-3.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_repeated_delivery_needs_dup(qos: int) -> None:
    run = subscribed(qos)
    run.publishes(1, 2)
    run.gets(1)
    run.subscribes(present=True)
    run.gets(1, again=qos == 2, dup=True)
    run.gets(2, dup=True)  # it may have been sent on the connection before
    assert run.ends() == []
    run.subscribes(present=True)
    run.gets(1, again=qos == 2)
    assert run.ends() == ["subscriber-1 got a message again without DUP: sensors/c/data 1"]


@pytest.mark.mqtt("MQTT-4.4.0-1")
def test_held_identifier_of_a_continued_session_is_released() -> None:
    run = subscribed()
    run.publishes(1, 2, 3, 4)
    run.gets(1, id=1)
    run.gets(2, id=2)
    run.gets(3, id=3)
    run.says("released", id=1)
    run.subscribes(present=True)
    run.gets(3, id=3, again=True, dup=True)
    run.gets(4, id=4)
    assert run.ends() == ["subscriber-1 got no PUBREL for a message of an earlier connection: 2"]
    run.says("released", id=2)
    assert run.ends() == []


@pytest.mark.mqtt("MQTT-4.4.0-1")
def test_held_identifiers_are_released_before_new_messages() -> None:
    run = subscribed()
    run.publishes(1, 2)
    run.gets(1, id=1)
    run.subscribes(present=True)
    run.gets(2, id=2)  # it was published before this connection
    run.says("released", id=2)
    run.says("broken", why="")
    assert run.ends() == []
    run.subscribes(present=True)
    run.publishes(3)
    run.gets(3, id=3)
    run.says("released", id=3)
    run.subscribes(present=True)
    run.publishes(4)
    run.gets(4, id=4)
    run.says("broken", why="")
    assert run.ends() == ["subscriber-1 got no PUBREL for a message of an earlier connection: 1"]


def test_message_lost_in_a_kill_is_new_to_the_gateway() -> None:
    run = subscribed(1)
    run.publishes(1, done=False)
    run.gets(1)
    run.says("broken", why="")
    run.board("acknowledged", 1, "c")
    run.says("broken", why="refused")
    run.subscribes(present=True)
    run.gets(1)
    assert run.ends() == []


@pytest.mark.mqtt("MQTT-3.3.1-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_first_delivery_with_dup_is_a_fault(qos: int) -> None:
    run = subscribed(qos)
    run.publishes(1, 2, 3)
    run.gets(1)
    run.gets(2, dup=True)
    said = ["subscriber-1 got with DUP a message that was not sent to it before: sensors/c/data 2"]
    run.gets(3)
    assert run.ends() == said
    if qos == 0:
        run = subscribed(qos)
        run.publishes(2)
        run.subscribes(present=True)
        run.gets(2, dup=True)
        assert run.ends() == said


@pytest.mark.mqtt("MQTT-3.3.1-12")
def test_message_published_without_retain_comes_without() -> None:
    run = subscribed()
    run.publishes(1)
    run.gets(1, retain=True)
    assert run.ends() == [
        "subscriber-1 got with RETAIN a message that was published without RETAIN: sensors/c/data 1"
    ]


@pytest.mark.mqtt("MQTT-3.3.4-9")
def test_no_more_is_under_way_than_the_subscriber_takes_at_once() -> None:
    run = Run(most=2)
    run.subscribes()
    run.publishes(1, 2, 3)
    run.gets(1, 2, under_way=2)
    assert run.ends()[0].startswith("subscriber-1 did not get")
    run.gets(3, under_way=3)
    assert run.ends() == [
        "subscriber-1 got more messages at once than its Receive Maximum of 2: sensors/c/data 3"
    ]


def test_republished_message_may_come_twice() -> None:
    run = subscribed()
    run.publishes(1)
    run.board("again", 1)
    run.gets(1, 1)
    assert run.ends() == []
    run = subscribed(1)
    run.publishes(1, qos=1)
    run.board("resent", 1)
    run.gets(1, 1)
    assert run.ends() == []
    run = subscribed(2)
    run.publishes(1, qos=2)
    run.board("resent", 1)  # the gateway knows the identifier
    run.gets(1, 1)
    assert run.ends() == ["subscriber-1 got a message too often at QoS 2: sensors/c/data 1"]


class Board:
    """A board that takes samples, and the packets on its wire."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def samples(self, *sequences: int, done: bool = True) -> None:
        for sequence in sequences:
            said = {"device": "uno-1", "incarnation": 7, "sequence": sequence}
            records = [["uno-1:adc0", sequence, None, "V"]]
            topic = {"kind": "reading", "topic": "sensors/uno-1/adc0"}
            self._run.add("board", "publication", **said, **topic, records=records)
            self.sends(sequence)
            if done:
                self.releases(sequence)

    def sends(self, sequence: int, time: int | None = 1_700_000_000) -> None:
        said = {"line": "uno-1", "direction": "up", "id": sequence, "topic": "sensors/uno-1/adc0"}
        self._run.add("wire", "publish", **said, payload=worded(sequence, time))

    def releases(self, sequence: int) -> None:
        self._run.add("wire", "pubrel", line="uno-1", direction="up", id=sequence)

    def gets(self, *sequences: int, **other: Any) -> None:
        for sequence in sequences:
            said = {"topic": "sensors/uno-1/adc0", "payload": worded(sequence), "sequence": None}
            said |= {"qos": self._run.qos, "id": 1, "dup": False, "again": False}
            said |= {"retain": False, "under_way": 1 if self._run.qos else 0}
            self._run.says("received", **{**said, **other})


def worded(sequence: int, time: int | None = 1_700_000_000) -> str:
    record = {-2: "uno-1:", 0: "adc0", 1: "V", 2: sequence}
    return cbor2.dumps([record if time is None else {**record, -3: time}]).hex()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publications_of_a_board_come_once_and_in_order(qos: int) -> None:
    run = subscribed(qos)
    board = Board(run)
    board.samples(1, 2, 3)
    board.gets(1, 2, 3)
    assert run.ends() == []
    board.gets(3)
    assert run.ends() == [
        f"subscriber-1 got a message too often at QoS {qos}: sensors/uno-1/adc0 3"
    ]


def test_publication_acknowledged_to_a_board_must_come() -> None:
    run = subscribed()
    board = Board(run)
    board.samples(1, 2)
    board.samples(3, done=False)
    board.gets(2)
    assert run.ends() == ["subscriber-1 did not get a message: sensors/uno-1/adc0 1"]


def test_payload_of_no_board_belongs_to_no_publisher() -> None:
    run = subscribed()
    board = Board(run)
    board.samples(1)
    board.gets(1, 2)
    [reason] = run.ends()
    assert reason == f"subscriber-1 got an unpublished message: sensors/uno-1/adc0 {worded(2)}"


def test_a_board_may_put_a_reading_in_other_words_and_it_comes_once() -> None:
    run = subscribed()
    board = Board(run)
    board.samples(1, done=False)
    board.sends(1, None)
    board.releases(1)
    board.gets(1, payload=worded(1, None))
    assert run.ends() == []
    board.gets(1)
    assert run.ends() == ["subscriber-1 got a message too often at QoS 2: sensors/uno-1/adc0 1"]


@pytest.mark.parametrize("excused", [False, True])
def test_publication_sent_in_two_sessions_may_come_twice(excused: bool) -> None:
    run = subscribed()
    board = Board(run)
    board.samples(1, done=False)
    if excused:
        run.add("wire", "connack", line="uno-1", session_present=False, reason=0)
    board.sends(1)
    board.releases(1)
    board.gets(1, 1)
    assert (run.ends() == []) is excused


@pytest.mark.mqtt("MQTT-4.6.0-6")
def test_messages_of_a_publisher_keep_their_order() -> None:
    run = subscribed()
    run.publishes(1, 2, 3)
    run.gets(1, 3, 2)
    assert run.ends() == [
        "subscriber-1 got messages in another order than they were published: sensors/c/data 2"
    ]
    run = subscribed()
    run.publishes(1, 2)
    run.board("again", 1)  # it was refused, and came later
    run.gets(2, 1)
    assert run.ends() == []


def test_message_outside_the_filter() -> None:
    run = subscribed(pattern="sensors/a/#")
    run.publishes(1, client="a")
    run.publishes(2, client="b")
    run.gets(1, client="a")
    assert run.ends() == []
    run.gets(2, client="b")
    assert run.ends() == [
        "subscriber-1 got a message that its filter sensors/a/# does not match: sensors/b/data"
    ]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"payload": "bb"}, "got another payload"),
        ({"qos": 1}, "got at QoS 1 a message of QoS 2"),
        ({"sequence": 7}, "got an unpublished message"),
    ],
)
def test_message_other_than_published(other: dict[str, Any], reason: str) -> None:
    run = subscribed()
    run.publishes(1)
    run.gets(1, **other)
    assert any(reason in one for one in run.ends())


def test_a_session_that_should_have_lived_is_lost() -> None:
    run = subscribed()
    run.publishes(1)
    run.gets(1)
    run.subscribes(present=False)
    assert run.ends() == ["subscriber-1 has lost its session: 1 messages had arrived"]
    unconfirmed = Run()
    unconfirmed.says("connected", session_present=False)
    unconfirmed.says("subscribing")
    unconfirmed.subscribes(present=False)
    assert unconfirmed.ends() == []
    clean = subscribed(clean=True)
    clean.subscribes(present=False)
    assert clean.ends() == []
    clean.subscribes(present=True)
    assert "found a session that it had ended" in clean.ends()[0]


def test_delivery_before_a_clean_session_subscribed() -> None:
    run = subscribed(clean=True)
    run.publishes(1)
    run.subscribes()
    run.gets(1)
    assert run.ends() == [
        "subscriber-1 got a message that was acknowledged before the subscription: sensors/c/data 1"
    ]


def test_a_message_of_a_client_keeps_its_identity() -> None:
    run = subscribed(0)
    run.publishes(1)
    run.gets(1, sequence=None)
    assert run.ends() == [
        "subscriber-1 got a client's message without its identity: sensors/c/data"
    ]


class Share(Run):
    """Two subscribers of one shared subscription. at: the subscriber that acts next."""

    def __init__(self, qos: int = 2) -> None:
        super().__init__(qos, pattern="$share/pair/sensors/#")
        self.events[0].data["bench"]["subscriber"][0]["count"] = 2
        for self.at in (2, 1):
            self.subscribes()

    def says(self, event: str, **data: Any) -> None:
        self.add("subscriber", event, subscriber=f"subscriber-{self.at}", **data)

    def ends(self) -> list[str]:
        for self.at in (1, 2):
            self.says("complete")
        return wrong(self.events)


def shares(*first: int, second: tuple[int, ...] = (), qos: int = 2) -> Share:
    run = Share(qos)
    run.publishes(1, 2, 3, 4)
    run.gets(*first)
    run.at = 2
    run.gets(*second)
    return run


@pytest.mark.mqtt("MQTT-4.8.2-4", "MQTT-4.8.2-5")
def test_a_share_gives_each_message_to_one_of_its_subscribers() -> None:
    assert shares(1, 3, second=(2, 4)).ends() == []
    assert shares(1, 2, 3, 4).ends() == []
    assert shares(1, 4, second=(3, 2)).ends() == []  # 2 had been given to the first one
    assert doubts(shares(1, 2, 3, 4).events) == [
        f"not all events were recorded: subscriber-{number}" for number in (1, 2)
    ]


@pytest.mark.mqtt("MQTT-4.8.2-5")
def test_share_that_gives_a_message_to_no_member_or_to_two() -> None:
    name = "the share pair of sensors/#"
    lost = f"{name} delivered a message to no subscriber: sensors/c/data 3"
    assert shares(1, second=(2, 4)).ends() == [lost]
    doubled = shares(1, 2, 3, 4, second=(2, 4))
    assert doubled.ends() == [
        f"{name} delivered a message to 2 subscribers: sensors/c/data 2, and 1 more"
    ]


@pytest.mark.mqtt("MQTT-4.8.2-6")
@pytest.mark.parametrize("qos", [0, 1])
def test_share_gives_to_two_below_qos_2_only_if_a_connection_ends(qos: int) -> None:
    doubled = ["the share pair of sensors/# delivered a message to 2 subscribers: sensors/c/data 2"]
    assert shares(1, 2, 3, 4, second=(2,), qos=qos).ends() == doubled
    cut = shares(1, 2, 3, 4, qos=qos)
    cut.at = 1
    cut.says("broken", why="")
    cut.at = 2
    cut.gets(2)
    assert cut.ends() == ([] if qos else doubled)  # at QoS 1, its PUBACK may not have arrived
    late = shares(1, 2, 3, 4, qos=qos)
    late.at = 1
    late.events.append(Event(2_000_000_000, "subscriber", "broken", {"subscriber": "subscriber-1"}))
    late.at = 2
    late.gets(2)
    assert late.ends() == doubled
    again = shares(1, 2, 3, 4, second=(2,), qos=qos)
    again.board("again", 2)
    assert again.ends() == []


def test_message_outside_the_share() -> None:
    run = shares(1, 2, 3, 4)
    run.gets(5, topic="other/c/data")
    assert (
        "subscriber-2 got a message that its filter sensors/# does not match: other/c/data"
        in run.ends()
    )


SECOND = 1_000_000_000


def retaining(stays: int, *got: tuple[int, bool]) -> list[str]:
    """Return the mistakes of a new subscription for a client's retained messages. stays: seconds
    from SUBSCRIBE to the end of the connection. got: sequence and RETAIN of each message."""
    run = Run(qos=1)
    run.events[0].data["bench"]["client"] = [{"retain": True}]
    run.publishes(1, 2, client="client-1")
    run.subscribes()
    for sequence, retain in got:
        run.gets(sequence, client="client-1", retain=retain)
    run.events.append(Event(stays * SECOND, "subscriber", "left", {"subscriber": "subscriber-1"}))
    return run.ends()


def test_new_subscription_gets_the_newest_retained_message() -> None:
    assert retaining(3, (2, True)) == []
    assert retaining(1) == []
    missing = "subscriber-1 did not get a retained message: sensors/client-1/data 2"
    assert retaining(3) == [missing]
    old = "subscriber-1 got with RETAIN a message that was not retained: sensors/client-1/data 1"
    assert retaining(3, (1, True)) == [old]
    late = "subscriber-1 got a message that was acknowledged before the subscription"
    assert retaining(1, (2, False)) == [f"{late}: sensors/client-1/data 2"]


@pytest.mark.parametrize(
    ("away", "present", "wrongly"),
    [
        (2, True, None),
        (2, False, "has lost its session before it expired: after 2.0 s"),
        (4, True, None),
        (4, False, None),
        (5, False, None),
        (5, True, "found a session that had expired: after 5.0 s"),
    ],
)
def test_a_session_lives_for_its_expiry_interval(
    away: int, present: bool, wrongly: str | None
) -> None:
    run = Run(qos=1)
    run.events[0].data["bench"]["subscriber"][0]["expiry_s"] = 3
    run.subscribes()
    left = len(run.events)
    run.says("left")
    said = {"subscriber": "subscriber-1", "session_present": present}
    refused = {"subscriber": "subscriber-1", "why": "[Errno 111] Connection refused"}
    for t in range(left + SECOND, left + away * SECOND, SECOND):
        run.events.append(Event(t, "subscriber", "broken", refused))
    run.events.append(Event(left + away * SECOND, "subscriber", "connected", said))
    assert run.ends() == ([f"subscriber-1 {wrongly}"] if wrongly else [])
