"""Publications that the broker refuses for now.

Common clients take a PUBACK or PUBREC as success, whatever its reason code. So the broker closes
their connection instead, and then accepts nothing from them for a while. `FILLED` has every bound
that refuses for now, `STAYS_FULL` the bounds that do not get room by themselves, and `FOR_GOOD`
every publication that is refused for good. A test fails if a member of `Bound` is in none of these
lists. `test_refusal_table.py` compares all of them with the table in the README.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.access.rules import Policy
from gateway.broker import pauses
from gateway.broker.lack import Bound
from gateway.broker.pause import EACH_BYTES
from gateway.config import AclSection, QueueSection, QuotaSection
from gateway.mqtt.packets import (
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from gateway.site.moving.neighbours import site_of
from gateway.site.moving.replicated import Replicated
from tests.broker.harness import FOREVER, Anonymous, Client, World

V4, V5 = Version.V3_1_1, Version.V5
READS = {PropertyId.USER_PROPERTY: [("onceway-reads-reason-codes", "1")]}
LARGE = bytes(60)


@dataclass
class Full:
    """A world in which no message with this `topic` and `retain` has room."""

    world: World
    bound: Bound
    topic: str
    make_room: Callable[[], None]
    retain: bool = False

    def publish(self, client: Client, qos: int, packet_id: int, **more: Any) -> None:
        client.publish(self.topic, LARGE, qos, packet_id, retain=self.retain, **more)


def _world(**more: Any) -> World:
    return World(reads_reasons=False, **more)


def _spool(**more: Any) -> Full:
    world = _world(spool_bytes=210, **more)
    filler = world.accepted("filler")
    filler.publish("spool/t", LARGE, 1)
    filler.take(Puback)
    return Full(world, Bound.SPOOL, "spool/t", lambda: world.broker.spool.landed(2))


def _share_of_the_spool() -> Full:
    world = _world(spool_bytes=100_000, quota=[QuotaSection(users=[""], spool_share=0.0015)])
    filler = world.accepted("filler")
    filler.publish("spool/t", LARGE, 1)
    filler.take(Puback)
    return Full(world, Bound.SPOOL, "spool/t", lambda: world.broker.spool.landed(2))


def _second_disk() -> Full:
    world = _world(moves=True)
    replicated = site_of(world.broker).second_disk = Replicated(lambda rows: None, 0)
    replicated.refusing = True

    def answers() -> None:
        replicated.refusing = False
        replicated.safe(1 << 30)  # all later rows are on the second disk at once
        site_of(world.broker).second_disk = None

    return Full(world, Bound.SECOND_DISK, "spool/t", answers)


def _disk() -> Full:
    world = _world()
    world.disk_full(True)
    return Full(world, Bound.DISK, "spool/t", lambda: world.disk_full(False))


def _room_on_the_disk() -> Full:
    world = _world()
    world.disk.room = world.broker.disk_room = 10

    def room() -> None:
        world.disk.room = world.broker.disk_room = 1 << 30

    return Full(world, Bound.DISK, "spool/t", room)


def _memory() -> Full:
    world = _world(memory_bytes=100_000)
    world.absent("away")
    world.broker.to_drop, world.broker.queued = 1, 112_500

    def room() -> None:
        world.broker.to_drop = world.broker.queued = 0

    return Full(world, Bound.MEMORY, "t", room)


def _queue() -> Full:
    world = _world(
        queue=[QueueSection(clients="slow", full="refuse the publisher")], queue_messages=1
    )
    world.absent("slow")
    filler = world.accepted("filler")
    filler.publish("t", LARGE, 1)
    filler.take(Puback)
    return Full(world, Bound.QUEUE, "t", lambda: drain(world))


def _shared_queue() -> Full:
    world = _world(
        queue=[QueueSection(clients="slow", full="refuse the publisher")], queue_messages=1
    )
    world.absent("slow", topic="$share/group/t")
    filler = world.accepted("filler")
    filler.publish("t", LARGE, 1)
    filler.take(Puback)
    return Full(world, Bound.QUEUE, "t", lambda: drain(world))


def drain(world: World) -> None:
    world.durable("slow", answers=True).drop()


def _retained() -> Full:
    world = _world(retained=1)
    filler = world.accepted("filler")
    filler.publish("kept", LARGE, 1, retain=True)
    filler.take(Puback)
    return Full(
        world, Bound.RETAINED, "t", lambda: filler.publish("kept", b"", 1, retain=True), retain=True
    )


def _retained_bytes() -> Full:
    world = _world(retained_bytes=100)
    filler = world.accepted("filler")
    filler.publish("kept", LARGE, 1, retain=True)
    filler.take(Puback)
    return Full(
        world, Bound.RETAINED, "t", lambda: filler.publish("kept", b"", 1, retain=True), retain=True
    )


FILLED = {
    "spool": _spool,
    "share of the spool": _share_of_the_spool,
    "second disk": _second_disk,
    "disk": _disk,
    "room on the disk": _room_on_the_disk,
    "memory": _memory,
    "queue": _queue,
    "queue of a member of a shared subscription": _shared_queue,
}
STAYS_FULL = {"retained": _retained, "bytes of retained messages": _retained_bytes}


@pytest.fixture(params=FILLED.values(), ids=FILLED.keys())
def full(request: pytest.FixtureRequest) -> Full:
    made: Full = request.param()
    return made


def kind(qos: int) -> type[Puback] | type[Pubrec]:
    return Pubrec if qos == 2 else Puback


def test_each_bound_has_a_test_in_this_file() -> None:
    for tried, passes in ((FILLED, True), (STAYS_FULL, False)):
        bounds = {bound for bound in Bound if bound.passes == passes}
        bounds -= {Bound.IDENTIFIERS}  # these have a test of their own
        assert {make().bound for make in tried.values()} == bounds


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V4, V5])
def test_a_refusal_for_now_ends_the_connection_without_an_answer(
    full: Full, qos: int, version: Version
) -> None:
    client = full.world.accepted("c", version=version, clean=False)
    full.publish(client, qos, 7)
    assert client.closed
    if version == V5:
        end = client.take(Disconnect)
        assert end.reason == R.QUOTA_EXCEEDED
        assert end.properties is not None
        assert "PUBLISH refused" in end.properties[PropertyId.REASON_STRING]
    assert client.received == []
    statistics = full.world.broker.statistics
    assert statistics.refusals["publish", R.QUOTA_EXCEEDED] == 1
    assert statistics.pauses == {full.bound: 1}
    assert full.world.broker.pauses.waiting(full.world.broker.now) == {full.bound: 1}


@pytest.mark.mqtt("MQTT-4.3.3-9")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V4, V5])
def test_refused_message_is_taken_once_when_it_returns_and_room_exists(
    full: Full, qos: int, version: Version
) -> None:
    world = full.world
    watcher = world.accepted("watcher", answers=True)
    watcher.subscribe(full.topic)
    client = world.accepted("c", version=version, clean=False)
    full.publish(client, qos, 7)
    full.make_room()
    again = world.accepted("c", version=version, clean=False)
    full.publish(again, qos, 7, dup=True)
    again.send(Pingreq())
    assert again.take_all() == [Pingresp()], "nothing is taken yet, and the keep alive is respected"
    assert watcher.payloads == []
    world.sleep(1)
    assert again.take(kind(qos)).reason == R.SUCCESS
    assert watcher.payloads == [LARGE]
    if qos == 2:
        full.publish(again, qos, 7, dup=True)
        again.send(Pubrel(7))
        assert again.take_all() == [Pubrec(7), Pubcomp(7)]
        assert watcher.payloads == [LARGE]
    assert world.broker.pauses.waiting(world.broker.now) == {}


@pytest.mark.parametrize("way", ["property", "listener"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_that_reads_reason_codes_gets_them(full: Full, qos: int, way: str) -> None:
    client = (
        full.world.accepted("c", properties=READS)
        if way == "property"
        else full.world.accepted("c", policy=Policy(Anonymous(), reads_reasons=True))
    )
    full.publish(client, qos, 7)
    full.publish(client, qos, 8)
    assert client.take_all() == [
        kind(qos)(7, R.QUOTA_EXCEEDED),
        kind(qos)(8, R.QUOTA_EXCEEDED),
    ]
    assert not client.closed
    full.make_room()
    full.publish(client, qos, 9)
    assert client.take(kind(qos)).reason == R.SUCCESS


@pytest.mark.parametrize("pair", [("onceway-reads-reason-codes", "0"), ("reads", "1")])
def test_only_the_documented_property_counts(pair: tuple[str, str]) -> None:
    full = _spool()
    client = full.world.accepted("c", properties={PropertyId.USER_PROPERTY: [pair]})
    full.publish(client, 1, 7)
    assert client.take(Disconnect).reason == R.QUOTA_EXCEEDED


def test_a_listener_that_reads_reason_codes_cannot_tell_them_to_a_client_before_mqtt_5() -> None:
    full = _spool()
    policy = Policy(Anonymous(), reads_reasons=True)
    client = full.world.accepted("c", version=V4, policy=policy)
    full.publish(client, 1, 7)
    assert (client.received, client.closed) == ([], True)


@pytest.mark.parametrize("make", [_spool, _share_of_the_spool, _disk, _room_on_the_disk])
def test_qos_0_without_room_is_dropped_and_counted(make: Callable[[], Full]) -> None:
    full = make()
    client = full.world.accepted("c")
    full.publish(client, 0, 0)
    assert not client.closed
    assert full.world.broker.statistics.refused("publish") == 1
    assert full.world.broker.statistics.pauses == {}


def test_qos_0_without_room_in_a_queue_is_dropped_and_counted() -> None:
    queue = QueueSection(clients="slow", full="refuse the publisher", qos_0=True)
    world = _world(queue=[queue], queue_messages=1)
    world.absent("slow")
    client = world.accepted("c")
    client.publish("t", LARGE, 0, 0)
    assert world.broker.statistics.dropped == 0
    client.publish("t", LARGE, 0, 0)
    assert world.broker.statistics.dropped == 1
    assert not client.closed


# -- refusals for good


def _too_large_for_the_spool() -> tuple[World, Publish]:
    return _world(spool_bytes=1000), Publish("spool/t", bytes(1000), 1, 7)


def _too_large_for_others() -> tuple[World, Publish]:
    return _world(spool_bytes=1000, devices_share=0.5), Publish("spool/t", bytes(500), 1, 7)


def _too_large_for_a_share() -> tuple[World, Publish]:
    quota = [QuotaSection(users=["*"], spool_share=0.1)]
    return _world(spool_bytes=1000, quota=quota), Publish("spool/t", bytes(100), 1, 7)


def _too_large_for_a_queue() -> tuple[World, Publish]:
    queue = [QueueSection(clients="slow", full="refuse the publisher", bytes=1000)]
    world = _world(queue=queue)
    world.absent("slow")
    return world, Publish("t", bytes(1000), 1, 7)


def _too_large_for_retained_messages() -> tuple[World, Publish]:
    return _world(retained_bytes=1000), Publish("t", bytes(1000), 1, 7, True)


def _not_authorized() -> tuple[World, Publish]:
    return _world(acl=[AclSection(write=["mine/#"])]), Publish("t", b"x", 1, 7)


def _too_deep() -> tuple[World, Publish]:
    return _world(topic_levels=3), Publish("a/b/c/d", b"x", 1, 7)


FOR_GOOD = {
    "spool": (_too_large_for_the_spool, R.QUOTA_EXCEEDED),
    "others": (_too_large_for_others, R.QUOTA_EXCEEDED),
    "share": (_too_large_for_a_share, R.QUOTA_EXCEEDED),
    "queue": (_too_large_for_a_queue, R.QUOTA_EXCEEDED),
    "retained": (_too_large_for_retained_messages, R.QUOTA_EXCEEDED),
    "acl": (_not_authorized, R.NOT_AUTHORIZED),
    "topic": (_too_deep, R.TOPIC_NAME_INVALID),
}


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("make", "reason"), FOR_GOOD.values(), ids=FOR_GOOD.keys())
def test_a_refusal_for_good_keeps_its_reason_code(
    make: Callable[[], tuple[World, Publish]], reason: R, qos: int
) -> None:
    world, packet = make()
    packet.qos = qos
    client = world.accepted("c")
    client.send(packet)
    assert client.take_all() == [kind(qos)(7, reason)]
    assert not client.closed
    assert world.broker.statistics.pauses == {}


@pytest.mark.parametrize(
    ("make", "reason"), [one for name, one in FOR_GOOD.items() if name != "queue"]
)
def test_qos_0_that_is_refused_for_good_is_dropped_and_counted(
    make: Callable[[], tuple[World, Publish]], reason: R
) -> None:
    world, packet = make()
    packet.qos, packet.packet_id = 0, None
    client = world.accepted("c")
    client.send(packet)
    assert client.take_all() == []
    assert world.broker.statistics.refusals["publish", reason] == 1


def test_oversized_publication_gets_its_reason_on_a_full_spool_and_disk_too() -> None:
    """The reason code tells the sender that the message will never fit. If the gateway let the
    sender wait for space instead, the sender would reconnect again and again.
    """
    full = _spool()
    full.world.disk_full(True)
    client = full.world.accepted("c")
    client.publish("spool/t", bytes(1000), 1, 7)
    assert client.take_all() == [Puback(7, R.QUOTA_EXCEEDED)]
    assert not client.closed


def test_before_mqtt_5_a_refusal_for_good_ends_the_connection_and_does_not_storm() -> None:
    world, packet = _not_authorized()
    for pause in (1, 2, 4):
        client = world.accepted("c", version=V4, clean=False)
        client.send(packet)
        world.sleep(pause)
        assert (client.received, client.closed) == ([], True)
    assert world.broker.statistics.pauses == {"for_good": 3}


# -- order


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V4, V5])
def test_earlier_publications_are_committed_and_acknowledged_first(
    version: Version, qos: int, slow: bool
) -> None:
    world = _world(spool_bytes=(60 + 7 + 64) * 3)
    client = world.accepted("c", version=version, clean=False)
    world.slow_disk = slow
    client.send(*(Publish("spool/t", LARGE, qos, at) for at in range(1, 6)))
    if slow:
        assert (client.received, client.closed) == ([], False), "the promise is not true yet"
        client.publish("spool/t", b"small", qos, 6)
        client.send(Pingreq())
        world.slow_disk = False
        world.commit()
    answers: list[Packet] = client.take_all(kind(qos))
    assert answers == [kind(qos)(at) for at in (1, 2, 3)]
    assert client.closed
    if version == V5:
        assert isinstance(client.received[-1], Disconnect)
    assert world.rows("SELECT count(*) FROM spool") == [(3,)]
    again = world.accepted("c", version=version, clean=False)
    world.broker.spool.landed(4)
    again.send(*(Publish("spool/t", LARGE, qos, at, dup=True) for at in (4, 5)))
    world.sleep(1)
    assert again.take_all(kind(qos)) == [kind(qos)(at) for at in (4, 5)]
    assert world.rows("SELECT count(*) FROM spool") == [(5,)]


def test_behind_a_refusal_nothing_is_taken_even_if_it_would_fit() -> None:
    full = _spool()
    watcher = full.world.accepted("watcher", answers=True)
    watcher.subscribe("#")
    client = full.world.accepted("c")
    client.send(Publish("spool/t", LARGE, 1, 1), Publish("elsewhere", b"x", 1, 2))
    assert client.take_all(Puback) == []
    assert watcher.payloads == []


def test_identifiers_that_are_too_many_end_the_connection() -> None:
    world = _world(memory_bytes=8 * 80 * 20)
    hoarder = world.durable("hoarder")
    for number in range(1, 22):
        hoarder.publish("t", "x", 2, packet_id=number)
    assert [type(packet) for packet in hoarder.take_all()] == [Pubrec] * 20 + [Disconnect]
    assert world.broker.statistics.pauses == {Bound.IDENTIFIERS: 1}
    back = world.durable("hoarder")
    back.send(*(Pubrel(at) for at in range(1, 21)), Publish("t", b"x", 2, 21, dup=True))
    assert back.take_all() == [Pubcomp(at) for at in range(1, 21)]
    world.sleep(1)
    assert back.take_all() == [Pubrec(21)]


class _Copied(World):
    def __init__(self, **more: Any) -> None:
        super().__init__(reads_reasons=False, moves=True, **more)
        self.replicated = site_of(self.broker).second_disk = Replicated(lambda rows: None, 0)


@pytest.mark.parametrize("gone", [False, True])
def test_acknowledgements_wait_for_a_second_disk_that_answers_and_not_for_one_that_is_gone(
    gone: bool,
) -> None:
    world = _Copied(spool_bytes=150)
    client = world.accepted("c")
    client.send(Publish("spool/t", LARGE, 1, 1), Publish("spool/t", LARGE, 1, 2))
    assert (client.received, client.closed) == ([], False)
    if gone:
        world.replicated.refusing = True
        world.sleep(1)
    else:
        world.engine.commits.spool_is_safe(1)
        world.turn()
        assert client.take(Puback) == Puback(1)
    assert client.take(Disconnect).reason == R.QUOTA_EXCEEDED
    assert client.closed


# -- pauses


def test_each_further_refusal_doubles_the_pause_up_to_30_s() -> None:
    full, lengths = _spool(), []
    client = full.world.accepted("c")
    full.publish(client, 1, 1)
    for _ in range(8):
        begun = full.world.broker.now
        client = full.world.accepted("c")
        full.publish(client, 1, 1)
        while not client.closed:
            full.world.sleep(0.25)
        lengths.append(full.world.broker.now - begun)
    assert lengths == [1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(
    ("away", "taken_after"), [(0.0, 4), (0.5, 4), (1.0, 4), (3.0, 2), (4.0, 0)]
)
def test_a_second_until_the_client_is_back_does_not_count(away: float, taken_after: float) -> None:
    """After a refusal, paho and mqtt.js wait for a second before they reconnect. Time up to one
    second until the client is back is not part of the pause. away: seconds until the client is
    back. taken_after: seconds after that until its message is accepted.
    """
    full = _spool()
    for seconds in (1, 2):
        full.publish(full.world.accepted("c"), 1, 1)
        full.world.sleep(seconds)
    full.publish(full.world.accepted("c"), 1, 1)
    full.make_room()
    full.world.sleep(away)
    client = full.world.accepted("c")
    full.publish(client, 1, 1)
    if taken_after:
        full.world.sleep(taken_after - 0.25)
        assert client.received == []
        full.world.sleep(0.25)
    assert client.take_all() == [Puback(1)]


@pytest.mark.parametrize("reset", ["success", "a minute without a refusal"])
def test_the_doubling_begins_again(reset: str) -> None:
    full = _spool()
    for seconds in (1, 2, 4):
        full.publish(full.world.accepted("c"), 1, 1)
        full.world.sleep(seconds)
    client = full.world.accepted("c")
    if reset == "success":
        client.publish("spool/small", b"", 1)
        assert client.take(Puback).reason == R.SUCCESS
    else:
        full.world.sleep(pauses.KEPT_S + 1)
    full.publish(client, 1, 1)
    assert client.closed
    again = full.world.accepted("c")
    full.publish(again, 1, 1)
    full.world.sleep(1)
    assert again.closed


def test_a_message_that_needs_no_spool_does_not_end_the_doubling() -> None:
    """A client may publish "online" first after each connect. If that message ended the doubling of
    the pause, the client would reconnect every second.
    """
    full = _spool()
    full.publish(full.world.accepted("c"), 1, 1)
    client = full.world.accepted("c")
    client.publish("online", b"", 1, 1)
    full.publish(client, 1, 2)
    full.world.sleep(1)
    assert isinstance(client.take_all()[0], Puback)
    again = full.world.accepted("c")
    full.publish(again, 1, 1)
    full.world.sleep(1)
    assert not again.closed
    full.world.sleep(1)
    assert again.closed


def test_in_a_pause_everything_but_publications_goes_on() -> None:
    full = _spool()
    full.publish(full.world.accepted("c"), 1, 1)
    client = full.world.accepted("c", keep_alive=1)
    full.publish(client, 1, 1)
    client.publish("elsewhere", b"qos 0", 0)
    client.send(Subscribe(1, [Subscription("news", 1)]), Pingreq())
    other = full.world.accepted("other", answers=True)
    other.publish("news", b"x", 0)
    taken = client.take_all()
    assert [type(packet) for packet in taken] == [Suback, Pingresp, Publish]
    client.send(Puback(1))
    assert not client.closed


def test_publications_of_a_pause_keep_their_order_and_their_topics() -> None:
    """A topic alias is resolved when its packet arrives, not when the pause ends."""
    full = _spool()
    watcher = full.world.accepted("watcher", answers=True)
    watcher.subscribe("#")
    full.publish(full.world.accepted("c"), 1, 1)
    full.make_room()
    client = full.world.accepted("c")
    alias = {PropertyId.TOPIC_ALIAS: 1}
    client.send(
        Publish("a", b"1", 1, 1, properties=dict(alias)),
        Publish("", b"2", 1, 2, properties=dict(alias)),
        Publish("b", b"3", 2, 3, properties=dict(alias)),
        Publish("", b"4", 1, 4, properties=dict(alias)),
    )
    assert (client.received, watcher.payloads) == ([], [])
    full.world.sleep(1)
    assert [(item.topic, item.payload) for item in watcher.take_all(Publish)] == [
        ("a", b"1"),
        ("a", b"2"),
        ("b", b"3"),
        ("b", b"4"),
    ]
    assert client.take_all() == [Puback(1), Puback(2), Pubrec(3), Puback(4)]
    assert full.world.broker.put_off == 0


def test_a_connection_that_ends_in_its_pause_leaves_nothing_behind() -> None:
    full = _spool()
    full.publish(full.world.accepted("c"), 2, 1)
    client = full.world.durable("c")
    full.publish(client, 2, 1)
    assert full.world.broker.put_off > 0
    client.drop()
    assert full.world.broker.put_off == 0
    full.world.sleep(1)
    full.make_room()
    again = full.world.durable("c")
    full.publish(again, 2, 1, dup=True)
    assert again.take(Pubrec).reason == R.SUCCESS
    assert full.world.rows("SELECT count(*) FROM spool") == [(2,)]


def test_a_client_that_sends_on_and_on_in_its_pause_is_not_read() -> None:
    full = _spool()
    full.publish(full.world.accepted("c"), 1, 1)
    client = full.world.accepted("c")
    for number in range(1, 101):
        client.publish("elsewhere", bytes(1000), 1, number)
    assert client.paused
    assert full.world.broker.put_off < 2 * EACH_BYTES
    assert client.connection.kept < 10_000
    full.world.sleep(1)
    assert not client.paused
    assert client.take_all(Puback) == [Puback(at) for at in range(1, 101)]
    assert full.world.broker.put_off == 0


def test_postponed_packets_of_all_clients_have_a_bound() -> None:
    full = _spool(memory_bytes=80_000)
    names = [f"c{at}" for at in range(20)]
    for name in names:
        full.publish(full.world.accepted(name), 1, 1)
    clients = [full.world.accepted(name) for name in names]
    for client in clients:
        for number in range(1, 4):
            client.publish("elsewhere", bytes(1000), 1, number)
    assert full.world.broker.put_off <= 10_000 + 3 * 1700
    full.world.sleep(1)
    for client in clients:
        assert client.take_all(Puback) == [Puback(1), Puback(2), Puback(3)]


def test_the_clients_that_are_remembered_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "MOST", 3)
    full = _spool()
    for number in range(5):
        full.publish(full.world.accepted(f"c{number}"), 1, 1)
    full.make_room()
    for number, taken in enumerate([True, True, False, False, False]):
        client = full.world.accepted(f"c{number}")
        client.publish("elsewhere", b"", 1, 1)
        assert bool(client.take_all(Puback)) is taken


class _Users(Anonymous):
    def refuses_connect(self, connection: Any, packet: Any) -> Any:
        connection.user = packet.username
        return None if packet.password == b"right" else (R.NOT_AUTHORIZED, "wrong password")


def test_stranger_with_the_same_identifier_cannot_pause_a_client() -> None:
    full = _spool()
    policy = Policy(_Users())
    for user, password in (("mallory", b"right"), ("alice", b"wrong")):
        stranger = full.world.connect("c", policy=policy, username=user, password=password)
        full.publish(stranger, 1, 1)
        assert stranger.closed
    client = full.world.accepted("c", policy=policy, username="alice", password=b"right")
    client.publish("elsewhere", b"", 1, 1)
    assert client.take_all(Puback) == [Puback(1)]


def test_clients_without_an_identifier_delay_only_the_refused_ones() -> None:
    """The gateway cannot recognise such a client after a reconnect, so the pause belongs to the
    address. If there is room for a client's message, the message is accepted at once, even during
    the pause. A client whose message is refused is disconnected at the end of the pause.
    """
    full = _spool()
    first = full.world.accepted()
    full.publish(first, 1, 1)
    assert first.closed
    others = [full.world.accepted() for _ in range(3)]
    for other in others:
        full.publish(other, 1, 1)
        other.send(Pingreq())
        assert other.take_all() == [Pingresp()]
    fits = full.world.accepted()
    fits.publish("elsewhere", b"", 1, 1)
    assert fits.take_all() == [Puback(1)]
    full.world.sleep(1)
    assert all(other.closed for other in others)
    again = full.world.accepted()
    full.publish(again, 1, 1)
    full.world.sleep(1)
    assert not again.closed, "three at the same moment double the pause once"
    full.world.sleep(1)
    assert again.closed


def test_a_restart_forgets_pauses_and_no_message() -> None:
    full = _spool()
    client = full.world.durable("c")
    full.publish(client, 2, 1)
    full.world.power_cut()
    again = full.world.durable("c")
    full.publish(again, 2, 1, dup=True)
    assert again.take(Disconnect).reason == R.QUOTA_EXCEEDED


# -- wills


def test_a_client_that_is_turned_away_has_its_will_published() -> None:
    """The standard requires this whenever the server ends the connection [MQTT-3.1.2-8]."""
    full = _spool()
    watcher = full.world.accepted("watcher", answers=True)
    watcher.subscribe("gone")
    client = full.world.accepted("c", will=Will("gone", b"c"))
    full.publish(client, 1, 1)
    assert watcher.payloads == [b"c"]


# -- what users see


def test_pause_is_logged_once_per_burst(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    full = _spool()
    for _ in range(5):
        client = full.world.accepted("c")
        full.publish(client, 1, 1)
        full.world.sleep(30)
    lines = [line for line in caplog.messages if "PUBLISH refused" in line]
    assert len(lines) == 1
    for part in ("c (memory)", "spool.max_bytes", "its connection ends", "1 to 30 s"):
        assert part in lines[0]


def test_a_client_that_takes_its_session_over_stays_paused() -> None:
    full = _spool()
    full.publish(full.world.accepted("c"), 1, 1)
    first = full.world.connect("c", clean=False, properties=FOREVER)
    assert first.take(Connack).reason == R.SUCCESS
    full.make_room()
    second = full.world.durable("c")
    full.publish(second, 1, 1)
    assert second.take_all() == []
    full.world.sleep(1)
    assert second.take_all() == [Puback(1)]
