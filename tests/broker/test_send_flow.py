"""Delivery to subscribers: QoS, order, packet identifiers, Receive Maximum, and repeated
packets.
"""

import pytest

from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Version
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World

V4, V5 = Version.V3_1_1, Version.V5


def kept(world: World, version: Version = V5, **properties: int) -> Client:
    """Return the client `s`, whose session outlives its connection. properties: properties of its
    CONNECT.
    """
    own = (
        FOREVER | {P[name.upper()]: value for name, value in properties.items()}
        if version == V5
        else None
    )
    return world.accepted("s", version=version, clean=False, properties=own)


@pytest.mark.mqtt(
    *(
        "MQTT-3.8.4-8",
        "MQTT-3.3.4-1",
        "MQTT-4.3.1-1",
        "MQTT-4.3.2-1",
        "MQTT-4.3.2-2",
        "MQTT-4.3.3-1",
        "MQTT-4.3.3-2",
        "MQTT-2.2.1-4",
    ),
    *(
        "311:MQTT-3.8.4-6",
        "311:MQTT-3.3.4-1",
        "311:MQTT-4.3.1-1",
        "311:MQTT-4.3.2-1",
        "311:MQTT-4.3.3-1",
    ),
    *("311:MQTT-2.3.1-4", "311:MQTT-2.3.1-5"),
)
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_message_goes_out_at_the_lower_of_both_qos(
    version: Version, granted: int, published: int
) -> None:
    world = World()
    subscriber = world.accepted("s", version=version)
    subscriber.subscribe("t", qos=granted)
    publisher = world.accepted("p", answers=True)
    for payload in (b"1", b"2"):
        publisher.publish("t", payload, qos=published)
    qos = min(granted, published)
    assert subscriber.take_all() == [
        Publish("t", b"%d" % number, qos, number if qos else 0) for number in (1, 2)
    ]
    assert [type(packet) for packet in publisher.received] == [[], [Puback], [Pubrec, Pubcomp]][
        published
    ] * 2


@pytest.mark.mqtt("MQTT-3.3.1-3", "311:MQTT-3.3.1-3")
def test_dup_is_not_passed_on() -> None:
    world = World()
    subscriber = world.accepted("s")
    subscriber.subscribe("t")
    world.accepted("p").publish("t", "x", qos=1, dup=True)
    assert subscriber.take(Publish) == Publish("t", b"x", 1, 1)


@pytest.mark.mqtt(
    *(
        "MQTT-4.4.0-1",
        "MQTT-3.3.1-1",
        "MQTT-4.3.2-3",
        "MQTT-4.3.3-3",
        "MQTT-4.6.0-1",
        "MQTT-2.2.1-5",
    ),
    *("311:MQTT-4.4.0-1", "311:MQTT-3.3.1-1", "311:MQTT-4.6.0-1", "311:MQTT-2.3.1-6"),
)
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("power_cut", [False, True])
def test_unacknowledged_message_is_sent_again_in_order_with_dup(
    version: Version, power_cut: bool
) -> None:
    world = World()
    subscriber = kept(world, version)
    subscriber.subscribe("t")
    publisher = world.accepted("p", answers=True)
    for number in range(1, 7):
        publisher.publish("t", str(number), qos=1 + number % 2)
    sent = subscriber.take_all(Publish)
    assert [(packet.packet_id, packet.dup) for packet in sent] == [
        (number, False) for number in range(1, 7)
    ]
    subscriber.send(Puback(4), Pubrec(3))
    world.sleep(1)
    if power_cut:
        world.power_cut()
    subscriber = kept(world, version)
    again = subscriber.take_all()
    assert again.pop(0) == Pubrel(3)
    assert again == [
        Publish("t", b"%d" % number, 1 + number % 2, number, dup=True) for number in (1, 2, 5, 6)
    ]


