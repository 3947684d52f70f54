"""The gateway as a receiver of QoS 2 messages by Method B: the stored state, the answers, and the
commit for which each answer waits.
"""

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.mqtt.packets import Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Version
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import World

V4, V5 = Version.V3_1_1, Version.V5


@pytest.mark.mqtt("MQTT-4.3.3-8", "MQTT-4.3.3-9", "311:MQTT-4.3.3-2")
@pytest.mark.parametrize("version", [V4, V5])
def test_qos_2_is_delivered_at_publish_and_only_the_identifier_is_kept(version: Version) -> None:
    world = World()
    subscriber = world.accepted(answers=True)
    subscriber.subscribe("a")
    publisher = (
        world.durable("p") if version == V5 else world.accepted("p", version=version, clean=False)
    )
    publisher.publish("a", "once", qos=2, packet_id=7)
    assert publisher.take(Pubrec) == Pubrec(7)
    assert subscriber.payloads == [b"once"]
    assert world.rows("SELECT received FROM flow") == [(b"\0\7",)]
    assert world.rows("SELECT * FROM message") == []
    publisher.send(Pubrel(7))
    assert publisher.take(Pubcomp) == Pubcomp(7)
    assert world.rows("SELECT received FROM flow") == [(b"",)]


@pytest.mark.mqtt("MQTT-4.3.3-10", "311:MQTT-4.3.3-2")
@pytest.mark.parametrize("dup", [False, True])
def test_a_repeated_publish_is_answered_and_goes_nowhere_however_often(dup: bool) -> None:
    world = World()
    subscriber = world.accepted(answers=True)
    subscriber.subscribe("a")
    publisher = world.durable("p")
    for _ in range(5):
        publisher.publish("a", "once", qos=2, packet_id=7, dup=dup)
        assert publisher.take(Pubrec) == Pubrec(7)
    assert subscriber.payloads == [b"once"]
    assert world.broker.statistics.repeated == 4


@pytest.mark.mqtt("MQTT-4.3.3-10")
def test_a_repeated_publish_is_known_after_a_power_cut() -> None:
    world = World()
    world.durable("s").subscribe("a")
    publisher = world.durable("p")
    publisher.publish("a", "once", qos=2, packet_id=7)
    world.power_cut()
    publisher = world.durable("p")
    publisher.publish("a", "once", qos=2, packet_id=7, dup=True)
    assert publisher.take(Pubrec) == Pubrec(7)
    publisher.send(Pubrel(7))
    assert publisher.take(Pubcomp) == Pubcomp(7)
    assert world.durable("s", answers=True).payloads == [b"once"]


@pytest.mark.mqtt("MQTT-4.3.3-12")
def test_the_identifier_can_be_used_for_a_new_message_after_pubcomp() -> None:
    world = World()
    subscriber = world.accepted(answers=True)
    subscriber.subscribe("a")
    publisher = world.durable("p", answers=True)
    publisher.publish("a", "first", qos=2, packet_id=7)
    publisher.publish("a", "second", qos=2, packet_id=7, dup=True)
    assert subscriber.payloads == [b"first", b"second"], (
        "DUP is no evidence that a message was seen before"
    )


@pytest.mark.mqtt("MQTT-4.3.3-11", "MQTT-3.6.2-1")
def test_a_pubrel_for_an_unknown_identifier_is_never_answered_with_success() -> None:
    publisher = World().durable("p")
    publisher.send(Pubrel(9))
    assert publisher.take(Pubcomp) == Pubcomp(9, R.PACKET_IDENTIFIER_NOT_FOUND)


def test_known_and_unknown_identifiers_in_one_piece() -> None:
    publisher = World().durable("p")
    publisher.publish("a", qos=2, packet_id=2)
    publisher.take(Pubrec)
    publisher.send(Pubrel(1), Pubrel(2), Pubrel(3))
    assert publisher.take_all() == [
        Pubcomp(1, R.PACKET_IDENTIFIER_NOT_FOUND),
        Pubcomp(2),
        Pubcomp(3, R.PACKET_IDENTIFIER_NOT_FOUND),
    ]


def test_a_pubrel_that_comes_twice_in_one_piece_was_known_the_first_time() -> None:
    publisher = World().durable("p")
    publisher.publish("a", qos=2, packet_id=2)
    publisher.take(Pubrec)
    publisher.send(Pubrel(2), Pubrel(2))
    assert publisher.take_all() == [Pubcomp(2), Pubcomp(2, R.PACKET_IDENTIFIER_NOT_FOUND)]


