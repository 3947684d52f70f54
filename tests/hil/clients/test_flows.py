"""A sender that follows the MQTT standard strictly: when an identifier is free, which packets it
sends again and when, and the meaning of each answer.
"""

import pytest

from hil.clients.flows import Fate, Flows
from hil.formats.packets import Answer, Kind, Publish


def message(qos: int = 2) -> Publish:
    return Publish("t", b"x", qos)


def answer(kind: str, identifier: int, reason: int = 0) -> Answer:
    return Answer(Kind[kind], identifier, reason)


@pytest.fixture
def flows() -> Flows:
    made = Flows(first=65_534, count=3)
    made.connected(False)
    return made


def test_identifiers_wrap_and_are_used_again_when_their_flow_is_over(flows: Flows) -> None:
    assert [flows.begin(number, message()).id for number in (1, 2, 3)] == [65_534, 65_535, 1]
    assert not flows.free
    flows.take(answer("PUBREC", 65_535))
    assert not flows.free
    assert flows.take(answer("PUBCOMP", 65_535)) == ([], [(2, Fate.ACKNOWLEDGED)])
    assert flows.begin(4, message()).id == 65_535


@pytest.mark.mqtt("MQTT-4.3.3-4")
def test_after_pubrec_a_resumed_session_gets_pubrel_and_no_publish(flows: Flows) -> None:
    first, second = flows.begin(1, message()), flows.begin(2, message(1))
    assert flows.take(answer("PUBREC", first.id)) == ([Answer(Kind.PUBREL, first.id)], [])
    packets, lost = flows.connected(True)
    assert packets == [
        Answer(Kind.PUBREL, first.id),
        Publish("t", b"x", 1, second.id, dup=True),
    ]
    assert lost == []


def test_a_lost_session_means_that_all_under_way_must_be_published_again(flows: Flows) -> None:
    flows.begin(7, message())
    flows.begin(8, message())
    assert flows.connected(False) == ([], [7, 8])
    assert len(flows) == 0


def test_a_refusal_frees_the_identifier(flows: Flows) -> None:
    refused, other = flows.begin(1, message()), flows.begin(2, message(1))
    assert flows.take(answer("PUBREC", refused.id, 0x97)) == ([], [(1, Fate.REFUSED)])
    assert flows.take(answer("PUBACK", other.id, 0x97)) == ([], [(2, Fate.REFUSED)])
    assert len(flows) == 0


def test_not_found_is_a_loss_unless_an_earlier_pubrel_may_have_come(flows: Flows) -> None:
    first = flows.begin(1, message())
    flows.take(answer("PUBREC", first.id))
    assert flows.take(answer("PUBCOMP", first.id, 0x92)) == ([], [(1, Fate.FORGOTTEN)])
    second = flows.begin(2, message())
    flows.take(answer("PUBREC", second.id))
    flows.connected(True)
    assert flows.take(answer("PUBCOMP", second.id, 0x92)) == ([], [(2, Fate.ACKNOWLEDGED)])


def test_answers_to_nothing_change_nothing(flows: Flows) -> None:
    assert flows.take(answer("PUBACK", 5)) == ([], [])
    assert flows.take(answer("PUBCOMP", 5)) == ([], [])
    assert flows.take(answer("PUBREC", 5)) == ([Answer(Kind.PUBREL, 5, 0x92)], [])
    sent = flows.begin(1, message())
    assert flows.take(answer("PUBACK", sent.id)) == ([], [])
    assert flows.take(answer("PUBCOMP", sent.id)) == ([], [])  # before its PUBREC
    assert len(flows) == 1


def test_a_message_is_released_from_its_pubrec_to_its_pubcomp(flows: Flows) -> None:
    """Between PUBREC and PUBCOMP, `released` returns the message's number. In this time, the rig
    can order the client to move to another broker.
    """
    begun = flows.begin(7, message())
    assert flows.released(begun.id) is None
    flows.take(answer("PUBREC", begun.id))
    assert flows.released(begun.id) == 7
    flows.connected(True)  # at the next broker
    assert flows.released(begun.id) == 7
    flows.take(answer("PUBCOMP", begun.id))
    assert flows.released(begun.id) is None
