"""The rig's subscriber, which follows the MQTT standard strictly: its answers to messages, and the
report that it prints before each answer.
"""

import json

import pytest

from hil.clients.subscriber import Subscriber
from hil.clients.telling import identity
from hil.formats.packets import Answer, Kind, Packet, Publish, Suback


def publish(qos: int, identifier: int = 0, dup: bool = False) -> Publish:
    return Publish("sensors/c/data", b"x", qos, identifier, dup, properties=identity(9))


@pytest.fixture
def subscriber() -> Subscriber:
    return Subscriber("s", "sensors/#", 2, clean=False, receive_maximum=4)


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Return the subscriber's printed reports, except those of released messages."""
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [one for one in told if one["event"] != "released"]


def test_each_qos_has_its_answer(
    subscriber: Subscriber, capsys: pytest.CaptureFixture[str]
) -> None:
    assert subscriber.take(publish(0)) is None
    assert subscriber.take(publish(1, 7)) == Answer(Kind.PUBACK, 7)
    assert subscriber.take(publish(2, 8)) == Answer(Kind.PUBREC, 8)
    assert subscriber.take(Answer(Kind.PUBREL, 8)) == Answer(Kind.PUBCOMP, 8)
    assert subscriber.take(Answer(Kind.PUBREL, 8)) == Answer(Kind.PUBCOMP, 8, 0x92)
    assert [(one["qos"], one["id"], one["sequence"]) for one in said(capsys)] == [
        (0, 0, 9),
        (1, 7, 9),
        (2, 8, 9),
    ]


@pytest.mark.mqtt("MQTT-4.3.3-10")
def test_until_pubrel_an_identifier_stands_for_the_same_message(
    subscriber: Subscriber, capsys: pytest.CaptureFixture[str]
) -> None:
    for packet in (publish(2, 8), publish(2, 8, dup=True), Answer(Kind.PUBREL, 8), publish(2, 8)):
        assert subscriber.take(packet) is not None
    assert [one["again"] for one in said(capsys)] == [False, True, False]


@pytest.mark.mqtt("MQTT-3.3.4-9")
def test_unanswered_messages_are_in_flight(
    subscriber: Subscriber, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces: list[list[Packet]] = [
        [publish(1, 1), publish(1, 2)],  # both before one of them is answered
        [publish(2, 3)],
        [publish(2, 4), Answer(Kind.PUBREL, 3)],
        [publish(0)],
        [Answer(Kind.PUBREL, 4)],
        [publish(1, 5)],
    ]
    for packets in pieces:
        subscriber.begin(packets)
        for packet in packets:
            subscriber.take(packet)
    assert [one["under_way"] for one in said(capsys)] == [2, 1, 1, 2, 1, 1]


def test_granted_qos_is_reported(
    subscriber: Subscriber, capsys: pytest.CaptureFixture[str]
) -> None:
    subscriber.take(Suback(5, (2,)))  # answers another SUBSCRIBE
    subscriber.take(Suback(1, (2,)))
    [granted] = said(capsys)
    assert (granted["event"], granted["granted"]) == ("subscribed", 2)


def test_a_message_without_an_identity_is_reported_as_one(
    subscriber: Subscriber, capsys: pytest.CaptureFixture[str]
) -> None:
    subscriber.take(Publish("sensors/uno-1/adc0", b"x"))
    assert said(capsys)[0]["sequence"] is None