@pytest.mark.mqtt("MQTT-3.3.1-1", "311:MQTT-3.3.1-1")
@pytest.mark.parametrize("cuts", [1, 3])
def test_message_sent_before_a_power_cut_has_dup_despite_a_slow_disk(cuts: int) -> None:
    world = World(inflight=4)
    world.absent("s")
    publisher = world.accepted("p", answers=True)
    for number in range(40):
        publisher.publish("t", str(number), qos=1)
    came: set[bytes] = set()
    for slow_disk in (True,) * cuts + (False,):
        world.power_cut()
        subscriber = kept(world)
        world.slow_disk = slow_disk
        while new := subscriber.take_all(Publish):
            assert all(packet.dup for packet in new if packet.payload in came)
            came |= {packet.payload for packet in new}
            subscriber.send(*(Puback(packet.packet_id) for packet in new))
        world.slow_disk = False
    assert len(came) == 40


@pytest.mark.parametrize("expiry", [0, 3600])
def test_a_slow_disk_holds_up_and_a_commit_lets_go(expiry: int) -> None:
    """expiry: Session Expiry Interval, in seconds. If it is 0, a power cut ends the session. So
    deliveries to it wait for no commit, and a slow disk does not limit their number.
    """
    world = World(inflight=4)
    subscriber = world.accepted("s", properties={P.SESSION_EXPIRY_INTERVAL: expiry}, answers=True)
    subscriber.subscribe("t", qos=1)
    world.slow_disk = True
    publisher = world.accepted("p")
    for number in range(10):
        publisher.publish("t", str(number), qos=1)
    assert len(subscriber.payloads) == (4 if expiry else 10)
    for least in (8, 10):
        world.commit()
        assert len(subscriber.payloads) >= least
    assert subscriber.payloads == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("version", [V4, V5])
def test_messages_that_waited_for_the_disk_were_not_sent(version: Version, power_cut: bool) -> None:
    """A QoS 2 PUBLISH waits for its commit, and later packets wait behind it. If the connection
    ends before the commit, these packets have not been sent, so they have no DUP later (section
    3.3.1.1).
    """
    world = World()
    subscriber = kept(world, version)
    subscriber.subscribe("t")
    publisher = world.accepted("p", answers=True)
    publisher.publish("t", "1", qos=1)
    world.slow_disk = True
    for number, qos in ((2, 1), (3, 2), (4, 1), (5, 2)):
        publisher.publish("t", str(number), qos)
    assert [packet.payload for packet in subscriber.take_all(Publish)] == [b"1", b"2"]
    subscriber.drop()
    world.slow_disk = False
    world.sleep(1)
    if power_cut:
        world.power_cut()
    subscriber = kept(world, version)
    assert [
        (packet.packet_id, packet.payload, packet.qos, packet.dup)
        for packet in subscriber.take_all(Publish)
    ] == [
        (1, b"1", 1, True),
        (2, b"2", 1, True),
        (3, b"3", 2, False),
        (4, b"4", 1, False),
        (5, b"5", 2, False),
    ]


@pytest.mark.mqtt("MQTT-4.4.0-1")
def test_open_connection_repeats_no_packet() -> None:
    world = World()
    subscriber = kept(world)
    subscriber.subscribe("t")
    world.accepted(answers=True).publish("t", "x", qos=2)
    subscriber.take(Publish)
    for _ in range(10):
        world.sleep(3600)
    assert subscriber.received == []


@pytest.mark.mqtt("MQTT-4.3.3-4", "MQTT-4.3.3-5", "MQTT-4.3.3-6", "311:MQTT-4.3.3-1")
@pytest.mark.parametrize("power_cut", [False, True])
def test_only_pubrel_is_sent_between_pubrec_and_pubcomp(power_cut: bool) -> None:
    world = World()
    subscriber = kept(world)
    subscriber.subscribe("t")
    world.accepted(answers=True).publish("t", "x", qos=2)
    subscriber.take(Publish)
    subscriber.send(Pubrec(1), Pubrec(1))
    assert subscriber.take_all() == [Pubrel(1), Pubrel(1)]
    for _ in range(2):
        if power_cut:
            world.power_cut()
        subscriber = kept(world)
        assert subscriber.take_all() == [Pubrel(1)]
    subscriber.send(Pubcomp(1))
    world.sleep(1)
    if power_cut:
        world.power_cut()
    assert kept(world).received == []


