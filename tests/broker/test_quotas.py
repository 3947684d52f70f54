"""Quotas of users: all sessions of one user share a bound, and other users lose nothing."""

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.access.rules import Policy
from gateway.config import ConfigError, QuotaSection, parse
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World
from tests.broker.test_access import Named

NAMED = Policy(Named(), reads_reasons=True)
ROW = 64 + len("spool/t")


def reason(world: World, client_id: str, user: str | None = "alice", **more: object) -> int:
    client = world.connect(client_id, policy=NAMED, username=user, **more)
    return client.take(Connack).reason


def stored(world: World, client: Client, size: int) -> int:
    client.publish("spool/t", bytes(size), qos=1)
    return client.take(Puback).reason


def test_the_sessions_of_a_user_have_a_bound() -> None:
    world = World(quota=[QuotaSection(users=["al*"], sessions=2)])
    kept = {"clean": False, "properties": FOREVER}
    assert [reason(world, name, **kept) for name in "abc"] == [0, 0, R.QUOTA_EXCEEDED]
    assert reason(world, "d", "bob") == reason(world, "a", **kept) == 0
    world.power_cut()
    assert reason(world, "c") == R.QUOTA_EXCEEDED
    assert reason(world, "b", clean=True) == 0
    world.sleep(1)
    next(reversed(world.clients.values())).drop()
    assert reason(world, "c") == 0
    assert world.broker.statistics.refusals == {("connect", R.QUOTA_EXCEEDED): 1}


def test_a_user_who_ends_an_anonymous_session_has_one() -> None:
    world = World(quota=[QuotaSection(users=["alice"], sessions=1)])
    assert reason(world, "a", None, clean=False, properties=FOREVER) == 0
    assert reason(world, "a", clean=False, properties=FOREVER) == 0
    assert reason(world, "b") == R.QUOTA_EXCEEDED
    world.end_session("a")
    assert reason(world, "b") == 0


def test_the_connections_of_a_user_have_a_bound() -> None:
    world = World(quota=[QuotaSection(users=[""], connections=2)])
    assert [reason(world, name, None) for name in "abc"] == [0, 0, R.QUOTA_EXCEEDED]
    assert reason(world, "a", None) == 0, (
        "a client that takes over its own session is one connection"
    )
    world.accepted("pump-3", device=DeviceIdentity("pump-3", 1, 1))
    next(iter(world.clients.values())).drop()
    assert reason(world, "c", None) == 0