@pytest.mark.mqtt("311:MQTT-4.3.3-2")
def test_a_client_of_3_1_1_gets_its_pubcomp_for_any_pubrel() -> None:
    publisher = World().accepted("p", version=V4)
    publisher.send(Pubrel(9))
    assert publisher.take(Pubcomp) == Pubcomp(9)


@pytest.mark.parametrize("qos", [1, 2])
def test_an_answer_leaves_after_the_commit_that_makes_it_true(qos: int) -> None:
    world = World()
    world.durable("s").subscribe("a")
    publisher = world.durable("p")
    world.slow_disk = True
    publisher.publish("a", "x", qos=qos)
    assert publisher.received == []
    world.commit()
    publisher.take(Puback if qos == 1 else Pubrec)


def test_pubcomp_leaves_after_the_commit_that_forgets_the_identifier() -> None:
    world = World()
    publisher = world.durable("p")
    publisher.publish("a", qos=2, packet_id=7)
    publisher.take(Pubrec)
    world.slow_disk = True
    publisher.send(Pubrel(7))
    assert publisher.received == []
    world.commit()
    publisher.take(Pubcomp)


def test_a_repeated_publish_is_not_answered_before_the_first_one_is_on_disk() -> None:
    world = World()
    publisher = world.durable("p")
    world.slow_disk = True
    publisher.publish("a", qos=2, packet_id=7)
    publisher.drop()
    publisher = world.connect("p", clean=False, properties={17: 100})
    publisher.publish("a", qos=2, packet_id=7, dup=True)
    assert publisher.received == []
    world.commit()
    assert [type(packet).__name__ for packet in publisher.received] == ["Connack", "Pubrec"]


def test_a_clean_session_waits_for_no_disk() -> None:
    world = World()
    world.slow_disk = True
    subscriber = world.accepted(answers=True)
    subscriber.subscribe("a")
    publisher = world.accepted(answers=True)
    for qos in (0, 1, 2):
        publisher.publish("a", str(qos), qos=qos)
    assert subscriber.payloads == [b"0", b"1", b"2"]
    assert [type(packet) for packet in publisher.received] == [Puback, Pubrec, Pubcomp]
    assert world.broker.changes.empty


@pytest.mark.mqtt("MQTT-4.6.0-2", "MQTT-4.6.0-3")
def test_answers_come_in_the_order_of_the_messages_though_some_wait_for_the_disk() -> None:
    world = World()
    world.durable("s").subscribe("kept", "both")
    publisher = world.accepted()
    world.slow_disk = True
    publisher.publish("kept", qos=1, packet_id=1)
    publisher.publish("loose", qos=1, packet_id=2)
    publisher.publish("kept", qos=2, packet_id=3)
    publisher.publish("loose", qos=2, packet_id=4)
    assert publisher.received == []
    world.commit()
    assert publisher.take_all() == [Puback(1), Puback(2), Pubrec(3), Pubrec(4)]


@pytest.mark.mqtt("MQTT-3.3.4-7")
@pytest.mark.parametrize("qos", [1, 2])
def test_more_than_the_receive_maximum_in_flight_gets_0x93(qos: int) -> None:
    world = World(receive_maximum=2)
    world.durable("s").subscribe("a")
    publisher = world.durable("p")
    world.slow_disk = True
    publisher.send(*(Publish("a", b"x", qos, number) for number in (1, 2)))
    assert not publisher.closed
    publisher.send(Publish("a", b"x", qos, 3))
    assert publisher.closed
    assert publisher.take(Disconnect).reason == R.RECEIVE_MAXIMUM_EXCEEDED


@pytest.mark.parametrize("qos", [1, 2])
def test_the_messages_within_the_receive_maximum_count_even_in_one_piece_with_one_too_many(
    qos: int,
) -> None:
    world = World(receive_maximum=2)
    subscriber = world.accepted(answers=True)
    subscriber.subscribe("a")
    world.durable("s").subscribe("a")
    publisher = world.durable("p")
    publisher.publish("a", "first", 0)
    world.slow_disk = True
    publisher.send(*(Publish("a", b"x%d" % number, qos, number) for number in (1, 2, 3)))
    assert publisher.closed
    world.commit()
    assert subscriber.payloads == [b"first", b"x1", b"x2"]


