"""Every queue has a bound, and a documented behaviour at the bound."""

from typing import Any, Literal
from unittest.mock import Mock

import pytest

from gateway.broker import fan_out
from gateway.broker.queue_limits import is_full, make_room
from gateway.broker.spool import ROW_OVERHEAD
from gateway.config import QueueSection
from gateway.mqtt.packets import (
    Connack,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World

V4, V5 = Version.V3_1_1, Version.V5


def full(
    what: Literal["end the session", "drop the oldest", "refuse the publisher"],
) -> list[QueueSection]:
    return [QueueSection(clients="slow*", full=what)]


def fill(
    world: World, count: int, qos: int = 2, client: Client | None = None, size: int = 3
) -> list[R]:
    """Publish messages one by one. Return the reason code of each acknowledgement."""
    publisher = client or world.durable("p")
    reasons = []
    for number in range(count):
        publisher.publish("t", b"%0*d" % (size, number), qos, packet_id=number + 1)
        answer = publisher.take(Pubrec if qos == 2 else Puback)
        reasons.append(answer.reason)
        if qos == 2 and not answer.reason:
            publisher.send(Pubrel(number + 1))
            publisher.take(Pubcomp)
    return reasons


@pytest.mark.parametrize("limits", [{"queue_messages": 5}, {"queue_bytes": 5 * 67}])
@pytest.mark.parametrize("run", [False, True])
def test_absent_session_with_a_full_queue_ends_and_its_client_learns_it(
    limits: dict[str, int], run: bool
) -> None:
    world = World(queue=full("end the session"), **limits)
    world.absent("slow")
    world.absent("other")
    if run:
        world.accepted(answers=True).send(
            *(Publish("t", b"%03d" % number, 2, number) for number in range(1, 7))
        )
    else:
        assert set(fill(world, 6)) == {R.SUCCESS}
    assert not world.connect("slow", clean=False, properties=FOREVER).take(Connack).session_present
    world.commit()
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(0,)]
    )


def test_a_client_that_does_not_acknowledge_gets_0x97() -> None:
    world = World(queue_messages=5)
    slow = world.durable("slow")
    slow.subscribe("t")
    other = world.accepted(answers=True)
    other.subscribe("t")
    fill(world, 6)
    assert slow.received[-1] == Disconnect(R.QUOTA_EXCEEDED, slow.received[-1].properties)
    assert slow.closed
    assert len(other.payloads) == 6


@pytest.mark.parametrize("power_cut", [False, True])
def test_the_oldest_may_be_dropped_instead(power_cut: bool) -> None:
    world = World(queue=full("drop the oldest"), queue_messages=5)
    world.absent("slow")
    assert set(fill(world, 8)) == {R.SUCCESS}
    if power_cut:
        world.power_cut()
    else:
        assert world.broker.statistics.overflowed == 3
    assert world.durable("slow", answers=True).payloads == [b"003", b"004", b"005", b"006", b"007"]