@pytest.mark.parametrize("key", ["messages_per_s", "bytes_per_s"])
def test_fast_publisher_is_read_more_slowly_and_loses_nothing(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(quota=[QuotaSection(users=["alice"], **{key: 10})])
    watching = world.accepted(answers=True)
    watching.subscribe("t")
    fast = world.accepted("fast", policy=NAMED, username="alice", keep_alive=10)
    other = world.accepted("other", policy=NAMED, username="bob")
    packets = [Publish("t", b"x", 1, number) for number in range(1, 41)]
    for packet in packets:
        fast.bring(encode(packet, Version.V5))
    world.turn()
    assert fast.paused
    assert 10 <= len(watching.payloads) <= 12
    other.publish("t", "x", qos=1)
    other.take(Puback)
    for _ in range(40):
        if len(watching.payloads) == 41:
            break
        world.sleep(1)
        assert not fast.closed
    assert len(fast.take_all(Puback)) == 40
    assert len(watching.payloads) == 41
    assert world.broker.statistics.quota_pauses >= 3
    assert caplog.text.count("reads from the client more slowly") == 1


def test_properties_count_as_bytes_that_are_published() -> None:
    world = World(quota=[QuotaSection(bytes_per_s=1000)])
    client = world.accepted("c")
    properties = {P.USER_PROPERTY: [("k", "x" * 1000)]}
    for number in range(1, 11):
        client.bring(encode(Publish("t", b"", 1, number, properties=properties), Version.V5))
    world.turn()
    first = len(client.take_all(Puback))
    assert first < 5
    for _ in range(10):
        world.sleep(1)
    assert not client.closed
    assert first + len(client.take_all(Puback)) == 10


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topics", [1, 3], ids=["a run", "no runs"])
@pytest.mark.parametrize("key", ["messages_per_s", "bytes_per_s"])
def test_rate_holds_for_messages_that_come_in_one_piece(key: str, topics: int, qos: int) -> None:
    """At each moment, the broker has accepted no more messages than the rate allows until one
    second after that moment.
    """
    world = World(quota=[QuotaSection(**{key: 40})])
    watching = watched(world)
    fast, begin = world.accepted("fast"), world.broker.now
    fast.send_bytes(burst(qos, 200, topics))
    wanted = [b"%d" % number for number in range(200)]
    due = 200 if key == "messages_per_s" else sum(len(payload) for payload in wanted)
    for _ in range(400):
        passed = watching.payloads
        count = len(passed) if key == "messages_per_s" else sum(len(payload) for payload in passed)
        since = world.broker.now - begin
        assert min(due, 40 * (since - 0.2)) <= count <= 40 * (since + 1.2) + 1
        if count == due:
            break
        world.sleep(0.1)
    assert watching.payloads == wanted


def burst(qos: int, count: int = 100, topics: int = 1, first: int = 0) -> bytes:
    return b"".join(
        encode(
            Publish(f"t/{number % topics}", b"%d" % number, qos, number + 1 if qos else 0),
            Version.V5,
        )
        for number in range(first, first + count)
    )


def watched(world: World) -> Client:
    watching = world.accepted(answers=True)
    watching.subscribe("t/#")
    return watching


PINGREQ = encode(Pingreq(), Version.V5)
NUMBERS = [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topics", [1, 3], ids=["a run", "no runs"])
@pytest.mark.parametrize("split", [1, 7, 10_000])
def test_fast_publisher_is_paced_and_its_pings_are_answered(
    qos: int, topics: int, split: int
) -> None:
    world = World(quota=[QuotaSection(messages_per_s=5)])
    watching = watched(world)
    fast = world.accepted("fast", keep_alive=2)
    data = burst(qos, 20, topics) + burst(qos, 79, topics, 20)
    for at in range(0, len(data), split):
        fast._link.receive(data[at : at + split])
    fast._link.receive(burst(qos, 1, topics, 99) + PINGREQ)
    for _ in range(30):
        fast._link.receive(PINGREQ)
        world.turn()
        assert fast.take_all(Pingresp)
        world.sleep(1)
        assert not fast.closed
    for _ in range(100):
        if len(watching.payloads) == 100:
            break
        fast.send(Pingreq())
        world.sleep(1)
    assert watching.payloads == NUMBERS, "nothing is lost, and all in order"
    assert world.broker.connections, "it stays"


def test_a_ping_is_answered_once() -> None:
    world = World(quota=[QuotaSection(messages_per_s=10)])
    fast = world.accepted("fast")
    fast.send_bytes(burst(1, 30, 3) + PINGREQ + burst(1, 30, 3, 30) + PINGREQ)
    for _ in range(20):
        world.sleep(1)
    assert len(fast.take_all(Pingresp)) == 2
    assert len(fast.take_all(Puback)) == 60
    fast.send(Pingreq())
    assert len(fast.take_all(Pingresp)) == 1


def test_a_paced_client_is_read_now_and_then() -> None:
    """A paced client is read only now and then, so its packets wait unread in the link
    meanwhile.
    """
    world = World(quota=[QuotaSection(messages_per_s=1)])
    fast = world.accepted("fast")
    fast.send_bytes(burst(1, 60))
    fast.send_bytes(burst(1, 1, first=60))
    assert fast.paused
    fast.send(Pingreq())
    for _ in range(3):
        world.sleep(1)
    assert fast.take_all(Pingresp)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("goodbye", [True, False])
def test_packets_of_a_paced_client_are_taken_after_its_end(qos: int, goodbye: bool) -> None:
    world = World(quota=[QuotaSection(messages_per_s=10)])
    watching = watched(world)
    fast = world.accepted("fast", keep_alive=2)
    fast._link.receive(burst(qos, 100, 3))
    if goodbye:
        fast._link.receive(encode(Disconnect(), Version.V5))
    fast.drop()
    for _ in range(15):
        world.sleep(1)
    assert watching.payloads == NUMBERS
    assert len(world.broker.connections) == 1, "it is gone"
    assert world.broker.partial == 0


def test_the_bytes_that_wait_for_a_rate_have_a_bound() -> None:
    world = World(quota=[QuotaSection(messages_per_s=1)])
    fast = world.accepted("fast")
    fast.send_bytes(burst(0, 60))
    for _ in range(50):
        fast.bring(burst(0, 10, 3) * 1000)
        world.sleep(1)
    assert 1_000_000 < world.broker.partial < 1_200_000
    assert fast.paused


def test_a_user_s_share_of_the_spool_has_a_bound_and_comes_back_when_rows_have_landed() -> None:
    world = World(spool_bytes=1000, quota=[QuotaSection(users=["alice"], spool_share=0.4)])
    mine = world.accepted("a", policy=NAMED, username="alice")
    other = world.accepted("b", policy=NAMED, username="bob")
    assert [stored(world, mine, 100), stored(world, mine, 100)] == [0, 0]
    assert stored(world, mine, 100) == R.QUOTA_EXCEEDED
    assert [stored(world, other, 100), stored(world, other, 100)] == [0, 0]
    world.broker.spool.landed(10)
    assert stored(world, mine, 100) == 0
    gone = world.connect("c", policy=NAMED, username="alice", will=Will("spool/t", bytes(300)))
    gone.drop()
    assert "c" in world.broker.wills, "a will counts for its user"


def test_spool_share_of_a_user_outlives_a_restart() -> None:
    world = World(spool_bytes=1000, quota=[QuotaSection(users=["alice"], spool_share=0.4)])
    alice = {"policy": NAMED, "username": "alice", "clean": False, "properties": FOREVER}
    mine, other = world.accepted("a", **alice), world.durable("b")
    assert [stored(world, mine, 100), stored(world, other, 100), stored(world, mine, 100)] == [
        0
    ] * 3
    world.power_cut()
    mine = world.connect("a", **alice)
    mine.take(Connack)
    assert stored(world, mine, 100) == R.QUOTA_EXCEEDED
    world.broker.spool.landed(10)
    assert stored(world, mine, 100) == 0


def test_the_last_part_of_the_spool_is_for_boards() -> None:
    world = World(spool_bytes=1000, devices_share=0.5)
    client = world.accepted("c")
    board = world.accepted("pump-3", device=DeviceIdentity("pump-3", 1, 1))
    assert [stored(world, client, 500 - ROW), stored(world, client, 0)] == [0, R.QUOTA_EXCEEDED]
    assert [stored(world, board, 500 - ROW), stored(world, board, 0)] == [0, R.QUOTA_EXCEEDED]


def test_other_quotas_count_at_once() -> None:
    world = World()
    client = world.accepted("c", policy=NAMED, username="alice")
    quota = [QuotaSection(sessions=1, messages_per_s=1)]
    world.broker.reconfigure(world.config.model_copy(update={"quota": quota}))
    assert reason(world, "d") == R.QUOTA_EXCEEDED
    for number in range(1, 4):
        client.bring(encode(Publish("t", b"", 1, number), Version.V5))
    assert client.paused


def test_accounts_of_users_that_have_nothing_are_forgotten() -> None:
    world = World()
    for number in range(10):
        world.accepted("c", policy=NAMED, username=f"u{number}").drop()
    world.sleep(1)
    assert len(world.broker.accounts) == 0


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"users": ["a"]}, "quota[1]: sets no limit: give sessions"),
        ({"sessions": 0}, "quota[1].sessions = 0: input should be greater than or equal to 1"),
        ({"spool_share": 2.0}, "quota[1].spool_share = 2.0: input should be less than or equal"),
        ({"session": 1}, "quota[1].session: there is no such key. Did you mean 'sessions'?"),
    ],
)
def test_an_impossible_quota_is_explained(section: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse({"quota": [section]}, "here")
    assert text in str(raised.value)


def test_a_part_for_boards_cannot_be_all_of_the_spool() -> None:
    with pytest.raises(ConfigError, match=r"devices_share = 1\.0: input should be less than 1"):
        parse({"spool": {"devices_share": 1.0}}, "here")


def test_a_will_s_publication_does_not_count_as_the_rate_of_its_user() -> None:
    world = World(quota=[QuotaSection(messages_per_s=1)])
    will = Will("t", b"", properties={P.WILL_DELAY_INTERVAL: 0})
    for _ in range(5):
        world.accepted("c", will=will).drop()
    assert world.broker.statistics.quota_pauses == 0
