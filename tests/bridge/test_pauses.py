"""The pauses between the attempts of a bridge to connect."""

import asyncio
from pathlib import Path

import pytest

from gateway.bridge.pauses import LONGEST_S, SETTLED_S, Pauses
from gateway.mqtt.packets import Connect, Disconnect, Puback, Publish
from gateway.mqtt.reason import ReasonCode
from tests.bridge.test_bridge import bridged, publish, scripted
from tests.service.wire import wire

UP = 'up = ["up/#"]\nqos = 1\n'


def test_pause_grows_while_nothing_crosses() -> None:
    pauses = Pauses()
    found = [pauses.next(1, None) for _ in range(20)]
    for tries, pause in enumerate(found, 1):
        longest = min(2.0**tries, LONGEST_S)
        assert longest / 2 <= pause <= longest


def test_pause_is_short_again_after_a_message_or_a_long_connection() -> None:
    for crossed, lasted_s in ((True, 0.1), (False, SETTLED_S + 1)):
        pauses = Pauses()
        for _ in range(10):
            pauses.next(1, None)
        if crossed:
            pauses.progress()
        assert pauses.next(lasted_s, None) <= 1
        assert pauses.next(0.1, None) <= 2, "and counts from the start"
        for _ in range(5):
            pauses.next(0.1, None)
        assert pauses.next(0.1, None) > LONGEST_S / 2 - 1, "progress forgives one connection only"


def test_pause_grows_although_messages_cross_if_the_other_broker_says_why() -> None:
    pauses = Pauses()
    for _ in range(10):
        pauses.progress()
        pauses.note_reason()
        pauses.next(1, None)
    assert pauses.next(1, None) >= LONGEST_S / 2


@pytest.mark.parametrize("suspects", [0, 3])
def test_pause_grows_with_the_messages_at_which_the_other_broker_closes(suspects: int) -> None:
    assert 2**suspects / 2 <= Pauses().next(1, suspects) <= 2**suspects


async def test_connection_that_breaks_after_each_message_is_tried_again_soon(
    tmp_path: Path,
) -> None:
    """All these connections together make one log line."""
    async with scripted() as far, bridged(tmp_path, far.port, UP) as near:
        async with wire(near.port, Connect("board")) as board:
            async with asyncio.timeout(30):  # if the pauses grew, they alone would take 31 s
                for number in range(6):
                    there, _ = await far.meet(present=number > 0)
                    await publish(board, "up/x", b"%d" % number, 1)
                    packet = await there.pick(Publish)
                    there.send(Puback(packet.packet_id))
                    await publish(board, "up/x", b"and", 1)
                    there.send(Puback((await there.pick(Publish)).packet_id))
                    there.writer.close()
        assert sum("the other broker closed the connection" in line for line in near.log) == 1
        assert sum("connected after" in line for line in near.log) <= 1


async def test_client_that_takes_the_session_over_is_not_fought(tmp_path: Path) -> None:
    """The other client is a second gateway with a copy of the files, so each gateway takes the
    session over from the other. The pauses of a gateway grow, although messages cross on each of
    its connections.
    """
    async with scripted() as far, bridged(tmp_path, far.port, UP) as near:
        async with wire(near.port, Connect("board")) as board:
            loop = asyncio.get_running_loop()
            ended = pause = 0.0
            for number in range(3):
                there, _ = await far.meet(present=number > 0)
                pause = loop.time() - ended
                await publish(board, "up/x", b"%d" % number, 1)
                there.send(Puback((await there.pick(Publish)).packet_id))
                there.send(Disconnect(ReasonCode.SESSION_TAKEN_OVER))
                there.writer.close()
                ended = loop.time()
            assert pause >= 1.9, "half of 2 to the second power, and the other pauses end after 1 s"
        assert any("SESSION_TAKEN_OVER" in line for line in near.log)