def test_pubrel_leaves_after_the_commit_that_remembers_pubrec() -> None:
    world = World()
    subscriber = kept(world)
    subscriber.subscribe("t")
    world.accepted(answers=True).publish("t", "x", qos=2)
    subscriber.take(Publish)
    world.slow_disk = True
    subscriber.send(Pubrec(1))
    assert subscriber.received == []
    world.commit()
    subscriber.take(Pubrel)


@pytest.mark.parametrize(("qos", "early"), [(0, True), (1, True), (2, False)])
def test_a_qos_2_publish_leaves_after_the_commit_and_others_before_it(
    qos: int, early: bool
) -> None:
    world = World()
    subscriber = kept(world)
    subscriber.subscribe("t", qos=qos)
    publisher = world.durable("p")
    world.slow_disk = True
    publisher.publish("t", "x", qos=2)
    assert bool(subscriber.received) == early
    assert publisher.received == []
    world.commit()
    assert subscriber.payloads == [b"x"]
    publisher.take(Pubrec)


@pytest.mark.mqtt("MQTT-4.4.0-2", "MQTT-4.3.3-4")
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_refused_message_is_done(power_cut: bool) -> None:
    world = World()
    subscriber = kept(world, receive_maximum=1)
    subscriber.subscribe("t")
    publisher = world.accepted(answers=True)
    for payload in ("1", "2", "3"):
        publisher.publish("t", payload, qos=2 if payload != "2" else 1)
    subscriber.take(Publish)
    subscriber.send(Pubrec(1, R.QUOTA_EXCEEDED))
    subscriber.take(Publish)
    subscriber.send(Puback(2, R.UNSPECIFIED_ERROR))
    assert subscriber.take(Publish).payload == b"3"
    world.sleep(1)
    if power_cut:
        world.power_cut()
    assert [packet.payload for packet in kept(world).received] == [b"3"]


def test_a_pubrec_for_an_unknown_identifier_gets_0x92() -> None:
    subscriber = kept(World())
    subscriber.send(Pubrec(5))
    assert subscriber.take(Pubrel) == Pubrel(5, R.PACKET_IDENTIFIER_NOT_FOUND)


def test_other_acknowledgements_of_unknown_identifiers_are_ignored() -> None:
    subscriber = kept(World())
    subscriber.send(Puback(5), Pubcomp(6))
    assert subscriber.received == []
    assert not subscriber.closed


