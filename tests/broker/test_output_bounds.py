"""All output that waits for a client has a bound. So have the input before CONNECT, and the state
that such input leaves behind.
"""

import logging

import pytest

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World

V5 = Version.V5
PINGS = encode(Pingreq(), V5) * 10_000


# -- output


def test_qos_0_that_waits_behind_an_acknowledgement_has_a_bound() -> None:
    world = World(outgoing_bytes=100_000)
    world.absent("other", topic="kept")
    client = world.durable("c")
    client.subscribe("flood", qos=0)
    world.slow_disk = True
    client.publish("kept", "x", qos=1)
    publisher = world.accepted()
    for _ in range(1000):
        publisher.publish("flood", bytes(1000))
    assert client.received == []
    assert client.connection.size < 110_000
    world.slow_disk = False
    world.commit()
    client.take(Puback)
    assert 50 < len(client.payloads) < 110
    assert world.broker.statistics.dropped == 1000 - len(client.payloads)
    publisher.publish("flood", "again")
    assert client.payloads[-1] == b"again"


def test_connection_with_a_large_message_that_waits_for_the_disk_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    client = world.durable("c")
    client.subscribe("t", qos=2)
    world.slow_disk = True
    world.accepted("publisher").send(Publish("t", bytes(20_000), qos=2, packet_id=1))
    assert client.connection.size > 20_000
    client.disconnect()
    world.commit()
    assert client.received == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("what", [PINGS, encode(Pubrel(7), V5) * 5_000], ids=["pings", "releases"])
def test_a_peer_that_reads_no_answers_is_not_read(what: bytes) -> None:
    world = World(outgoing_bytes=300_000)
    client = world.accepted("c")
    client.reads = False
    for _ in range(30):
        client.send_bytes(what)
    assert client.paused
    assert client.unsent + client.connection.size < 400_000
    client.reads = True
    while client.paused:
        client.read_on()
    world.turn()
    assert client.waiting == type(client.waiting)()
    assert len(client.take_all()) in (30 * 10_000, 30 * 5_000)


def test_answers_that_wait_for_the_disk_have_a_bound() -> None:
    world = World(outgoing_bytes=50_000)
    world.absent("other", topic="kept")
    client = world.durable("c", keep_alive=10)
    world.slow_disk = True
    client.publish("kept", "x", qos=1)
    for _ in range(20):
        client.send_bytes(PINGS)
    assert client.connection.size < 80_000
    world.sleep(100)
    assert not client.closed, "it is not the client that is silent"
    world.slow_disk = False
    world.commit()
    client.take(Puback)
    assert len(client.take_all(Pingresp)) == 20 * 10_000


def test_slowest_reader_is_closed_when_outputs_together_hold_too_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(memory_bytes=1_000_000)
    slow = [world.accepted(f"slow {number}") for number in range(8)]
    well = world.accepted("well")
    for number, client in enumerate([*slow, well]):
        client.subscribe("flood" if number else "more", "flood", qos=0)
        client.reads = client is well
    publisher = world.accepted()
    for _ in range(200):
        publisher.publish("more", bytes(1000))
        publisher.publish("flood", bytes(1000))
    assert slow[0].closed
    assert sum(client.unsent for client in slow if not client.closed) <= 1_000_000
    assert [client.closed for client in slow].count(True) <= 4
    assert len(well.payloads) == 200
    assert "reads too slowly" in caplog.text


# -- keep alive


def test_a_client_that_is_not_read_is_not_taken_for_silent() -> None:
    world = World()
    client = world.accepted("c", keep_alive=10)
    world.absent("other", topic="kept")
    world.disk.backlog = 0
    world.slow_disk = True
    client.publish("kept", "x", qos=1)
    assert client.paused
    for _ in range(30):
        world.sleep(1)
        client.send(Pingreq())
    assert not client.closed
    world.disk.backlog = 1 << 40
    world.slow_disk = False
    world.commit()
    assert not client.paused
    assert len(client.take_all(Pingresp)) == 30
    world.sleep(16)
    assert client.closed, "now it is silent"


