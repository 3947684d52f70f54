"""PUBLISH and its acknowledgements (MQTT 5, sections 3.3, 4.3 and 4.6; MQTT 3.1.1, also section
3.3.5).
"""

import pytest

from gateway.access.rules import Policy
from gateway.broker.connection import Connection
from gateway.mqtt.packets import Connack, Puback, Pubcomp, Publish, Pubrec, Pubrel, Version, Will
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Anonymous, Client, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V3, V4, V5])
POWER_CUT = pytest.mark.parametrize("power_cut", [False, True])


class ReadOnly(Anonymous):
    """Access rules that forbid every client to publish to `forbidden`."""

    def refuses_publish(self, connection: Connection, topic: str) -> R | None:
        return R.NOT_AUTHORIZED if topic == "forbidden" else None


def kept(world: World, name: str, version: Version) -> Client:
    return world.accepted(
        name, version=version, clean=False, properties=FOREVER if version == V5 else None
    )


@pytest.mark.mqtt(
    *(
        "MQTT-3.3.4-1",
        "MQTT-2.2.1-5",
        "MQTT-4.3.2-4",
        "MQTT-4.3.3-8",
        "MQTT-4.3.3-11",
        "MQTT-3.4.2-1",
        "MQTT-3.5.2-1",
        "MQTT-3.7.2-1",
    ),
    *("311:MQTT-3.3.4-1", "311:MQTT-2.3.1-6", "311:MQTT-4.3.2-2", "311:MQTT-4.3.3-2"),
)
@VERSIONS
@pytest.mark.parametrize("packet_id", [1, 255, 256, 65535])
def test_each_qos_has_its_answer_with_the_same_identifier(version: Version, packet_id: int) -> None:
    client = World().accepted("c", version=version)
    client.publish("t", "x", 0)
    assert client.received == []
    client.publish("t", "x", 1, packet_id=packet_id)
    assert client.take(Puback) == Puback(packet_id)
    client.publish("t", "x", 2, packet_id=packet_id)
    assert client.take(Pubrec) == Pubrec(packet_id)
    client.send(Pubrel(packet_id))
    assert client.take(Pubcomp) == Pubcomp(packet_id)
    assert client.received == []