@pytest.mark.parametrize("limits", [{"queue_messages": 5}, {"queue_bytes": 5 * 67}])
@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("connected", [False, True])
def test_only_the_oldest_messages_of_runs_are_dropped(
    limits: dict[str, int], power_cut: bool, connected: bool
) -> None:
    world = World(queue=full("drop the oldest"), inflight=2, **limits)
    slow = world.durable("slow")
    slow.subscribe("t")
    if not connected:
        slow.drop()
    publisher = world.accepted(answers=True)
    # messages on a known topic are received as a run
    publisher.publish("t", "000", qos=1, packet_id=9)
    publisher.send(*(Publish("t", b"%03d" % number, 1, number) for number in range(1, 5)))
    publisher.send(*(Publish("t", b"%03d" % number, 1, number) for number in range(5, 8)))
    assert world.broker.statistics.overflowed == 3
    publisher.send(*(Publish("t", b"%03d" % number, 1, number) for number in range(8, 28)))
    assert world.broker.statistics.overflowed == 23
    flying = [b"000", b"001"] if connected else []
    assert slow.payloads == flying
    if power_cut:
        world.power_cut()
    else:
        slow.drop()
    last = [b"%03d" % number for number in range(23 + len(flying), 28)]
    assert world.durable("slow", answers=True).payloads == flying + last
    assert world.broker.queued == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_run_is_accepted_up_to_the_free_room(qos: int) -> None:
    world = World(queue=full("refuse the publisher"), queue_messages=5, spool_bytes=1000)
    world.absent("slow")
    for topic, room in ("t", 5), ("spool/t", 1000 // (60 + len("spool/t") + ROW_OVERHEAD)):
        publisher = world.accepted()
        publisher.send(*(Publish(topic, bytes(60), qos, number) for number in range(1, 21)))
        answers = publisher.take_all(Pubrec if qos == 2 else Puback)
        assert [packet.reason < R.UNSPECIFIED_ERROR for packet in answers] == [True] * room + [
            False
        ] * (20 - room)
    assert len(world.durable("slow", answers=True).payloads) == 5


@pytest.mark.parametrize("bound", [{"messages": 5}, {"bytes": 5 * 67}])
def test_a_queue_may_have_a_bound_of_its_own(bound: dict[str, int]) -> None:
    section = QueueSection(clients="slow*", full="drop the oldest", **bound)
    world = World(queue=[section], queue_messages=7)
    world.absent("slow")
    fill(world, 8)
    assert world.broker.sessions["slow"].send_flow.overflowed == 3
    assert world.durable("slow", answers=True).payloads == [b"003", b"004", b"005", b"006", b"007"]


def test_message_in_flight_is_never_dropped() -> None:
    world = World(queue=full("drop the oldest"), queue_messages=3, inflight=2)
    slow = world.durable("slow")
    slow.subscribe("t")
    fill(world, 6)
    assert [packet.payload for packet in slow.take_all(Publish)] == [b"000", b"001"]
    slow.send(Pubrec(1), Pubrec(2), Pubcomp(1), Pubcomp(2))
    assert slow.payloads == [b"005"]


@pytest.mark.mqtt("MQTT-4.3.3-9")
@pytest.mark.parametrize("qos", [1, 2])
def test_the_publisher_may_be_refused_instead(qos: int) -> None:
    world = World(queue=full("refuse the publisher"), queue_messages=3)
    world.absent("slow")
    other = world.accepted(answers=True)
    other.subscribe("t")
    assert fill(world, 5, qos) == [R.SUCCESS] * 3 + [R.QUOTA_EXCEEDED] * 2
    assert len(other.payloads) == 3, "what is refused has no effect at all"
    slow = world.durable("slow", answers=True)
    assert len(slow.payloads) == 3
    assert fill(world, 1, qos) == [R.SUCCESS], "after a refusal the identifier means a new message"
    assert len(slow.payloads) == 4


@pytest.mark.mqtt("311:MQTT-4.8.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_client_of_3_1_1_is_disconnected_without_an_answer(qos: int) -> None:
    world = World(queue=full("refuse the publisher"), queue_messages=3)
    world.absent("slow")
    publisher = world.accepted("p", version=V4, clean=False)
    fill(world, 3, qos, publisher)
    publisher.publish("t", "x", qos, packet_id=9)
    assert publisher.closed
    assert publisher.received == []
    again = world.accepted("p", version=V4, clean=False)
    world.durable("slow", answers=True)
    again.publish("t", "x", qos, packet_id=9, dup=True)
    again.take(Pubrec if qos == 2 else Puback)


def test_all_queues_together_have_a_bound_and_the_longest_pays() -> None:
    world = World(memory_bytes=3000)
    world.absent("long")
    fill(world, 10, size=100)
    world.absent("short")
    fill(world, 10, size=100)
    sessions = world.broker.sessions
    assert "long" not in sessions
    assert sessions["short"].send_flow.messages == 10
    assert world.broker.queued == sessions["short"].send_flow.size


def test_the_sum_of_all_queues_is_right_after_everything_was_delivered() -> None:
    world = World()
    for name in ("a", "b"):
        world.absent(name)
    fill(world, 5)
    world.power_cut()
    assert world.broker.queued == 2 * 5 * 67
    for name in ("a", "b"):
        world.durable(name, answers=True)
    assert world.broker.queued == 0


# -- QoS 0


@pytest.mark.parametrize("keep", [False, True])
def test_qos_0_waits_for_an_absent_session_if_wanted(keep: bool) -> None:
    world = World(queue=[QueueSection(qos_0=keep)], queue_messages=4)
    world.absent("slow")
    publisher = world.accepted(answers=True)
    for number in range(6):
        publisher.publish("t", str(number), qos=number % 2)
    expected = [b"0", b"1", b"2", b"3"] if keep else [b"1", b"3", b"5"]
    assert world.broker.statistics.dropped == (1 if keep else 0)
    if keep:
        assert "slow" not in world.broker.sessions, (
            "a QoS 1 message beyond the bound ends the session"
        )
    else:
        assert world.durable("slow", answers=True).payloads == expected


def test_qos_0_that_waited_keeps_its_place() -> None:
    world = World(queue=[QueueSection(qos_0=True)])
    world.absent("slow")
    publisher = world.accepted(answers=True)
    for number in range(6):
        publisher.publish("t", str(number), qos=number % 3)
    slow = world.durable("slow", answers=True)
    assert [(packet.payload, packet.qos) for packet in slow.take_all(Publish)] == [
        (b"%d" % n, n % 3) for n in range(6)
    ]
    assert world.broker.queued == 0


def test_qos_0_is_dropped_for_a_client_that_does_not_read() -> None:
    world = World()
    slow, other = world.accepted(), world.accepted()
    for client in (slow, other):
        client.subscribe("t")
    slow.connection.full = True
    publisher = world.accepted(answers=True)
    publisher.publish("t", "0", qos=0)
    publisher.publish("t", "1", qos=1)
    assert slow.received == []
    assert other.payloads == [b"0", b"1"]
    slow.read_on()
    assert slow.payloads == [b"1"]
    assert world.broker.statistics.dropped == 1


# -- the spool


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_full_spool_refuses_and_goes_on_when_rows_have_landed(qos: int, power_cut: bool) -> None:
    world = World(spool_bytes=1000)
    subscriber = world.accepted(answers=True)
    subscriber.subscribe("#")
    publisher = world.durable("p", answers=True)
    for number in range(1, 11):
        publisher.publish("spool/t", bytes(60), qos, packet_id=number)
    answers = publisher.take_all(Pubrec if qos == 2 else Puback)
    publisher.take_all()
    assert [answer.reason for answer in answers] == [R.SUCCESS] * 7 + [R.QUOTA_EXCEEDED] * 3
    assert len(subscriber.payloads) == 7
    if power_cut:
        world.power_cut()
        publisher = world.durable("p", answers=True)
    publisher.publish("spool/t", bytes(60), qos, packet_id=8)
    assert publisher.take(Pubrec if qos == 2 else Puback).reason == R.QUOTA_EXCEEDED
    publisher.publish("elsewhere", bytes(60), qos, packet_id=9)
    assert publisher.take(Pubrec if qos == 2 else Puback).reason == R.SUCCESS
    world.database.execute("DELETE FROM spool")
    world.broker.spool.landed(8)
    assert world.broker.spool.size == 0
    publisher.take_all()
    publisher.publish("spool/t", bytes(60), qos, packet_id=8)
    assert publisher.take(Pubrec if qos == 2 else Puback).reason == R.SUCCESS
    assert world.rows("SELECT id FROM spool") == [(8,)], "spool ids are never used twice"


def test_qos_0_beyond_a_full_spool_is_counted() -> None:
    world = World(spool_bytes=200)
    publisher = world.accepted()
    for _ in range(5):
        publisher.publish("spool/t", bytes(60))
    assert world.rows("SELECT count(*) FROM spool") == [(1,)]
    assert world.broker.statistics.refused("publish") == 4


# -- a disk that accepts no data


def test_client_that_waits_for_a_full_disk_gets_pingresp() -> None:
    """PINGRESP waits for the answers before it, except for answers that wait for a failing disk. It
    is never sent before CONNACK.
    """
    world = World()
    world.absent("slow")
    kept = world.durable("kept")
    world.slow_disk = True
    kept.publish("t", "x", qos=2, packet_id=1)
    kept.send(Pingreq())
    assert kept.received == []
    world.disk_full(True)
    newcomer = world.connect("newcomer", clean=False, properties=FOREVER)
    for client in (kept, newcomer):
        client.send(Pingreq())
    assert kept.take_all() == [Pingresp()]
    assert kept.connection.size == 6  # waiting answers still count: PUBREC and its PINGRESP
    assert newcomer.received == []
    world.slow_disk = False
    world.disk_full(False)
    world.commit()
    assert [type(packet) for packet in kept.take_all()] == [Pubrec, Pingresp]
    assert [type(packet) for packet in newcomer.take_all()] == [Connack, Pingresp]


def test_while_the_disk_takes_nothing_publishers_that_need_it_are_refused() -> None:
    world = World()
    world.absent("slow")
    kept, loose = world.durable("kept"), world.accepted("loose")
    world.slow_disk = True
    kept.publish("t", "before", qos=2, packet_id=1)
    world.disk_full(True)
    kept.publish("t", "after", qos=2, packet_id=2)
    loose.publish("t", "after", qos=1)
    loose.publish("u", "nobody keeps it", qos=1)
    assert kept.received == [], "answers keep their order"
    assert [packet.reason for packet in loose.take_all()] == [R.QUOTA_EXCEEDED, R.SUCCESS]
    world.slow_disk = False
    world.disk_full(False)
    world.commit()
    assert [packet.reason for packet in kept.take_all()] == [R.SUCCESS, R.QUOTA_EXCEEDED]
    assert world.durable("slow", answers=True).payloads == [b"before"]


def test_publications_beyond_the_disk_room_are_refused_until_the_commit() -> None:
    """A message for two queues counts only once in the room on the disk."""
    world = World()
    for name in ("first", "second"):
        world.absent(name)
    publisher = world.accepted("publisher")
    world.slow_disk = True
    world.disk.room = world.broker.disk_room = 1000
    publisher.publish("t", bytes(700), qos=1, packet_id=1)
    publisher.publish("t", bytes(700), qos=1, packet_id=2)
    publisher.publish("nobody keeps it", bytes(700), qos=1, packet_id=3)
    assert 0 < world.broker.disk_room < 300, "what is on its way to the disk counts"
    world.slow_disk = False
    world.commit()
    publisher.publish("t", bytes(700), qos=1, packet_id=4)
    world.commit()
    assert [packet.reason for packet in publisher.take_all()] == [
        R.SUCCESS,
        R.QUOTA_EXCEEDED,
        R.SUCCESS,
        R.SUCCESS,
    ]


@pytest.mark.parametrize("kept", [False, True])
def test_a_session_that_ends_in_the_middle_of_a_publication_gets_nothing_of_it(kept: bool) -> None:
    """A publication goes to two sessions. To make room for the first session's message, the broker
    ends the second session before it queues the message there.
    """
    world = World(memory_bytes=3000)
    world.absent("first")
    second = world.durable("second") if kept else world.accepted("second")
    second.subscribe("u")
    if kept:
        second.drop()
    for number in range(1, 15):
        world.accepted("p").publish("u", bytes(100), 1, packet_id=number)
    second = world.clients.get(second.connection) or world.durable("second")
    second.subscribe("t")
    world.accepted("p").publish("t", bytes(800), 1)
    assert "second" not in world.broker.sessions
    world.commit()
    assert world.broker.queued == world.broker.sessions["first"].send_flow.size > 0
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(1,)]
    )