@pytest.mark.parametrize("busy", [False, True], ids=["idle disk", "busy disk"])
def test_a_peer_that_takes_nothing_is_closed_when_its_keep_alive_is_over(busy: bool) -> None:
    world = World(outgoing_bytes=300_000)
    client = world.accepted("c", keep_alive=10)
    client.subscribe("t", qos=0)
    client.reads = False
    if busy:
        world.disk.backlog = 0
        client.send_bytes(PINGS)
        world.disk.backlog = 1 << 40
        world.commit()
    publisher = world.accepted("p")
    while not client.connection.full:
        publisher.publish("t", bytes(10_000))
    world.sleep(10)
    assert not client.closed
    world.sleep(10)
    assert client.closed


def stuck(world: World) -> Client:
    """Return a client that does not read and has more output than its bound."""
    client = world.accepted("c", keep_alive=10)
    client.subscribe("t", qos=0)
    client.reads = False
    publisher = world.accepted("p")
    while not client.connection.full:
        publisher.publish("t", bytes(10_000))
    return client


def test_a_client_on_a_slow_line_that_pings_stays() -> None:
    world = World(outgoing_bytes=300_000)
    client = stuck(world)
    for _ in range(100):
        world.sleep(1)
        client.send(Pingreq())
    assert not client.closed
    assert client.unsent < 400_000, "nothing is answered"
    client.reads = True
    client.read_on()
    assert len(client.take_all(Pingresp)) == 100


def test_a_client_on_a_slow_line_stays_while_it_takes_anything() -> None:
    """The client cannot ping, because its earlier packets fill the line. As long as the client
    reads anything, it stays connected.
    """
    world = World(outgoing_bytes=300_000)
    client = stuck(world)
    client.send_bytes(PINGS)
    assert client.paused
    for _ in range(20):
        client.read_a_little()
        world.sleep(8)
    assert not client.closed
    world.sleep(17)
    assert client.closed, "now it takes nothing"


# -- before a client is known


