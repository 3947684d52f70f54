"""If the other broker closes the connection at a PUBREL, the bridge gives that message up and sends
the next one.
"""

import signal
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connect, Publish
from tests.bridge.picky import Picky, Verdict, picky
from tests.bridge.test_aside import aside, happens, until
from tests.bridge.test_bridge import READING, UP, configuration, publish
from tests.service.process import free_port, gateway
from tests.service.wire import wire

POISON = {b"3", b"7"}


def closes_at(broker: Picky, poison: set[bytes]) -> list[int]:
    """Let the broker close the connection at the PUBREL of messages with these payloads. Return a
    list. Each such close adds the packet identifier to it.
    """
    closes: list[int] = []

    def release(packet: Publish | None) -> Verdict:
        if packet is None or packet.payload not in poison:
            return 0
        closes.append(packet.packet_id)
        return "close"

    broker.release = release
    return closes


@pytest.mark.parametrize(
    ("late", "together"),
    [
        pytest.param(False, True, id="acts at PUBLISH, at once"),
        pytest.param(True, False, id="acts at PUBREL, one by one"),
        pytest.param(False, False, id="acts at PUBLISH, one by one", marks=pytest.mark.soak),
        pytest.param(True, True, id="acts at PUBREL, at once", marks=pytest.mark.soak),
    ],
)
async def test_a_pubrel_that_closes_the_connection_is_given_up(
    tmp_path: Path, late: bool, together: bool
) -> None:
    """All other messages arrive once, including those in flight when the connection closes."""
    file = configuration(tmp_path, port := free_port(), f"{UP}\nqos = 2")
    count = 12
    async with (
        gateway(tmp_path, "--config", str(file)) as near,
        wire(near.port, Connect("b")) as board,
    ):
        if together:
            for number in range(count):
                await publish(board, READING, b"%d" % number, 2, number + 1)
        async with picky(port) as far:
            far.acts_late = late
            closes = closes_at(far, POISON)
            if not together:
                for number in range(count):
                    await publish(board, READING, b"%d" % number, 2, number + 1)
            told = await until(tmp_path, waiting=0, unconfirmed=len(POISON), error=None)
            wanted = [b"%d" % number for number in range(count)]
            if late:
                wanted = [payload for payload in wanted if payload not in POISON]
            await far.until(len(wanted))
            assert sorted(far.payloads) == sorted(wanted)
            told = await until(tmp_path, sent=count - len(POISON))
            assert (told["set_aside"], told["dropped"]) == (0, 0)
            assert max(closes.count(identifier) for identifier in closes) == 3
            assert aside(tmp_path) == []
            await near.logged("at the PUBREL of a message, 3 times")
            await near.logged("may have arrived")


async def test_the_identifier_of_a_message_that_was_given_up_is_free_again(
    tmp_path: Path,
) -> None:
    """After the close, the bridge uses a new session with another client identifier. So the other
    broker does not take a later message with the same packet identifier for a repetition.
    """
    async with (
        picky() as far,
        gateway(
            tmp_path, "--config", str(configuration(tmp_path, far.port, f"{UP}\nqos = 2"))
        ) as near,
        wire(near.port, Connect("b")) as board,
    ):
        closes_at(far, {b"bad"})
        await publish(board, READING, b"bad", 2, 1)
        await until(tmp_path, unconfirmed=1, waiting=0)
        await until(tmp_path, error=None)
        first, last = far.clients[0], far.clients[-1]
        assert first != last
        assert far.received == {}


@pytest.mark.parametrize(
    "after", [2, 3, *(pytest.param(count, marks=pytest.mark.soak) for count in (1, 4))]
)
async def test_a_kill_while_a_pubrel_is_on_trial_loses_and_doubles_nothing(
    tmp_path: Path, after: int
) -> None:
    """after: number of closes at which the gateway is killed. The gateway is killed earlier if a
    new session begins at the other broker.
    """
    file = configuration(tmp_path, port := free_port(), f"{UP}\nqos = 2")
    async with picky(port) as far:
        far.acts_late = True
        closes = closes_at(far, {b"0"})
        async with (
            gateway(tmp_path, "--config", str(file)) as near,
            wire(near.port, Connect("b")) as board,
        ):
            for number in range(4):
                await publish(board, READING, b"%d" % number, 2, number + 1)
            await happens(lambda: len(closes) >= after or len(set(far.clients)) > 1)
            near.process.send_signal(signal.SIGKILL)
            await near.process.wait()
        async with gateway(tmp_path, "--config", str(file)):
            await far.until(3)
            told = await until(tmp_path, waiting=0, error=None)
            assert sorted(far.payloads) == [b"1", b"2", b"3"]
            assert told["set_aside"] == 0