@pytest.mark.parametrize("before", [0, 200, 300, 500, 590, 600])
def test_a_run_drops_the_oldest_at_the_cost_of_a_few_messages(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many dashboards may be away with full queues, so a message must not take time for each of
    their queues. At most a tenth more messages than needed are dropped, and each is counted.
    """
    asked = Mock(wraps=make_room)
    monkeypatch.setattr(fan_out, "make_room", asked)
    world = World(queue=full("drop the oldest"), queue_messages=600)
    world.absent("slow")
    publisher = world.accepted(version=V4, answers=True)
    for first, count in ((0, before), (before, 500), (before + 500, 400)):
        publisher.send(
            *(Publish("t", b"%04d" % at, 1, at + 1) for at in range(first, first + count))
        )
    kept = world.durable("slow", answers=True).payloads
    assert asked.call_count < 20
    assert kept == sorted(kept)
    assert 540 <= len(kept) <= 600
    assert len(kept) + world.broker.statistics.overflowed == before + 900


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("free", [0, 1, 100, 599])
def test_a_run_is_refused_at_the_cost_of_a_few_messages(
    free: int, qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many full queues may refuse a publisher, so checking all of them for each message would take
    too long. The broker accepts the first messages of a run, for which there is room. It refuses
    the others by their packet identifiers, without further checks.
    """
    asked = Mock(wraps=is_full)
    monkeypatch.setattr(fan_out, "is_full", asked)
    world = World(queue=full("refuse the publisher"), queue_messages=600)
    world.absent("slow")
    fill(world, 600 - free)
    publisher = world.accepted()
    asked.reset_mock()
    publisher.send(*(Publish("t", b"%04d" % at, qos, at + 1) for at in range(600)))
    answers: list[Any] = publisher.take_all(Pubrec if qos == 2 else Puback)
    assert asked.call_count < 40
    assert [item.packet_id for item in answers] == list(range(1, 601))
    assert [item.reason for item in answers] == [R.SUCCESS] * free + [R.QUOTA_EXCEEDED] * (
        600 - free
    )
    assert world.durable("slow", answers=True).payloads[600 - free :] == [
        b"%04d" % at for at in range(free)
    ]


def test_a_run_beyond_the_receive_maximum_is_taken_as_far_as_it_is_acknowledged_meanwhile() -> None:
    """The broker acknowledges a QoS 1 message at once if it need not be stored. So a run of such
    messages may be longer than the Receive Maximum.
    """
    world = World(receive_maximum=1)
    other = world.accepted(answers=True)
    other.subscribe("t")
    publisher = world.accepted()
    publisher.send(*(Publish("t", b"%04d" % at, 1, at + 1) for at in range(1024)))
    assert len(publisher.take_all(Puback)) == len(other.payloads) == 1024


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("long", ["properties", "topic"])
def test_long_properties_and_long_topic_names_count_as_payload_does(long: str, kept: bool) -> None:
    """Topic names and properties take memory and disk as payloads do. If they did not count, a
    sender without payloads could use up the room of others.
    """
    world = World(queue=full("refuse the publisher"), queue_bytes=100_000)
    slow = world.accepted("slow", clean=not kept, properties=FOREVER if kept else None)
    slow.subscribe("#")
    if kept:
        slow.drop()
    publisher = world.accepted()
    for number in range(10):
        text = "x" * 20_000
        if long == "topic":
            publisher.publish(f"{number}{text}", b"", 1)
        else:
            publisher.publish("t", b"", 1, properties={PropertyId.USER_PROPERTY: [("k", text)]})
    reasons = [item.reason for item in publisher.take_all(Puback)]
    assert reasons == [R.SUCCESS] * 4 + [R.QUOTA_EXCEEDED] * 6
    assert 80_000 < world.broker.queued < 100_000
    if kept:
        queued = world.broker.queued
        world.power_cut()
        assert world.broker.queued == queued
        assert len(world.durable("slow", answers=True).payloads) == 4
        assert world.broker.queued == 0


def test_disk_room_counts_properties() -> None:
    world = World()
    world.absent("slow")
    world.disk.room = world.broker.disk_room = 50_000
    world.slow_disk = True
    publisher = world.accepted()
    for _ in range(5):
        text = "x" * 20_000
        publisher.publish("t", b"", 1, properties={PropertyId.USER_PROPERTY: [("k", text)]})
    world.commit()
    reasons = [item.reason for item in publisher.take_all(Puback)]
    assert reasons == [R.SUCCESS] * 2 + [R.QUOTA_EXCEEDED] * 3


def test_qos_0_that_waited_behind_qos_1_counts_no_more_when_its_client_is_away() -> None:
    world = World()
    reader = world.durable("reader", properties={PropertyId.RECEIVE_MAXIMUM: 1})
    reader.subscribe("t", qos=1)
    writer = world.accepted("writer")
    for qos in (1, 1, 0, 1, 0):
        writer.publish("t", b"x", qos)
    flow = world.broker.sessions["reader"].send_flow
    assert flow.messages == 5
    reader.drop()
    assert flow.messages == 3
    assert world.broker.queued == flow.size == 3 * (1 + 64)
