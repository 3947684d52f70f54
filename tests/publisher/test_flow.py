"""The exchange of a message: each answer and each loss of the connection, in every order."""

import random
from itertools import pairwise

import pytest

from gateway.mqtt.packets import Publish, Pubrel, Side, Version
from gateway.mqtt.stream import PacketStream
from onceway_publisher.flow import LONGEST_PAUSE_S, WINDOW, Flow, Message
from onceway_publisher.packets import Answer, Kind
from tests.publisher.server import identity

LARGE = 1 << 28


def read(data: bytes) -> list[object]:
    stream = PacketStream(1 << 28, Version.V5, Side.CLIENT)
    stream.feed(data)
    return list(stream)


def messages(count: int) -> list[Message]:
    return [Message(7, number, "t", b"%d" % number) for number in range(1, count + 1)]


def begun(count: int, receive_maximum: int = 100) -> tuple[Flow, list[Publish]]:
    flow = Flow(random.Random(1))
    flow.add(messages(count))
    assert flow.connected(False, receive_maximum, LARGE) == b""
    sent = read(flow.send(0)[0])
    assert all(isinstance(one, Publish) for one in sent)
    return flow, sent  # type: ignore[return-value]


def test_a_clean_pubcomp_is_the_end() -> None:
    flow, (sent,) = begun(1)
    assert identity(sent) == (7, 1)
    outcome = flow.take(Answer(Kind.PUBREC, sent.packet_id), 0)
    assert read(outcome.out) == [Pubrel(sent.packet_id)]
    assert outcome.accepted is None
    outcome = flow.take(Answer(Kind.PUBCOMP, sent.packet_id), 0)
    assert outcome.accepted is not None
    assert outcome.accepted.key == (7, 1)
    assert len(flow) == 0


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        *((Kind.PUBREC, reason) for reason in (0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)),
        *((Kind.PUBCOMP, reason) for reason in (0x92, 0x80, 0x01)),
    ],
)
def test_anything_else_sends_the_same_identity_again_after_a_pause(kind: Kind, reason: int) -> None:
    flow, (sent,) = begun(1)
    if kind is Kind.PUBCOMP:
        flow.take(Answer(Kind.PUBREC, sent.packet_id), 0)
    outcome = flow.take(Answer(kind, sent.packet_id, reason, "why"), 0)
    assert outcome.out == b"", "no PUBREL follows a refusal"
    assert outcome.accepted is None
    assert outcome.refusal is not None
    assert (outcome.refusal.reason, outcome.refusal.text) == (reason, "why")
    assert flow.send(0) == (b"", [])
    due = flow.due(0)
    assert due is not None
    assert 0.5 <= due <= 1
    (again,) = read(flow.send(due)[0])
    assert isinstance(again, Publish)
    assert identity(again) == (7, 1)
    assert again.payload == b"1"
    assert not again.dup


def test_pauses_grow_up_to_a_bound() -> None:
    flow, (sent,) = begun(1)
    now, pauses = 0.0, []
    for _ in range(12):
        flow.take(Answer(Kind.PUBREC, sent.packet_id, 0x87), now)
        due = flow.due(now)
        assert due is not None
        pauses.append(due)
        now += due
        (sent,) = read(flow.send(now)[0])  # type: ignore[assignment]
    assert all(b <= 4 * a for a, b in pairwise(pauses))
    assert LONGEST_PAUSE_S / 2 <= pauses[-1] <= LONGEST_PAUSE_S


def test_a_refusal_of_one_message_stops_no_other_one() -> None:
    flow, (first, *_) = begun(4, 3)
    flow.take(Answer(Kind.PUBREC, first.packet_id, 0x87), 0)
    (fourth,) = read(flow.send(0)[0])
    assert isinstance(fourth, Publish)
    assert identity(fourth) == (7, 4)


def test_no_room_stops_all_until_the_pause_is_over_and_keeps_the_order() -> None:
    flow, sent = begun(5, 3)
    for one in sent:
        flow.take(Answer(Kind.PUBREC, one.packet_id, 0x97), 0)
    assert flow.send(0.4) == (b"", [])
    due = flow.due(0)
    assert due is not None
    again = read(flow.send(due)[0])
    assert [identity(one) for one in again] == [(7, 1), (7, 2), (7, 3)]  # type: ignore[arg-type]