@pytest.mark.mqtt("MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_than_the_receive_maximum_is_in_flight(qos: int) -> None:
    world = World()
    subscriber = kept(world, receive_maximum=2)
    subscriber.subscribe("t")
    publisher = world.accepted(answers=True)
    publisher.send(*(Publish("t", b"%d" % number, qos, number) for number in range(1, 6)))
    assert subscriber.payloads == [b"1", b"2"]
    subscriber.take_all()
    subscriber.send(Puback(1) if qos == 1 else Pubrec(1))
    if qos == 2:
        assert subscriber.take_all() == [Pubrel(1)], "PUBREC gives no quota back"
        subscriber.send(Pubcomp(1))
    assert subscriber.payloads == [b"3"]


@pytest.mark.mqtt("MQTT-3.3.4-9")
@pytest.mark.parametrize("power_cut", [False, True])
def test_the_receive_maximum_holds_for_what_is_sent_again(power_cut: bool) -> None:
    world = World()
    subscriber = kept(world)
    subscriber.subscribe("t")
    publisher = world.accepted(answers=True)
    for number in range(1, 6):
        publisher.publish("t", str(number), qos=1)
    assert len(subscriber.take_all(Publish)) == 5
    if power_cut:
        world.power_cut()
    subscriber = kept(world, receive_maximum=2)
    assert [(packet.packet_id, packet.dup) for packet in subscriber.take_all()] == [
        (1, True),
        (2, True),
    ]
    subscriber.send(Puback(1), Puback(2))
    assert [(packet.packet_id, packet.dup) for packet in subscriber.take_all()] == [
        (3, True),
        (4, True),
    ]


@pytest.mark.mqtt("MQTT-3.3.4-10", "MQTT-4.9.0-3")
def test_a_used_up_quota_delays_publish_alone() -> None:
    world = World()
    subscriber = kept(world, receive_maximum=1)
    subscriber.subscribe("t")
    publisher = world.accepted(answers=True)
    publisher.publish("t", "1", qos=2)
    publisher.publish("t", "2", qos=2)
    subscriber.take(Publish)
    assert subscriber.subscribe("u").reasons == [R.GRANTED_QOS_2]
    subscriber.publish("v", "x", qos=1)
    subscriber.take(Puback)
    subscriber.send(Pubrec(1))
    subscriber.take(Pubrel)


@pytest.mark.mqtt("MQTT-4.6.0-5", "MQTT-4.6.0-6", "311:MQTT-4.6.0-5", "311:MQTT-4.6.0-6")
@pytest.mark.parametrize("slow_disk", [False, True])
def test_messages_of_all_qos_keep_the_order_of_their_publisher(slow_disk: bool) -> None:
    world = World()
    subscriber = kept(world, receive_maximum=3)
    subscriber.subscribe("#")
    publisher = world.durable("p")
    expected = [str(number).encode() for number in range(40)]
    world.slow_disk = slow_disk
    for number, payload in enumerate(expected):
        publisher.publish(f"t/{number % 3}", payload, qos=(number * 7) % 3)
    world.slow_disk = False
    world.commit()
    received: list[bytes] = []
    while packets := subscriber.take_all():
        for packet in packets:
            match packet:
                case Publish(qos=qos, packet_id=number, payload=payload):
                    received.append(payload)
                    if qos:
                        subscriber.send(Puback(number) if qos == 1 else Pubrec(number))
                case Pubrel(packet_id=number):
                    subscriber.send(Pubcomp(number))
    assert received == expected


@pytest.mark.mqtt("MQTT-4.5.0-1", "311:MQTT-4.5.0-1", "311:MQTT-3.1.2-5")
@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("run", [False, True])
def test_an_absent_session_gets_its_messages_when_it_is_back(power_cut: bool, run: bool) -> None:
    world = World()
    for name in ("s", "s2"):
        world.durable(name).subscribe("t")
        world.clients[world.broker.sessions[name].connection].disconnect()
    publisher = world.accepted(answers=True)
    publisher.publish("t", "0", qos=0)
    packets = [
        Publish("t", b"%03d" % number, 1 + (number > 50), number) for number in range(1, 101)
    ]
    publisher.send(*packets) if run else [publisher.send(packet) for packet in packets]
    if power_cut:
        world.power_cut()
    for name in ("s", "s2"):
        client = world.durable(name, answers=True)
        assert [
            (packet.payload, packet.qos, packet.dup) for packet in client.take_all(Publish)
        ] == [(packet.payload, packet.qos, False) for packet in packets]
    world.commit()
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(0,)]
    )


@pytest.mark.mqtt("MQTT-4.3.2-4", "MQTT-4.3.2-5", "311:MQTT-4.3.2-2")
def test_after_puback_the_identifier_means_a_new_message() -> None:
    world = World()
    subscriber = world.accepted("s")
    subscriber.subscribe("t")
    publisher = world.accepted("p")
    for dup in (False, True):
        publisher.publish("t", "x", qos=1, packet_id=9, dup=dup)
        publisher.take(Puback)
    assert subscriber.payloads == [b"x", b"x"]


def test_packet_identifiers_go_round_and_never_meet_one_in_use() -> None:
    world = World(inflight=10)
    subscriber = kept(world)
    subscriber.subscribe("t")
    publisher = world.accepted(answers=True)
    publisher.publish("t", "stuck", qos=1)
    subscriber.take(Publish)
    send_flow = world.broker.sessions["s"].send_flow
    send_flow.next = send_flow.sent = 65530
    publisher.send(*(Publish("t", b"%02d" % number, 1, number + 1) for number in range(9)))
    assert [packet.packet_id for packet in subscriber.take_all()] == [*range(65530, 65536)]
    subscriber.send(Puback(65530))
    assert subscriber.received == [], "1 is in use"
    subscriber.send(Puback(1))
    assert [packet.packet_id for packet in subscriber.take_all()] == [1, 2, 3]