@pytest.mark.mqtt(
    *("MQTT-4.6.0-2", "MQTT-4.6.0-3", "311:MQTT-4.6.0-2", "311:MQTT-4.6.0-3"),
)
@VERSIONS
@pytest.mark.parametrize("together", [False, True])
def test_acknowledgements_come_in_the_order_of_the_messages(
    version: Version, together: bool
) -> None:
    """The messages for the durable session wait for the disk. together: whether all messages arrive
    in one piece.
    """
    world = World()
    world.durable("s").subscribe("kept")
    client = world.accepted("c", version=version)
    world.slow_disk = True
    packets = [
        Publish(
            "kept" if number % 3 else "loose",
            b"x" * (number // 7),
            1 + number // 4 % 2,
            number * 97 % 65536,
        )
        for number in range(1, 30)
    ]
    if together:
        client.send(*packets)
    else:
        for packet in packets:
            client.send(packet)
    world.slow_disk = False
    world.commit()
    assert client.take_all() == [
        (Puback if packet.qos == 1 else Pubrec)(packet.packet_id) for packet in packets
    ]


@pytest.mark.mqtt("MQTT-4.3.3-4", "MQTT-4.6.0-4", "311:MQTT-4.6.0-4", "MQTT-3.6.2-1")
@VERSIONS
@pytest.mark.parametrize("together", [False, True])
def test_pubrel_follows_the_order_of_pubrec_for_any_identifiers(
    version: Version, together: bool
) -> None:
    world = World()
    client = kept(world, "c", version)
    client.subscribe("t")
    world.accepted(answers=True).send(*(Publish("t", b"x", 2, number) for number in range(1, 6)))
    client.take_all()
    order = [3, 9, 1, 3, 5, 4, 2]
    if together:
        client.send(*map(Pubrec, order))
    else:
        for number in order:
            client.send(Pubrec(number))
    unknown = R.PACKET_IDENTIFIER_NOT_FOUND if version == V5 else R.SUCCESS
    assert client.take_all() == [
        Pubrel(number, unknown if number == 9 else R.SUCCESS) for number in order
    ]


@pytest.mark.mqtt("MQTT-4.3.3-6", "MQTT-4.3.3-3", "311:MQTT-4.3.3-1")
@VERSIONS
@POWER_CUT
def test_pubrel_order_survives_and_no_publish_comes_again(
    version: Version, power_cut: bool
) -> None:
    world = World()
    client = kept(world, "c", version)
    client.subscribe("t")
    world.accepted(answers=True).send(*(Publish("t", b"x", 2, number) for number in range(1, 6)))
    client.take_all()
    client.send(Pubrec(4), Pubrec(2), Pubrec(3))
    world.power_cut() if power_cut else client.drop()
    client = kept(world, "c", version)
    assert client.take_all() == [
        *(Pubrel(number) for number in (4, 2, 3)),
        *(Publish("t", b"x", 2, number, dup=True) for number in (1, 5)),
    ]


@pytest.mark.mqtt("MQTT-4.3.3-9", "MQTT-4.3.3-12")
@POWER_CUT
def test_after_a_refusal_or_completion_the_identifier_means_a_new_message(power_cut: bool) -> None:
    world = World(spool_bytes=250)
    publisher = world.durable("p")
    for payload, answer in ((b"1", R.SUCCESS), (b"x" * 300, R.QUOTA_EXCEEDED), (b"2", R.SUCCESS)):
        publisher.publish("spool/t", payload, 2, packet_id=7)
        assert publisher.take(Pubrec) == Pubrec(7, answer)
        if answer == R.SUCCESS:
            publisher.send(Pubrel(7))
            publisher.take(Pubcomp)
        if power_cut:
            world.power_cut()
            publisher = world.durable("p")
    assert world.rows("SELECT payload FROM spool") == [(b"1",), (b"2",)]


@pytest.mark.mqtt("MQTT-4.3.3-10", "MQTT-4.3.3-11", "311:MQTT-4.3.3-2")
@VERSIONS
@POWER_CUT
def test_a_repeated_exchange_is_answered_from_where_it_was(
    version: Version, power_cut: bool
) -> None:
    world = World()
    world.durable("s").subscribe("t")
    publisher = kept(world, "p", version)
    for step in range(3):
        publisher.publish("t", "x", 2, packet_id=5, dup=step > 0)
        assert publisher.take(Pubrec) == Pubrec(5)
        world.power_cut() if power_cut else publisher.drop()
        publisher = kept(world, "p", version)
    publisher.send(Pubrel(5))
    assert publisher.take(Pubcomp) == Pubcomp(5)
    publisher.send(Pubrel(5))
    assert publisher.take(Pubcomp) == Pubcomp(
        5, R.PACKET_IDENTIFIER_NOT_FOUND if version == V5 else R.SUCCESS
    )
    assert world.durable("s", answers=True).payloads == [b"x"]


@pytest.mark.mqtt("MQTT-4.3.2-5", "311:MQTT-4.3.2-2")
@VERSIONS
def test_identifier_of_qos_1_is_free_after_puback_with_and_without_dup(version: Version) -> None:
    world = World()
    hearer = world.accepted(answers=True)
    hearer.subscribe("t")
    client = world.accepted("c", version=version)
    for dup in (False, True, False):
        client.publish("t", "x", 1, packet_id=3, dup=dup)
        client.take(Puback)
    assert len(hearer.payloads) == 3


@pytest.mark.mqtt("311:MQTT-3.3.5-2", "311:MQTT-4.8.0-2")
@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_forbidden_message_is_refused_or_closes_an_older_connection(
    version: Version, qos: int
) -> None:
    world = World()
    hearer = world.accepted(answers=True)
    hearer.subscribe("#")
    client = world.accepted("c", version=version, policy=Policy(ReadOnly()))
    client.publish("forbidden", "x", qos, packet_id=4 if qos else 0, retain=True)
    answers = client.take_all()
    if version == V5 and qos:
        assert answers == [(Puback if qos == 1 else Pubrec)(4, R.NOT_AUTHORIZED)]
    else:
        assert answers == []
    assert client.closed == (qos > 0 and version < V5)
    assert hearer.received == []
    assert world.broker.retained.count == 0


@pytest.mark.mqtt("MQTT-3.1.4-2", "311:MQTT-3.2.2-5")
@VERSIONS
def test_a_will_that_its_client_may_not_publish_is_refused_at_connect(version: Version) -> None:
    world = World()
    client = world.connect(
        "c", version=version, will=Will("forbidden", b"x"), policy=Policy(ReadOnly())
    )
    assert client.take(Connack).reason == R.NOT_AUTHORIZED
    assert client.closed
    assert (
        world.connect("c", version=version, will=Will("allowed"), policy=Policy(ReadOnly()))
        .take(Connack)
        .reason
        == R.SUCCESS
    )


@pytest.mark.mqtt(
    "MQTT-3.3.1-1",
    "MQTT-3.3.1-2",
    "MQTT-4.3.1-1",
    "MQTT-4.4.0-1",
    "311:MQTT-3.3.1-1",
    "311:MQTT-3.3.1-2",
)
@VERSIONS
@POWER_CUT
def test_first_transmission_after_a_reconnect_has_no_dup(version: Version, power_cut: bool) -> None:
    world = World(inflight=2)
    client = kept(world, "c", version)
    client.subscribe("t")
    publisher = world.accepted(answers=True)
    for qos in (1, 2, 1, 2):
        publisher.publish("t", "x", qos)
    assert [packet.dup for packet in client.take_all()] == [False, False]
    if power_cut:
        client.disconnect()
        world.sleep(1)
        world.power_cut()
    else:
        client.drop()
    client = kept(world, "c", version)
    seen = client.take_all()
    client.send(Puback(1), Pubrec(2))
    client.take(
        Publish if not client.received or isinstance(client.received[0], Publish) else Pubrel
    )
    client.send(Pubcomp(2))
    seen += client.take_all(Publish)
    assert [(packet.packet_id, packet.dup) for packet in seen][:2] == [(1, True), (2, True)]
    assert all(not packet.dup for packet in seen[2:])


@pytest.mark.mqtt("MQTT-3.3.2-5", "MQTT-3.3.2-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("expiry", "waited", "told"),
    [(10, 0, 10), (10, 4, 6), (10, 9, 1), (10, 10, None), (0xFFFF_FFFF, 5, 0xFFFF_FFFA)],
)
def test_the_expiry_interval_that_is_left_is_reported(
    qos: int, expiry: int, waited: int, told: int | None
) -> None:
    world = World()
    client = world.durable("c", properties={P.RECEIVE_MAXIMUM: 1})
    client.subscribe("t")
    publisher = world.accepted(answers=True)
    publisher.publish("t", "first", 1)
    client.take(Publish)
    publisher.publish("t", "second", qos, properties={P.MESSAGE_EXPIRY_INTERVAL: expiry})
    if qos:
        world.sleep(waited)
        client.send(Puback(1))
    else:
        told = expiry
    assert [packet.properties for packet in client.take_all(Publish)] == [
        {P.MESSAGE_EXPIRY_INTERVAL: told}
    ] * (told is not None)


@pytest.mark.mqtt("MQTT-3.3.2-3", "311:MQTT-3.3.2-3", "MQTT-4.7.3-4", "311:MQTT-4.7.3-4")
@VERSIONS
def test_topic_names_and_payloads_arrive_as_they_were_sent(version: Version) -> None:
    world = World()
    client = world.accepted("c", version=version)
    client.subscribe("#", "$x/#")
    publisher = world.accepted("p", version=version)
    names = [
        "a",
        "/",
        "//",
        "a//b",
        "A",
        "ä",
        "a\u0308",
        "\ufeffa",
        "a b",
        "$x/y",
        "\U0010ffff",
        "x" * 65535,
    ]
    for name in names:
        publisher.publish(name, name.encode()[::-1])
    received = client.take_all()
    assert [packet.topic for packet in received] == names
    assert [packet.payload for packet in received] == [name.encode()[::-1] for name in names]