def test_a_resumed_session_gets_the_same_packets_in_order() -> None:
    flow, (first, second) = begun(2)
    flow.take(Answer(Kind.PUBREC, first.packet_id), 0)
    flow.disconnected()
    assert flow.send(1) == (b"", [])
    again = read(flow.connected(True, 10, LARGE))
    assert again[0] == Pubrel(first.packet_id)
    assert isinstance(again[1], Publish)
    assert (again[1].packet_id, again[1].dup) == (second.packet_id, True)


def test_a_lost_session_gets_each_message_anew_in_order() -> None:
    flow, (first, _) = begun(3, 2)
    flow.take(Answer(Kind.PUBREC, first.packet_id), 0)
    flow.disconnected()
    assert flow.connected(False, 10, LARGE) == b""
    again = read(flow.send(1)[0])
    assert [identity(one) for one in again] == [(7, 1), (7, 2), (7, 3)]  # type: ignore[arg-type]
    assert not any(one.dup for one in again)  # type: ignore[attr-defined]


def test_message_above_the_packet_size_is_refused_by_the_bridge() -> None:
    flow = Flow()
    flow.add([Message(7, 1, "t", bytes(1000)), Message(7, 2, "t", b"")])
    flow.connected(False, 10, 500)
    out, refused = flow.send(0)
    assert [identity(one) for one in read(out)] == [(7, 2)]  # type: ignore[arg-type]
    assert [(it.message.key, it.reason) for it in refused] == [((7, 1), 0x95)]


@pytest.mark.parametrize("receive_maximum", [1, 3, 65_535])
def test_receive_maximum_holds_on_every_connection(receive_maximum: int) -> None:
    flow, sent = begun(100)
    assert len(sent) == WINDOW
    flow.disconnected()
    again = read(flow.connected(True, receive_maximum, LARGE) + flow.send(1)[0])
    assert len(again) == min(WINDOW, receive_maximum)


def test_answers_that_fit_nothing_change_nothing() -> None:
    flow, (sent,) = begun(1)
    other = sent.packet_id % 0xFFFF + 1
    assert flow.take(Answer(Kind.PUBCOMP, sent.packet_id), 0).accepted is None, "no PUBREC came"
    assert flow.take(Answer(Kind.PUBACK, sent.packet_id), 0).accepted is None
    assert flow.take(Answer(Kind.PUBCOMP, other), 0).accepted is None
    assert read(flow.take(Answer(Kind.PUBREC, other), 0).out) == [Pubrel(other, 0x92)]  # type: ignore[arg-type]
    assert len(flow) == 1


@pytest.mark.parametrize("seed", range(200))
def test_each_message_is_accepted_once_under_any_fault(seed: int) -> None:
    """The server keeps its sessions or loses them, refuses messages, and loses connections. Once
    the publisher has its PUBREC with success, the server has stored the message under its identity.
    """
    rng = random.Random(seed)
    count = rng.randint(1, 20)
    flow, stored, taken = Flow(rng), set[tuple[int, int]](), list[tuple[int, int]]()
    flow.add(messages(count))
    held = set[int]()
    now, wire = 0.0, list[object]()
    for step in range(2000):
        if not len(flow):
            break
        faulty = step < 200
        if not flow.window or (faulty and rng.random() < 0.1):
            flow.disconnected()
            if rng.random() < 0.5:
                held.clear()
            wire = read(flow.connected(bool(held), rng.randint(1, 8), LARGE))
        wire += read(flow.send(now)[0])
        now += rng.random() * (flow.due(now) or 0) + 0.01
        if not wire:
            now += flow.due(now) or 0
            continue
        packet = wire.pop(0)
        if isinstance(packet, Publish):
            reason = rng.choice((0x87, 0x90, 0x97)) if faulty and rng.random() < 0.3 else 0
            if not reason:
                held.add(packet.packet_id)
                stored.add(identity(packet))
            answer = Answer(Kind.PUBREC, packet.packet_id, reason)
        else:
            assert isinstance(packet, Pubrel)
            reason = 0 if packet.packet_id in held else 0x92
            held.discard(packet.packet_id)
            answer = Answer(Kind.PUBCOMP, packet.packet_id, reason)
        outcome = flow.take(answer, now)
        wire += read(outcome.out)
        if outcome.accepted is not None:
            assert outcome.accepted.key in stored, "a forged success"
            taken.append(outcome.accepted.key)
    assert sorted(taken) == [(7, number) for number in range(1, count + 1)]
