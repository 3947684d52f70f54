"""Receive Maximum in both directions, and packets that do not wait (MQTT 5, section 4.9)."""

import pytest

from gateway.mqtt.packets import (
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5


@pytest.mark.mqtt("MQTT-3.3.4-7", "MQTT-4.13.1-1")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("together", [False, True])
def test_client_beyond_our_receive_maximum_gets_0x93(qos: int, together: bool) -> None:
    world = World(receive_maximum=3)
    world.durable("s").subscribe("t")
    publisher = world.accepted()
    world.slow_disk = True
    packets = [Publish("t", b"%d" % number, qos, number) for number in range(1, 5)]
    if together:
        publisher.send(*packets)
    else:
        for packet in packets:
            publisher.send(packet)
    assert publisher.take(Disconnect).reason == R.RECEIVE_MAXIMUM_EXCEEDED
    assert publisher.closed


@pytest.mark.parametrize("refused", [False, True])
def test_completed_and_refused_messages_return_their_quota(refused: bool) -> None:
    """MQTT 5, section 4.9: PUBACK and PUBCOMP return the quota, and so does a PUBREC of 0x80 or
    above.
    """
    world = World(receive_maximum=1, spool_bytes=1 if refused else 1 << 20)
    publisher = world.durable("p", answers=True)
    for number in range(1, 6):
        publisher.publish("spool/t", "x", 2 - number % 2, packet_id=number)
    assert not publisher.closed
    answers = publisher.take_all(Puback) + publisher.take_all(Pubrec)
    assert {answer.reason for answer in answers} == {R.QUOTA_EXCEEDED if refused else R.SUCCESS}
    assert len(answers) == 5


def test_a_repeated_publish_takes_no_quota() -> None:
    world = World(receive_maximum=1)
    publisher = world.durable("p")
    for _ in range(5):
        publisher.publish("t", "x", 2, packet_id=1)
        publisher.take(Pubrec)
    assert not publisher.closed


@pytest.mark.parametrize("power_cut", [False, True])
def test_our_receive_maximum_restarts_with_each_connection(power_cut: bool) -> None:
    """MQTT 5, section 4.9: the send quota belongs to the Network Connection. A client that still
    owes PUBREL for messages of an earlier connection may send as many new PUBLISH packets as the
    Receive Maximum allows. A repeated PUBLISH counts, too.
    """
    world = World(receive_maximum=2)
    publisher = world.durable("p")
    publisher.send(Publish("t", b"1", 2, 1), Publish("t", b"2", 2, 2))
    world.power_cut() if power_cut else publisher.drop()
    publisher = world.durable("p")
    publisher.send(Publish("t", b"3", 2, 3), Publish("t", b"2", 2, 2, dup=True), Pubrel(1))
    assert publisher.take_all() == [Pubrec(3), Pubrec(2), Pubcomp(1)]
    publisher.send(Pubrel(2), Publish("t", b"4", 2, 4))
    assert publisher.take_all() == [Pubcomp(2), Pubrec(4)]
    publisher.send(Publish("t", b"5", 2, 5))
    assert publisher.take(Disconnect).reason == R.RECEIVE_MAXIMUM_EXCEEDED


@pytest.mark.mqtt("311:MQTT-4.5.0-1", "311:MQTT-3.3.4-1")
@pytest.mark.parametrize("version", [V3, V4])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("together", [False, True])
def test_receive_maximum_does_not_apply_before_mqtt_5(
    version: Version, qos: int, together: bool
) -> None:
    """Before MQTT 5, a client does not learn the Receive Maximum. It may send as many messages as
    there are packet identifiers.
    """
    world = World(receive_maximum=2)
    world.durable("s").subscribe("t")
    publisher = world.accepted("p", version=version, clean=False)
    world.slow_disk = True
    packets = [Publish("t", b"%03d" % number, qos, number) for number in range(1, 101)]
    if together:
        publisher.send(*packets)
    else:
        for packet in packets:
            publisher.send(packet)
    world.slow_disk = False
    world.commit()
    assert publisher.take_all() == [
        (Puback if qos == 1 else Pubrec)(number) for number in range(1, 101)
    ]
    assert world.durable("s", answers=True).payloads == [packet.payload for packet in packets]


@pytest.mark.mqtt("MQTT-4.9.0-1", "MQTT-4.9.0-2", "MQTT-3.3.4-9")
@pytest.mark.parametrize("maximum", [1, 3, None])
def test_all_qos_1_and_2_messages_share_one_quota(maximum: int | None) -> None:
    world = World()
    client = world.durable("c", properties={} if maximum is None else {P.RECEIVE_MAXIMUM: maximum})
    client.subscribe("t")
    publisher = world.accepted(answers=True)
    publisher.send(
        *(Publish("t", b"%d" % number, 1 + number % 2, number) for number in range(1, 9))
    )
    unacknowledged: list[Publish | Pubrel] = []
    seen = 0
    while client.received or unacknowledged:
        unacknowledged += client.take_all()
        seen += sum(isinstance(packet, Publish) for packet in unacknowledged)
        assert len(unacknowledged) <= (maximum or 8)
        match unacknowledged.pop(0):
            case Publish(qos=1, packet_id=number):
                client.send(Puback(number))
            case Publish(packet_id=number):
                client.send(Pubrec(number))
            case Pubrel(packet_id=number):
                client.send(Pubcomp(number))
    assert len(world.broker.sessions["c"].send_flow.flights.acknowledging) == 0
    assert world.broker.statistics.sent[1:] == [4, 4]


@pytest.mark.mqtt("MQTT-4.9.0-3", "MQTT-3.3.4-8", "MQTT-3.3.4-10")
def test_a_used_up_quota_holds_up_nothing_but_publish_at_qos_1_and_2() -> None:
    world = World(receive_maximum=1)
    client = world.durable("c", properties={P.RECEIVE_MAXIMUM: 1})
    client.subscribe("t")
    client.publish("elsewhere", "1", 2, packet_id=1)
    world.accepted(answers=True).publish("t", "1", 2)
    assert [type(packet) for packet in client.take_all()] == [Pubrec, Publish]
    client.send(Subscribe(7, [Subscription("u", 0)]), Pingreq())
    assert len(client.take_all()) == 2
    world.accepted().publish("u", "qos 0", 0)
    assert client.payloads == [b"qos 0"]
    client.publish("elsewhere", "qos 0", 0)
    client.send(Pingreq())
    client.take(Publish)
    client.take(Pingresp)
    assert not client.closed


@pytest.mark.mqtt("MQTT-4.4.0-1", "MQTT-4.3.3-5", "MQTT-4.9.0-2")
@pytest.mark.parametrize("power_cut", [False, True])
def test_pubrel_of_an_earlier_connection_comes_before_publish_and_all_keep_the_new_quota(
    power_cut: bool,
) -> None:
    world = World()
    client = world.durable("c")
    client.subscribe("t")
    publisher = world.accepted(answers=True)
    for number in range(1, 6):
        publisher.publish("t", str(number), 2)
    client.take_all()
    client.send(Pubrec(2), Pubrec(1))
    assert client.take_all() == [Pubrel(2), Pubrel(1)]
    world.power_cut() if power_cut else client.drop()
    client = world.durable("c", properties={P.RECEIVE_MAXIMUM: 3})
    assert client.take_all() == [Pubrel(2), Pubrel(1), Publish("t", b"3", 2, 3, dup=True)]
    client.send(Pubcomp(1))
    assert client.take_all() == [Publish("t", b"4", 2, 4, dup=True)]
