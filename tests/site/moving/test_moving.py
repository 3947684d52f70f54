"""A session moves from one gateway to another: its bytes, and its unchanged content."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.peer import DeviceIdentity
from gateway.config import QueueSection
from gateway.mqtt.message_ids import unpack_ids, unpack_set
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.site.moving.neighbours import site_of
from gateway.site.rules.holder import ALL_CLIENTS, Held
from gateway.site.wiring.sessions import SessionHolder
from gateway.store import move_records
from gateway.store.move_out import StoredParts
from gateway.store.move_records import record
from gateway.store.move_rows import key_of
from gateway.store.recovery import recover
from tests.broker.harness import FOREVER, Client, World

NOBODY: frozenset[str] = frozenset()


class Site:
    """Two gateways, between which the test moves sessions."""

    def __init__(self, **limits: int) -> None:
        self.worlds = {"a": World(moves=True, **limits), "b": World(moves=True, **limits)}
        self.holders = {name: self.holder(name, {*self.worlds} - {name}) for name in self.worlds}

    def holder(self, name: str, others: Iterable[str]) -> SessionHolder:
        world = self.worlds[name]
        return SessionHolder(
            world.broker,
            world.engine.begin,
            lambda key: StoredParts(world.database, key, lambda: int(world.broker.now * 1000)),
            others,
        )

    def power_cut(self, name: str, *gone: str) -> None:
        """Cut the power of a member, and start it again. gone: members that have left the site
        meanwhile.
        """
        self.worlds[name].power_cut()
        self.holders[name] = self.holder(name, {*self.worlds} - {name, *gone})

    def give(self, source: str, target: str, key: str = "c") -> Sequence[bytes] | None:
        answers: list[Sequence[bytes] | None] = []
        self.holders[source].give(key, target, answers.append)
        self.worlds[source].turn()
        (parts,) = answers
        return None if parts is None else [parts[index] for index in range(len(parts))]

    def take(
        self, target: str, parts: Sequence[bytes], key: str = "c", epoch: int = 1
    ) -> str | None:
        answers: list[str | None] = []
        source = next(name for name in self.worlds if name != target)
        self.holders[target].take(key, epoch, frozenset({source}), False, parts, answers.append)
        self.worlds[target].turn()
        (wrong,) = answers
        return wrong

    def move(self, source: str, target: str, key: str = "c", epoch: int = 1) -> None:
        parts = self.give(source, target, key)
        assert parts is not None
        assert self.take(target, parts, key, epoch) is None
        self.holders[source].end(key, epoch, lambda: None)
        self.worlds[source].turn()
        assert self.holders[source].record(key) is None


def picture(world: World, client: str) -> dict[str, Any]:
    """Return the stored rows of a session, with relative times and without internal numbers."""
    now = int(world.broker.now * 1000)
    ((number, *session),) = world.rows(
        f"SELECT id, expiry, {now} - left, incarnation, user FROM session WHERE client = '{client}'"
    )
    flow = world.rows(f"SELECT received, next, sent, released FROM flow WHERE session = {number}")
    return {
        "session": session,
        "flow": [
            (sorted(unpack_set(received)), following, sorted(unpack_ids(sent)), released)
            for received, following, sent, released in flow or [(b"", 1, b"", b"")]
        ],
        "subscriptions": world.rows(
            "SELECT filter, options, identifier FROM subscription"
            f" WHERE session = {number} ORDER BY 1"
        ),
        "queue": world.rows(
            f"SELECT first, queue.count, skip, flags, extra, share, size, topic, retain,"
            f" message.count, properties, expires - {now}, body"
            f" FROM queue JOIN message ON message.id = message WHERE session = {number}"
            " ORDER BY first"
        ),
        "will": world.rows(
            f"SELECT due - {now}, delay, topic, qos, retain, properties, expiry, payload FROM will"
            f" WHERE client = '{client}'"
        ),
        "waits": world.broker.sessions[client].send_flow.messages,
        "bytes": world.broker.sessions[client].send_flow.size,
    }


def test_a_session_comes_as_it_was_and_is_gone_where_it_was() -> None:
    site = Site()
    a, b = site.worlds.values()
    a.sleep(1000)
    client = a.durable(
        "c",
        will=Will("will", b"gone", 1, True, {PropertyId.WILL_DELAY_INTERVAL: 500}),
    )
    client.subscribe(
        Subscription("t/#", 2), Subscription("$share/g/s", 1), subscription_identifier=[7]
    )
    publisher = a.accepted("p")
    client.publish("x", "held", 2, 9)
    for number in range(5):
        publisher.publish("t/0123", f"m{number}", 2)
    publisher.publish("s", "shared", 1, 99, properties={PropertyId.MESSAGE_EXPIRY_INTERVAL: 60})
    first, second = [packet for packet in client.take_all(Publish) if packet.qos == 2][:2]
    client.send(Pubrec(first.packet_id))
    client.send(Pubrec(second.packet_id), Pubcomp(second.packet_id))
    client.drop()
    publisher.publish("t/2", "while away", 1, 98)
    a.commit()
    before = picture(a, "c")
    site.move("a", "b")
    assert picture(b, "c") == before
    assert "c" not in a.broker.sessions
    assert a.broker.queued == 0
    for table in ("session", "subscription", "flow", "queue", "will", "given", "given_part"):
        assert a.rows(f"SELECT * FROM {table}") == [], table
    a.commit()
    assert a.rows("SELECT * FROM message") == [], "its messages are deleted, too"

    again = b.connect("c", clean=False)
    assert again.take(Connack).session_present
    (shared,) = [packet for packet in again.take_all(Publish) if packet.topic == "s"]
    assert shared.payload == b"shared"


def test_flows_go_on_at_the_other_gateway_under_the_same_identifiers() -> None:
    site = Site()
    a, b = site.worlds.values()
    client = a.durable("c")
    client.subscribe("t")
    publisher = a.accepted("p")
    for number in range(4):
        publisher.publish("t", str(number), 2)
    one, two, three, four = client.take_all(Publish)
    client.send(Pubrec(one.packet_id))
    client.send(Pubrec(two.packet_id), Pubcomp(two.packet_id))
    client.publish("x", "mine", 2, 77)
    site.move("a", "b")
    assert client.closed
    assert client.take_all(Disconnect)[0].reason == ReasonCode.SESSION_TAKEN_OVER

    client = b.connect("c", clean=False, properties={PropertyId.SESSION_EXPIRY_INTERVAL: 99})
    assert client.take(Connack).session_present
    assert client.take_all(Pubrel) == [Pubrel(one.packet_id)]
    again = client.take_all(Publish)
    assert [(item.packet_id, item.payload, item.dup) for item in again] == [
        (three.packet_id, b"2", True),
        (four.packet_id, b"3", True),
    ], "what was sent comes again, with DUP [MQTT-3.3.1-1], in order [MQTT-4.6.0-1]"
    client.publish("x", "mine", 2, 77, dup=True)
    assert client.take(Pubrec).packet_id == 77
    assert b.broker.statistics.repeated == 1, "it was taken where it was published first"
    client.send(Pubrel(77))
    assert client.take(Pubcomp) == Pubcomp(77)


def test_a_long_queue_comes_in_parts_in_order_and_expiry_goes_on() -> None:
    site = Site(inflight=10)
    a, b = site.worlds.values()
    a.sleep(500)
    a.absent("c", "other")
    publisher = a.accepted("p")
    for number in range(700):
        publisher.publish("t", b"%04d" % number + bytes(1000), 1)
    publisher.publish("t", "soon", 1, properties={PropertyId.MESSAGE_EXPIRY_INTERVAL: 100})
    a.sleep(40)
    parts = site.give("a", "b")
    assert parts is not None
    assert len(parts) == 4
    b.sleep(7000)
    assert site.take("b", parts) is None
    assert b.broker.sessions["c"].send_flow.messages == 701
    a.commit()
    assert a.rows("SELECT count(*) FROM message") == [(701,)], "the other session has them still"
    client = b.connect("c", clean=False, answers=True)
    payloads = client.payloads
    assert [payload[:4] for payload in payloads] == [*(b"%04d" % n for n in range(700)), b"soon"]
    left = [item for item in client.received if isinstance(item, Publish)][-1].properties
    assert left == {PropertyId.MESSAGE_EXPIRY_INTERVAL: 60}
    assert b.broker.queued == 0
    client.drop()
    b.sleep(1)
    assert b.rows("SELECT * FROM queue") == []
    assert b.rows("SELECT * FROM message") == []
    later = a.connect("other", clean=False, answers=True)
    assert len(later.payloads) == 701


@pytest.mark.parametrize("cut", ["before give", "after give", "after take", "after end"])
def test_a_power_cut_between_two_commits_leaves_the_session_in_one_place(cut: str) -> None:
    site = Site()
    a, b = site.worlds.values()
    a.absent("c")
    a.accepted("p").publish("t", "m", 1)
    a.commit()

    def everywhere(when: str) -> None:
        if cut == when:
            site.power_cut("a")
            site.power_cut("b")

    if cut == "before give":
        a.slow_disk = True
        site.holders["a"].give("c", "b", lambda parts: pytest.fail("it is not on disk"))
        a.turn()
        everywhere(cut)
        a.slow_disk = False
        assert site.holders["a"].record("c") == Held(0)
    parts = site.give("a", "b")
    everywhere("after give")
    assert site.holders["a"].record("c") == Held(0, given_to="b")
    again = site.give("a", "b")
    assert parts is not None
    assert again is not None
    assert again == parts, "asked again, the same parts"
    assert site.take("b", parts) is None
    everywhere("after take")
    assert site.holders["b"].record("c") == Held(1, older=frozenset({"a"}))
    site.holders["a"].end("c", 1, lambda: None)
    a.turn()
    everywhere("after end")
    assert site.holders["a"].record("c") is None
    assert b.connect("c", clean=False).payloads == [b"m"]


def test_exported_session_that_was_not_fetched_is_restored() -> None:
    site = Site()
    a = site.worlds["a"]
    a.absent("c")
    a.accepted("p").publish("t", "m", 1)
    a.commit()
    before = picture(a, "c")
    site.give("a", "b")
    stood: list[bool] = []
    site.holders["a"].stand("c", 5, frozenset({"b"}), lambda: stood.append(True))
    a.turn()
    assert stood == [True]
    assert picture(a, "c") == before
    assert site.holders["a"].record("c") == Held(5, older=frozenset({"b"}))
    assert a.rows("SELECT * FROM given_part") == []


def _cut(parts: list[bytes]) -> list[bytes]:
    return [*parts[:-1], parts[-1][:-5]]


def _of_another_user(parts: list[bytes]) -> list[bytes]:
    return [parts[0].replace(b"T\0\0\0\1c", b"T\0\0\0\1d", 1)]


def _wrong_topic(parts: list[bytes]) -> list[bytes]:
    return [parts[0].replace(b"topic", b"top#c")]


def _replicated(parts: list[bytes]) -> list[bytes]:
    return [parts[0], parts[0][18:]]


def _other_version(parts: list[bytes]) -> list[bytes]:
    return [parts[0][:4] + b"\0\x63" + parts[0][6:]]


@pytest.mark.parametrize(
    "spoil",
    [_cut, _of_another_user, _wrong_topic, _replicated, _other_version, lambda parts: []],
)
def test_parts_that_are_wrong_leave_nothing(
    spoil: Callable[[list[bytes]], list[bytes]],
) -> None:
    site = Site()
    a, b = site.worlds.values()
    a.absent("c", topic="topic")
    a.accepted("p").publish("topic", "m", 1)
    parts = site.give("a", "b")
    assert parts is not None
    assert site.take("b", spoil(list(parts)))
    for table in ("session", "subscription", "flow", "queue", "message", "place"):
        assert b.rows(f"SELECT * FROM {table}") == []
    assert b.accepted("other"), "commits go on"
    assert site.take("b", parts) is None, "and the right parts may still come"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (record(move_records.END, [None] * 500_000), "has more than 0 values"),
        (record(99, [None]), "kind 99 is not known"),
        (record(move_records.MOVE, (1, 1, "a", 1)) * 2, "two MOVE records"),
        (record(move_records.MOVE, (0, 1, "a", 1)), "value 0 of a record of kind 9"),
        (record(move_records.MOVE, (1, 0, "a", 1)), "value 1 of a record of kind 9"),
        (
            record(move_records.QUEUE, (9, 1 << 24, 1, 0, 2, b"", ""))
            + record(move_records.QUEUE, (9 + (1 << 24), 1 << 24, 1, 0, 2, b"", "")),
            "has more messages than allowed",
        ),
    ],
)
def test_size_of_a_moved_session_is_bounded(more: bytes, why: str) -> None:
    """A few bytes could otherwise expand to a very large session."""
    site = Site()
    site.worlds["a"].absent("c")
    parts = site.give("a", "b")
    assert parts is not None
    end = record(move_records.END, ())
    empty = record(move_records.MESSAGE, ("t", 0, 1 << 24, b"", None, b""))
    (body,) = (part.removesuffix(end)[move_records._HEAD.size :] for part in parts)
    wrong = site.take("b", [move_records.head(0, 1, body) + body + empty + more + end])
    assert wrong is not None
    assert why in wrong


def test_members_that_are_in_the_site_no_longer_are_forgotten_at_the_start() -> None:
    site = Site()
    a = site.worlds["a"]
    a.absent("given")
    a.absent("here")
    site.give("a", "b", "given")
    site.holders["a"].stand("over", 3, frozenset({"b"}), lambda: None)
    site.holders["a"].stand("here", 3, frozenset({"b"}), lambda: None)
    a.turn()
    site.power_cut("a", "b")
    assert site.holders["a"].record("over") is None
    assert site.holders["a"].record("here") == Held(3, suspect=True)
    assert site.holders["a"].record("given") == Held(0, given_to="b", suspect=True)
    a.commit()
    assert a.rows("SELECT key, epoch, doubtful, older FROM place ORDER BY key") == [
        ("given", 0, 1, "[]"),
        ("here", 3, 1, "[]"),
    ]


def test_sessions_known_to_a_departed_member_are_suspect_once() -> None:
    """If a member leaves, the other members forget its decisions. One of them may have been that a
    session here is over, so each session here is suspect once.
    """
    site = Site()
    a = site.worlds["a"]
    a.absent("c")
    a.turn()
    for others in ({"b", "d"}, {"d"}):
        a.power_cut()
        site.holders["a"] = site.holder("a", others)
        a.turn()
    assert site.holders["a"].record("c") == Held(0, suspect=True)
    assert list(site.holders["a"].older_at("d")) == [ALL_CLIENTS], "its sessions are, too"
    site.holders["a"].trust("c")
    site.holders["a"].confirmed(ALL_CLIENTS, "d")
    a.commit()
    a.power_cut()
    site.holders["a"] = site.holder("a", {"d", "e"})
    assert site.holders["a"].record("c") == Held(0), "a new one has decided nothing"
    assert not list(site.holders["a"].older_at("d"))
    assert list(site.holders["a"].older_at("e")) == [ALL_CLIENTS], "but what it has may be older"


def test_a_new_store_under_a_name_that_was_in_the_site_before_is_in_doubt_once() -> None:
    a = World(moves=True)
    a.absent("c")
    a.commit()
    for expected in (Held(0, suspect=True), Held(0)):
        a.power_cut()
        holder = SessionHolder(a.broker, a.engine.begin, lambda _: (), {"b"}, returned=True)
        assert holder.record("c") == expected
        assert list(holder.older_at("b")) == [ALL_CLIENTS], "b has not heard of it yet"
        holder.trust("c")
        a.broker.promise()
        a.commit()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_byte_that_is_changed_makes_a_store_that_cannot_start(data: st.DataObject) -> None:
    site = _filled()
    parts = site.give("a", "b")
    assert parts is not None
    body = bytearray(parts[0])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    site.take("b", [bytes(body)])
    site.power_cut("b")
    site.worlds["b"].connect("c", clean=False, answers=True)
    site.worlds["b"].commit()


@pytest.mark.parametrize("move", [True, False])
def test_members_of_a_version_before_journeys_know_sessions_without_one(move: bool) -> None:
    site = Site()
    a = site.worlds["a"]
    site_of(a.broker).session_moves.me = "a" if move else ""
    a.absent("c")
    parts = site.give("a", "b")
    assert parts is not None
    _, version, *_ = move_records._HEAD.unpack_from(parts[0])
    assert version == (move_records.VERSION if move else move_records.OLDEST)
    assert site.take("b", parts) is None


def test_forwarder_follows_a_new_configuration() -> None:
    site = Site()
    a = site.worlds["a"]
    site_of(a.broker).session_moves.me = "a"
    a.absent("c")
    site.give("a", "b")
    queue = [QueueSection(clients="c", messages=3)]
    a.broker.reconfigure(a.config.model_copy(update={"queue": queue}))
    ((forwarder, _),) = site_of(a.broker).session_moves
    for number in range(5):
        a.accepted(f"p{number}").publish("t", str(number), 1, 1)
    assert forwarder.send_flow.messages == 3
    assert not forwarder.ended, "the oldest are dropped"


def _filled() -> Site:
    site = Site()
    for name, world in site.worlds.items():
        site_of(world.broker).session_moves.me = name
    a = site.worlds["a"]
    client = a.durable("c", will=Will("w", b"", 0, False, {PropertyId.WILL_DELAY_INTERVAL: 9}))
    client.subscribe("t", "$share/g/s")
    client.publish("x", "held", 2, 300)
    publisher = a.accepted("p")
    publisher.publish("t", "m", 2, properties={PropertyId.CONTENT_TYPE: "text"})
    publisher.publish("t", "n", 1)
    client.take_all(Publish)
    client.drop()
    publisher.publish("s", "m", 1)
    return site


STEPS = st.lists(
    st.sampled_from(
        ["publish 1", "publish 2", "mine", "release", "puback", "pubrec", "pubcomp", "drop", "back"]
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.sampled_from([Version.V3_1_1, Version.V5]), st.sampled_from([1, 3, 100]))
def test_every_flow_in_progress_moves_with_the_session(
    steps: list[str], version: Version, window: int
) -> None:
    """The session is exported to bytes and imported. Its content stays the same."""
    site = Site(inflight=window)
    a, b = site.worlds.values()

    def connect() -> Client:
        return (
            a.durable("c")
            if version == Version.V5
            else a.accepted("c", version=version, clean=False)
        )

    client = connect()
    client.subscribe("t")
    publisher = a.accepted("p")
    for count, step in enumerate(steps):
        flights = [item for item in client.received if isinstance(item, Publish)]
        match step.split():
            case ["publish", qos]:
                publisher.publish("t", str(count), int(qos))
            case ["mine"] if not client.closed:
                client.publish("x", str(count), 2)
            case ["release"] if not client.closed:
                for answer in client.take_all(Pubrec)[:1]:
                    client.send(Pubrel(answer.packet_id))
            case ["puback"] if not client.closed and flights and flights[0].qos == 1:
                client.received.remove(flights[0])
                client.send(Puback(flights[0].packet_id))
            case ["pubrec"] if not client.closed and flights and flights[0].qos == 2:
                client.received.remove(flights[0])
                client.send(Pubrec(flights[0].packet_id))
            case ["pubcomp"] if not client.closed:
                for packet in client.take_all(Pubrel)[:1]:
                    client.send(Pubcomp(packet.packet_id))
            case ["drop"] if not client.closed:
                client.drop()
            case ["back"] if client.closed:
                client = connect()
    if not client.closed:
        client.drop()
    a.commit()
    site.power_cut("a")  # nothing on disk is lost, and no finished row remains
    a.commit()
    before = picture(a, "c")
    site.move("a", "b")
    assert picture(b, "c") == before
    site.power_cut("b")
    assert picture(b, "c") == before
    site.move("b", "a", epoch=2)
    assert picture(a, "c") == before


def test_the_marks_of_a_board_come_along_and_what_each_knows_is_kept() -> None:
    site = Site()
    a, b = site.worlds.values()

    def board(world: World, next_sequence: int) -> Client:
        device = DeviceIdentity("roof", 7, next_sequence, proved=True)
        return world.durable("roof", device=device)

    client = board(a, 1)
    for number in (1, 2, 5):
        client.publish("spool/x", str(number), 2, number)
    key = key_of("roof", None, 7)
    site.move("a", "b", key)
    client = board(b, 6)
    client.publish("spool/x", "5", 2, 5, dup=True)
    client.send(Pubrel(5))
    assert client.take_all(Pubcomp) == [Pubcomp(5)]
    assert b.broker.spool.rows is not None
    assert b.rows("SELECT * FROM spool") == [], "it was taken at the other gateway"
    client.publish("spool/x", "6", 2, 6)
    site.move("b", "a", key, epoch=2)
    client = board(a, 7)
    for number in (5, 6):
        client.publish("spool/x", str(number), 2, number, dup=True)
    assert a.rows("SELECT sequence FROM spool ORDER BY 1") == [(1,), (2,), (5,)]


def test_no_user_gets_the_session_of_another_one() -> None:
    assert (
        len({key_of("c", None, 0), key_of("c", "u", 0), key_of("c", "v", 0), key_of("c", None, 1)})
        == 4
    )
    site = Site()
    site.worlds["a"].absent("c")
    assert site.holders["a"].record(key_of("c", "mallory", 0)) is None
    assert site.give("a", "b", key_of("c", "mallory", 0)) is None


def test_an_identifier_is_released_where_it_is_held() -> None:
    site = Site()
    a = site.worlds["a"]
    client = a.durable("c")
    client.publish("x", "m", 2, 9)
    client.drop()
    answers: list[bool] = []
    a.slow_disk = True
    site.holders["a"].release("c", 9, answers.append)
    site.holders["a"].release("c", 8, answers.append)
    a.turn()
    assert answers == [False], "what it says of the other is not on disk yet"
    a.commit()
    assert answers == [False, True]
    a.slow_disk = False
    a.power_cut()
    client = a.durable("c")
    client.send(Pubrel(9))
    assert client.take(Pubcomp).reason == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND


def test_a_session_that_ends_with_its_connection_does_not_leave() -> None:
    site = Site()
    client = site.worlds["a"].accepted("c")
    assert site.holders["a"].record("c") == Held(0)
    assert site.give("a", "b") is None
    assert client.closed
    assert site.holders["a"].record("c") is None


def test_a_session_that_expires_on_its_way_is_gone() -> None:
    site = Site()
    a = site.worlds["a"]
    a.accepted("c", clean=False, properties={PropertyId.SESSION_EXPIRY_INTERVAL: 60}).drop()
    site.give("a", "b")
    assert site.holders["a"].record("c") == Held(0, given_to="b")
    a.sleep(61)
    assert site.holders["a"].record("c") is None
    a.commit()
    assert a.rows("SELECT * FROM given_part") == []


def test_the_sessions_of_a_restored_store_are_doubtful_until_it_is_settled() -> None:
    site = Site()
    a = site.worlds["a"]
    a.absent("c")
    recover(a.database, None, 10, forget=True)
    site.power_cut("a")
    a.turn()
    assert site.holders["a"].record("c") == Held(0, suspect=True, copied=True)
    site.power_cut("a")
    assert site.holders["a"].record("c") == Held(0, suspect=True, copied=True)
    site.holders["a"].trust("c")
    a.commit()
    site.power_cut("a")
    assert site.holders["a"].record("c") == Held(0)


def test_restored_store_notifies_each_member_after_any_fault() -> None:
    site = Site()
    recover(site.worlds["a"].database, None, 10, forget=True)
    site.power_cut("a")
    site.worlds["a"].turn()
    for _ in range(2):
        assert list(site.holders["a"].older_at("b")) == [ALL_CLIENTS]
        site.power_cut("a")
    site.holders["a"].confirmed(ALL_CLIENTS, "b")
    site.worlds["a"].commit()
    site.power_cut("a")
    assert site.holders["a"].record(ALL_CLIENTS) is None


def test_restore_of_a_member_makes_local_and_exported_sessions_suspect() -> None:
    site = Site()
    a = site.worlds["a"]
    a.absent("c")
    a.absent("d")
    site.give("a", "b")
    done: list[bool] = []
    site.holders["a"].mark_all_suspect(lambda: done.append(True))
    assert not done, "before the commit"
    a.turn()
    assert done
    site.power_cut("a")
    assert site.holders["a"].record("c") == Held(0, given_to="b", suspect=True)
    assert site.holders["a"].record("d") == Held(0, suspect=True)


def test_a_session_that_has_moved_counts_for_its_origin_no_more() -> None:
    site = Site()
    a = site.worlds["a"]
    for round_trip in range(3):
        client = a.open(address="10.0.0.1:1")
        will = Will("will", b"x", properties={PropertyId.WILL_DELAY_INTERVAL: 500})
        name = f"c{round_trip}"
        client.send(Connect(name, Version.V5, False, will=will, properties=FOREVER))
        assert client.take(Connack).reason == ReasonCode.SUCCESS
        client.subscribe("t/#")
        client.drop()
        origin = a.broker.sessions[f"c{round_trip}"].origin
        assert origin is not None
        assert origin.sessions == 1
        site.move("a", "b", f"c{round_trip}")
        assert origin.sessions == 0
    a.durable("another").disconnect()  # its commit
    a.commit()
    assert a.rows("SELECT * FROM origin") == []
    assert a.broker.will_use._of == a.broker.router.use._of == a.broker.attached._of == {}