@pytest.mark.mqtt("MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_one_subscriber_costs_that_one_alone(qos: int) -> None:
    world = World()
    small = world.durable(
        "small", properties={P.MAXIMUM_PACKET_SIZE: 100, P.RECEIVE_MAXIMUM: 1}, answers=True
    )
    large = world.durable("large", answers=True)
    for client in (small, large):
        client.subscribe("t")
    publisher = world.accepted(answers=True)
    for payload in (b"a", bytes(200), b"b"):
        publisher.publish("t", payload, qos=qos)
    assert small.payloads == [b"a", b"b"]
    assert large.payloads == [b"a", bytes(200), b"b"]
    world.commit()
    assert world.rows("SELECT count(*) FROM queue") == [(0,)]


@pytest.mark.mqtt("MQTT-3.3.2-5", "MQTT-3.3.2-6")
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_message_expires_while_it_waits_and_tells_the_time_that_is_left(power_cut: bool) -> None:
    world = World()
    kept(world).subscribe("t")
    world.clients[world.broker.sessions["s"].connection].disconnect()
    publisher = world.accepted(answers=True)
    for expiry in (10, 100, None):
        properties = {} if expiry is None else {P.MESSAGE_EXPIRY_INTERVAL: expiry}
        publisher.publish("t", str(expiry), qos=2, properties=properties)
    world.sleep(30)
    if power_cut:
        world.power_cut()
    received = kept(world).take_all(Publish)
    assert [
        (packet.payload, (packet.properties or {}).get(P.MESSAGE_EXPIRY_INTERVAL))
        for packet in received
    ] == [
        (b"100", 70),
        (b"None", None),
    ]
    world.commit()
    assert len(world.rows("SELECT * FROM queue")) == 2


@pytest.mark.mqtt("MQTT-4.3.3-7", "MQTT-4.3.3-13")
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_message_that_was_sent_does_not_expire(power_cut: bool) -> None:
    world = World()
    subscriber = kept(world)
    subscriber.subscribe("t")
    publisher = world.durable("p")
    publisher.publish("t", "x", qos=2, properties={P.MESSAGE_EXPIRY_INTERVAL: 10})
    subscriber.take(Publish)
    world.sleep(60)
    if power_cut:
        world.power_cut()
    subscriber = kept(world)
    assert subscriber.take(Publish).payload == b"x"
    subscriber.send(Pubrec(1))
    subscriber.take(Pubrel)
    publisher = world.durable("p")
    publisher.publish(
        "t", "x", qos=2, packet_id=1, dup=True, properties={P.MESSAGE_EXPIRY_INTERVAL: 10}
    )
    publisher.take(Pubrec)
    publisher.send(Pubrel(1))
    assert publisher.take(Pubcomp) == Pubcomp(1)


@pytest.mark.mqtt(
    *(
        "MQTT-3.3.2-4",
        "MQTT-3.3.2-15",
        "MQTT-3.3.2-16",
        "MQTT-3.3.2-17",
        "MQTT-3.3.2-18",
        "MQTT-3.3.2-20",
        "MQTT-3.3.2-3",
    ),
    "311:MQTT-3.3.2-3",
)
@pytest.mark.parametrize("power_cut", [False, True])
def test_properties_of_a_message_are_passed_on_as_they_are(power_cut: bool) -> None:
    world = World()
    kept(world).subscribe("t/+")
    properties = {
        P.PAYLOAD_FORMAT_INDICATOR: 1,
        P.CONTENT_TYPE: "text/plain",
        P.RESPONSE_TOPIC: "answers/7",
        P.CORRELATION_DATA: b"\0\xff",
        P.USER_PROPERTY: [("b", "2"), ("a", "1"), ("b", "1"), ("long", "x" * 200)],
    }
    world.accepted(answers=True).publish("t/ä", "x", qos=2, properties=properties)
    if power_cut:
        world.power_cut()
    packet = kept(world).take(Publish)
    assert (packet.topic, packet.properties) == ("t/ä", properties)


def test_properties_stay_behind_for_an_older_client() -> None:
    world = World()
    old = world.accepted("old", version=V4)
    old.subscribe("t")
    world.accepted().publish("t", "x", properties={P.CONTENT_TYPE: "text/plain"})
    assert old.take(Publish) == Publish("t", b"x")


@pytest.mark.mqtt("MQTT-3.3.2-7", "MQTT-3.3.2-12")
def test_every_topic_alias_up_to_the_maximum_is_taken_and_ends_with_the_connection() -> None:
    world = World(topic_aliases=3)
    subscriber = world.accepted("s")
    subscriber.subscribe("#")
    publisher = world.durable("p")
    for alias in (1, 2, 3):
        publisher.publish(f"t/{alias}", "first", properties={P.TOPIC_ALIAS: alias})
    for alias in (3, 1, 2):
        publisher.publish("", "again", properties={P.TOPIC_ALIAS: alias})
    publisher.publish("other", "new", properties={P.TOPIC_ALIAS: 2})
    publisher.publish("", "changed", properties={P.TOPIC_ALIAS: 2})
    assert [packet.topic for packet in subscriber.take_all()] == [
        "t/1",
        "t/2",
        "t/3",
        "t/3",
        "t/1",
        "t/2",
        "other",
        "other",
    ]
    publisher = world.durable("p")
    publisher.publish("", "x", properties={P.TOPIC_ALIAS: 1})
    assert publisher.closed
    publisher = world.durable("p")
    publisher.publish("t", "x", properties={P.TOPIC_ALIAS: 4})
    assert publisher.received[-1].reason == R.TOPIC_ALIAS_INVALID


@pytest.mark.mqtt("MQTT-3.1.2-26", "MQTT-3.1.2-27", "MQTT-3.3.2-11")
@pytest.mark.parametrize(
    ("maximum", "names", "aliases"),
    [(0, "abcab", [None] * 5), (2, ["a", "b", "c", "", ""], [1, 2, None, 1, 2])],
)
def test_the_broker_uses_topic_aliases_up_to_the_clients_maximum(
    maximum: int, names: list[str], aliases: list[int | None]
) -> None:
    world = World()
    subscriber = world.accepted("s", properties={P.TOPIC_ALIAS_MAXIMUM: maximum})
    subscriber.subscribe("#")
    publisher = world.accepted("p")
    for topic in "abcab":
        publisher.publish(topic, "x", qos=1)
    packets = subscriber.take_all()
    assert [packet.topic for packet in packets] == list(names)
    assert [(packet.properties or {}).get(P.TOPIC_ALIAS) for packet in packets] == aliases


def test_retransmission_uses_no_alias_of_an_earlier_connection() -> None:
    world = World()
    subscriber = kept(world, topic_alias_maximum=5)
    subscriber.subscribe("t")
    publisher = world.accepted(answers=True)
    for _ in range(2):
        publisher.publish("t", "x", qos=2)
    assert [packet.topic for packet in subscriber.take_all()] == ["t", ""]
    assert [packet.topic for packet in kept(world).take_all()] == ["t", "t"]


def test_an_identifier_is_not_used_again_while_its_first_message_is_in_flight() -> None:
    world = World()
    reader = world.accepted("reader")
    reader.subscribe("t")
    writer = world.accepted("writer")
    writer.publish("t", "0", qos=2)
    reader.send(Pubrec(reader.take(Publish).packet_id))
    stuck = reader.take(Pubrel).packet_id  # its PUBCOMP does not come for a long time
    for start in range(1, 65_536, 1000):
        writer.send(
            *(
                Publish("t", b"%d" % number, 1, number % 1000 + 1)
                for number in range(start, min(start + 1000, 65_536))
            )
        )
        arrived, reader.received = reader.received, []
        reader.send(
            *(Puback(packet.packet_id) for packet in arrived if isinstance(packet, Publish))
        )
    writer.publish("t", "65536", qos=1)
    assert reader.received == []
    reader.send(Pubcomp(stuck))
    assert [packet.payload for packet in reader.take_all(Publish)] == [b"65535", b"65536"]
