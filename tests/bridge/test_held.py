"""If this gateway temporarily refuses a message, the message waits at the other broker. It is not
lost, and other messages do not wait for it.
"""

from pathlib import Path

import pytest

from gateway.bridge.held import FIRST_S, LONGEST_S, Held
from gateway.mqtt.packets import Connect, Puback, Publish, Pubrec, Version
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from tests.bridge.picky import picky
from tests.bridge.test_bridge import UP, bridged, status, subscribe, take, until
from tests.bridge.test_incoming import raw
from tests.service.wire import wire

FULL = (
    f'{UP}\ndown = ["commands/#"]\nqos = 2\n[limits]\nqueue_messages = 1\nqueue_bytes = 1000\n'
    '[[queue]]\nclients = "slow"\nfull = "refuse the publisher"\n'
)
SLOW = Connect("slow", Version.V5, False, properties={PropertyId.SESSION_EXPIRY_INTERVAL: 3600})


@pytest.mark.parametrize("qos", [1, pytest.param(2, marks=pytest.mark.soak)])
async def test_a_command_that_is_refused_for_now_waits_and_others_go_on(
    tmp_path: Path, qos: int
) -> None:
    """The queue of an absent subscriber is full. So commands for this subscriber wait in order at
    the other broker.
    """
    async with picky() as far, bridged(tmp_path, far.port, FULL) as near:
        await near.logged("bridge cloud: connected")
        async with wire(near.port, SLOW) as slow:
            await subscribe(slow, "commands/slow")
        async with wire(near.port, Connect("here")) as here:
            await subscribe(here, "commands/here")
            for number in (1, 2, 3):
                far.send_bytes(raw(qos, number, b"commands/slow", payload=b"%d" % number))
            far.send_bytes(raw(qos, 4, b"commands/here"))
            assert (await take(here)).topic == "commands/here"
        await until(tmp_path, held=2)
        assert sorted(answer.packet_id for answer in far.answers) == [1, 4]
        assert all(answer.reason == R.SUCCESS for answer in far.answers)
        await near.logged("has no room for a message from the other broker")
        async with wire(near.port, SLOW) as slow:
            assert [(await take(slow)).payload for _ in range(3)] == [b"1", b"2", b"3"]
        found = await until(tmp_path, held=0)
        assert found["not_taken"] == 0
        assert [answer.packet_id for answer in far.answers] == [1, 4, 2, 3]
        assert all(answer.reason == R.SUCCESS for answer in far.answers)
        assert far.connections == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_command_that_can_never_be_taken_is_refused_and_counted(
    tmp_path: Path, qos: int
) -> None:
    """The command is larger than the subscriber's whole queue, so waiting would not help."""
    async with picky() as far, bridged(tmp_path, far.port, FULL) as near:
        await near.logged("bridge cloud: connected")
        async with wire(near.port, SLOW) as slow:
            await subscribe(slow, "commands/slow")
        far.send_bytes(raw(qos, 1, b"commands/slow", payload=bytes(2000)))
        await until(tmp_path, not_taken=1)
        await near.logged("cannot accept a message from the other broker and refuses it")
        (answer,) = far.answers
        assert isinstance(answer, Puback if qos == 1 else Pubrec)
        assert (answer.packet_id, answer.reason) == (1, R.QUOTA_EXCEEDED)
        assert status(tmp_path)["held"] == 0


@pytest.mark.parametrize("qos", [pytest.param(1, marks=pytest.mark.soak), 2])
async def test_a_cut_while_a_command_waits_loses_nothing(tmp_path: Path, qos: int) -> None:
    async with picky() as far, bridged(tmp_path, far.port, FULL) as near:
        await near.logged("bridge cloud: connected")
        async with wire(near.port, SLOW) as slow:
            await subscribe(slow, "commands/slow")
        for number in (1, 2):
            far.send_bytes(raw(qos, number, b"commands/slow", payload=b"%d" % number))
        await until(tmp_path, held=1)
        far.close()
        await until(tmp_path, held=0, error=None)
        far.send_bytes(raw(qos, 2, b"commands/slow", payload=b"2", flags=8))
        await until(tmp_path, held=1)
        async with wire(near.port, SLOW) as slow:
            assert [(await take(slow)).payload for _ in range(2)] == [b"1", b"2"]
        await until(tmp_path, held=0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held(clock: Clock) -> Held:
    return Held(lambda packet: packet.topic != "never", clock)


def refuse(held: Held, packet: Publish) -> None:
    assert held.may_go(packet)
    assert held.answered(Puback(packet.packet_id, R.QUOTA_EXCEEDED)) is None
    assert held.keeps(packet.packet_id)


def test_messages_of_one_topic_keep_their_order(held: Held) -> None:
    refuse(held, Publish("t", b"1", 1, 1))
    assert not held.may_go(Publish("t", b"2", 1, 2))
    assert held.may_go(Publish("u", b"3", 1, 3))
    assert held.may_go(Publish("t", b"4", 0, 0)), "QoS 0 has no order to keep"
    fresh, expired = held.again()
    assert [packet.packet_id for packet in fresh] == [1, 2]
    assert not expired
    for packet in fresh:
        held.answered(Puback(packet.packet_id, R.QUOTA_EXCEEDED))
    assert [packet.packet_id for packet in held.again()[0]] == [1, 2]


@pytest.mark.parametrize("reason", [reason for reason in R if reason >= 0x80])
def test_only_a_lack_of_room_waits(held: Held, reason: R) -> None:
    packet = Publish("t", b"1", 2, 1)
    assert held.may_go(packet)
    refused = held.answered(Pubrec(1, reason))
    assert held.keeps(1) == (reason == R.QUOTA_EXCEEDED)
    assert refused == (None if reason == R.QUOTA_EXCEEDED else packet)


def test_message_refused_for_good_does_not_wait(held: Held) -> None:
    packet = Publish("never", b"1", 2, 1)
    assert held.may_go(packet)
    assert held.answered(Pubrec(1, R.QUOTA_EXCEEDED)) == packet
    assert not held.keeps(1)
    assert len(held) == held.size == 0


def test_a_message_that_waits_grows_older_and_expires(held: Held, clock: Clock) -> None:
    expiry = {PropertyId.MESSAGE_EXPIRY_INTERVAL: 10}
    refuse(held, Publish("t", b"1", 1, 1, properties=expiry))
    clock.now = 4.0
    ((packet,), expired) = held.again()
    assert packet.properties == {PropertyId.MESSAGE_EXPIRY_INTERVAL: 6}
    assert not expired
    held.answered(Puback(1, R.QUOTA_EXCEEDED))
    clock.now = 10.0
    fresh, (gone,) = held.again()
    assert (fresh, gone.packet_id) == ([], 1)
    assert not held.keeps(1)


def test_the_waits_double_up_to_a_bound_and_begin_again(held: Held) -> None:
    refuse(held, Publish("t", b"1", 1, 1))
    waits = [held.next_wait() for _ in range(7)]
    assert waits == [FIRST_S, 2, 4, 8, 16, LONGEST_S, LONGEST_S]
    held.again()
    held.answered(Puback(1))
    assert held.next_wait() == FIRST_S