def test_a_sender_without_pubrel_keeps_its_quota_and_costs_no_payload() -> None:
    world = World(receive_maximum=10)
    publisher = world.durable("p")
    for number in range(1, 11):
        publisher.publish("a", bytes(100_000), qos=2, packet_id=number)
        publisher.take(Pubrec)
    assert len(world.rows("SELECT received FROM flow")[0][0]) == 20
    publisher.publish("a", bytes(100_000), qos=2, packet_id=11)
    assert publisher.closed


def test_a_device_has_its_name_incarnation_and_sequence_in_the_spool() -> None:
    world = World(receive_maximum=1)
    device = DeviceIdentity("pump-3", 0xDEADBEEF, 0x1FFFE)
    publisher = world.durable("pump-3", device=device, answers=True)
    for packet_id in (0xFFFD, 0xFFFE, 0xFFFF, 1, 2):
        publisher.publish("spool/t", str(packet_id), qos=2, packet_id=packet_id)
    assert world.rows(
        "SELECT device, incarnation, sequence, client, topic, payload FROM spool"
    ) == [
        ("pump-3", 0xDEADBEEF, sequence, "pump-3", "spool/t", str(sequence & 0xFFFF).encode())
        for sequence in (0x1FFFD, 0x1FFFE, 0x1FFFF, 0x20001, 0x20002)
    ]


def test_a_device_waits_for_one_commit_per_publication_and_a_client_for_two() -> None:
    """A device's PUBREC has already waited for a commit, which also stored what PUBCOMP promises. A
    second commit would only wear out the card.
    """
    for device, commits in ((DeviceIdentity("c", 7, 1), 1), (None, 2)):
        world = World(receive_maximum=1)
        publisher = world.durable("c", device=device, answers=True)
        before = len(world.commits)
        publisher.publish("spool/t", "x", qos=2)
        assert [type(packet) for packet in publisher.take_all()] == [Pubrec, Pubcomp]
        assert len(world.commits) - before == commits


def test_a_devices_pubcomp_waits_for_the_commit_of_its_publish() -> None:
    world = World(receive_maximum=1)
    publisher = world.durable("c", device=DeviceIdentity("c", 7, 1))
    world.slow_disk = True
    publisher.send(Publish("spool/t", b"x", 2, 1), Pubrel(1))
    assert publisher.take_all() == []
    world.commit()
    assert publisher.take_all() == [Pubrec(1), Pubcomp(1)]


def test_an_identifier_that_a_power_cut_brings_back_swallows_nothing() -> None:
    """The power fails after the device has received PUBCOMP, but before the store has deleted the
    packet identifier. Much later, the device uses the same identifier for another message.
    """
    world = World(receive_maximum=1)
    publisher = world.durable("c", device=DeviceIdentity("c", 7, 5), answers=True)
    publisher.publish("spool/t", "5", qos=2, packet_id=5)
    world.power_cut()
    assert world.rows("SELECT received FROM flow") == [(b"\0\5",)]
    publisher = world.durable("c", device=DeviceIdentity("c", 7, 6), answers=True)
    again = [*range(6, 80), *range(65_500, 65_536), *range(1, 8)]
    for packet_id in again:
        publisher.publish("spool/t", str(packet_id), qos=2, packet_id=packet_id)
    payloads = [int(row[0]) for row in world.rows("SELECT payload FROM spool ORDER BY id")]
    assert payloads == [5, *again]


def test_a_device_that_sends_an_older_one_again_keeps_the_younger_one() -> None:
    world = World(receive_maximum=2)
    publisher = world.durable("c", device=DeviceIdentity("c", 7, 1))
    for packet_id in (2, 1, 2, 1):
        publisher.publish("spool/t", str(packet_id), qos=2, packet_id=packet_id)
    assert world.rows("SELECT payload FROM spool ORDER BY id") == [(b"2",), (b"1",)]


@pytest.mark.parametrize("count", [2, 3])
def test_a_run_with_an_identifier_twice_is_one_message(count: int) -> None:
    world = World()
    subscriber = world.accepted(answers=True)
    subscriber.subscribe("a")
    publisher = world.durable("p")
    publisher.publish("a", "0", 0)
    publisher.send(*[Publish("a", b"1", 2, 5)] * count)
    assert publisher.take_all() == [Pubrec(5)] * count
    assert subscriber.payloads == [b"0", b"1"]