@pytest.mark.parametrize("size", [200, 100_000])
def test_a_connect_has_a_bound_of_its_own(size: int) -> None:
    world = World(connect_bytes=1000)
    client = world.open()
    will = Will("t", b"", 0, properties={P.USER_PROPERTY: [("x", "y" * 50)] * (size // 50)})
    data = encode(Connect("c", will=will), V5)
    client.send_bytes(data[:10])
    client.send_bytes(data[10:])
    if size > 1000:
        assert client.closed
        assert world.broker.statistics.refusals == {("connect", R.PACKET_TOO_LARGE): 1}
        return
    assert client.take(Connack).reason == R.SUCCESS
    client.publish("t", bytes(10_000), qos=1)
    client.take(Puback)


def test_connects_that_have_not_come_whole_take_an_eighth_of_what_packets_may() -> None:
    world = World(memory_bytes=800_000)
    connect = encode(Connect("c", will=Will("t", bytes(60_000))), V5)
    begun = [world.open() for _ in range(10)]
    for client in begun:
        client.send_bytes(connect[:-1])
    assert [client.closed for client in begun] == [False] + 9 * [True]
    known = world.accepted("known")
    packet = encode(Publish("t", bytes(400_000), 1, 1), V5)
    known.send_bytes(packet[:-1])
    known.send_bytes(packet[-1:])
    known.take(Puback)
    begun[0].send_bytes(connect[-1:])
    begun[0].take(Connack)
    assert world.broker.partial == world.broker.partial_nameless == 0


def test_a_client_identifier_has_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    world = World(client_id_bytes=100)
    for name in ("x" * 101, "ü" * 51):
        connack = world.connect(name).take(Connack)
        assert connack.reason == R.CLIENT_IDENTIFIER_NOT_VALID
    for name in ("x" * 100, "ü" * 50):
        world.accepted(name)
    assert len(world.broker.sessions) == 2
    assert all(len(record.getMessage()) < 200 for record in caplog.records)


def test_the_names_behind_topic_aliases_have_a_bound() -> None:
    world = World()
    client = world.accepted()
    for alias in (1, 2, 1, 2, 3):
        name = f"{alias}{'x' * 60_000}"
        client.publish(name, "x", properties={P.TOPIC_ALIAS: alias})
        client.publish("", "y", properties={P.TOPIC_ALIAS: alias})
        assert client.closed == (alias == 3)
    assert client.take(Disconnect).reason == R.QUOTA_EXCEEDED


def test_the_names_that_are_remembered_have_a_bound_and_each_client_may_have_some() -> None:
    world = World(memory_bytes=800_000)
    clients = [world.accepted(f"c{number}") for number in range(30)]
    for number, client in enumerate(clients):
        client.publish(f"{number}{'x' * 24_600}", "x", properties={P.TOPIC_ALIAS: 1})
    assert [client.closed for client in clients] == [False] * 4 + [True] * 26
    assert {client.take(Disconnect).reason for client in clients[4:]} == {R.QUOTA_EXCEEDED}
    modest = world.accepted("modest")
    for number in range(200):
        modest.publish(f"t/{number}", "x", qos=1, properties={P.TOPIC_ALIAS: number % 9 + 1})
        modest.publish(f"u/{number}", "x", qos=1)
    assert len(modest.take_all(Puback)) == 400
    assert 20 < len(world.broker.router.topics) < 800_000 / 4 / 2300
    receiver = world.accepted("r", properties={P.TOPIC_ALIAS_MAXIMUM: 64}, answers=True)
    receiver.subscribe("v/#", qos=1)
    for _ in range(2):
        for number in range(3):
            modest.publish(f"v/{number}{'y' * 3000}", "x", qos=1)
    aliases = [(item.properties or {}).get(P.TOPIC_ALIAS) for item in receiver.take_all(Publish)]
    assert aliases == [1, None, None] * 2
    for client in list(world.clients.values()):
        client.drop()
    assert world.broker.names == 0


# -- one packet


@pytest.mark.parametrize("make", [Subscribe, Unsubscribe])
def test_a_request_has_a_bound(make: type) -> None:
    world = World(subscribe_bytes=1000)
    client = world.accepted()
    filters = [f"t/{number}" for number in range(200)]
    client.send(make(1, [Subscription(item) for item in filters] if make is Subscribe else filters))
    assert client.take(Disconnect).reason == R.PACKET_TOO_LARGE


@pytest.mark.parametrize(("number", "reason"), [(1000, None), (1001, R.QUOTA_EXCEEDED)])
def test_user_properties_have_a_bound(number: int, reason: R | None) -> None:
    world = World()
    client = world.accepted()
    client.publish("t", "x", qos=1, properties={P.USER_PROPERTY: [("", "")] * number})
    assert client.closed == bool(reason)
    assert client.take(Disconnect if reason else Puback).reason == (reason or 0)


# -- what comes due


def test_work_that_comes_due_at_once_is_done_in_parts() -> None:
    world = World(connects_per_s=1_000_000)
    will = Will("t", b"x", properties={P.WILL_DELAY_INTERVAL: 5})
    for number in range(2500):
        world.accepted(
            f"c{number}", clean=False, will=will, properties={P.SESSION_EXPIRY_INTERVAL: 10}
        ).drop()
    watching = world.accepted("w")
    watching.subscribe("t")
    world.sleep(6)
    assert len(watching.take_all(Publish)) == 2000
    world.sleep(1)
    assert len(watching.take_all(Publish)) == 500
    world.sleep(10)
    assert len(world.broker.sessions) == 501
    assert world.accepted("c2499", clean=False).connection.session is not None
    world.sleep(1)
    assert len(world.broker.sessions) == 2


def test_client_that_never_reads_is_dropped_in_the_end() -> None:
    world = World()
    client, publisher = world.accepted("c"), world.accepted("p")
    client.subscribe("t", qos=0)
    client.reads = False
    publisher.publish("t", bytes(100_000))
    client.disconnect()
    assert client.unsent == 0, "it was aborted"


# -- wills


@pytest.mark.parametrize("power_cut", [False, True])
def test_wills_have_a_bound_in_all(power_cut: bool) -> None:
    world = World(will_bytes=100_000)
    will = Will("t", bytes(30_000), properties={P.WILL_DELAY_INTERVAL: 1000})
    for number in range(3):
        client = world.durable(f"c{number}", will=will)
        if number:
            client.drop()
    if power_cut:
        world.power_cut()
    refused = world.connect("c3", will=will, clean=False, properties=FOREVER).take(Connack)
    assert refused.reason == R.QUOTA_EXCEEDED
    world.durable("c4")
    world.durable("c0", will=will).disconnect()
    world.durable("c3", will=will)
    world.sleep(2000)
    for number in range(3):
        world.durable(f"c{number}").disconnect()
    assert world.broker.will_use.total == world.rows("SELECT 30000 + 1 + 256 FROM will")[0][0]
    world.durable("c3").disconnect()
    assert world.broker.will_use.total == 0


def test_a_will_needs_room_on_the_disk() -> None:
    world = World()
    world.disk_full(True)
    assert world.connect("c", will=Will("t", b"x")).take(Connack).reason == R.QUOTA_EXCEEDED
    world.accepted("d")
    assert world.rows("SELECT * FROM will") == []


def test_a_will_that_is_refused_is_not_written_again_and_again() -> None:
    world = World(spool_bytes=500)
    world.accepted("c", will=Will("spool/w", b"gone")).drop()
    world.accepted("d").publish("spool/t", bytes(280))
    world.accepted("e", will=Will("spool/w", b"waits")).drop()
    world.sleep(1)
    commits = len(world.commits)
    for _ in range(20):
        world.sleep(1)
    assert len(world.commits) == commits
    assert [row[0] for row in world.rows("SELECT client FROM will")] == ["e"]
    world.power_cut()
    world.database.execute("DELETE FROM spool")
    world.broker.spool.landed(100)
    world.sleep(1)
    assert world.rows("SELECT payload FROM spool") == [(b"waits",)]
    assert world.rows("SELECT client FROM will") == []


def test_subscriptions_of_sessions_that_are_kept_need_room_on_the_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    world = World()
    kept, other = world.durable("kept"), world.accepted("other")
    world.disk_full(True)
    assert kept.subscribe("a").reasons == [R.QUOTA_EXCEEDED]
    assert other.subscribe("a").reasons == [R.GRANTED_QOS_2]


# -- time


def test_a_client_that_brings_much_waits_for_others() -> None:
    world = World()
    greedy, modest = world.accepted("greedy"), world.accepted("modest")
    looks = 0

    def turn_is_over() -> bool:
        nonlocal looks
        looks += 1
        return looks % 101 == 100

    world.broker.turn_is_over = turn_is_over
    greedy.bring(PINGS)
    modest.bring(encode(Pingreq(), V5))
    assert greedy.paused
    assert not modest.paused
    assert modest.connection.out == [b"\xd0\0"]
    greedy.bring(encode(Publish("t", b"last", 1, 1), V5))
    world.turn()
    assert not greedy.paused
    assert len(greedy.take_all(Pingresp)) == 10_000
    greedy.take(Puback)


def test_a_client_that_brings_little_is_read_on_while_it_is_put_off() -> None:
    """The broker does not stop reading for a few bytes, because stopping and resuming take one
    system call each.
    """
    world = World()
    client = world.accepted("c")
    looks = iter([True])
    world.broker.turn_is_over = lambda: next(looks, False)
    client.bring(encode(Pingreq(), V5))
    assert client.connection.out == []
    assert not client.paused
    client.bring(encode(Pingreq(), V5))
    world.turn()
    assert len(client.take_all(Pingresp)) == 2


def test_a_client_that_is_put_off_may_end_meanwhile() -> None:
    world = World()
    client = world.accepted("c")
    looks = iter(range(200))
    world.broker.turn_is_over = lambda: next(looks, 0) >= 100
    client.bring(PINGS)
    client.drop()
    assert world.broker.partial == 0


def test_warnings_have_a_bound_in_all(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for number in range(1000):
        client = world.accepted(f"c{number}")
        client.publish("$SYS/x", qos=1)
        client.drop()
    assert 30 <= len(caplog.records) <= 32
    assert "some are left out" in caplog.text
    world.sleep(100)
    world.accepted("later").publish("$SYS/x", qos=1)
    assert "warnings left out: 970" in caplog.text
