"""Unexpected packets of the other broker."""

from pathlib import Path

import pytest

from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from gateway.mqtt.reason import ReasonCode
from tests.bridge.test_bridge import READING, UP, bridged, publish, scripted, until
from tests.service.wire import wire


@pytest.mark.mqtt("MQTT-3.2.0-2")
@pytest.mark.parametrize("packet", [Connack(False), Connack(True), Auth()])
async def test_a_second_connack_ends_the_connection(tmp_path: Path, packet: Packet) -> None:
    async with scripted() as far, bridged(tmp_path, far.port, UP) as near:
        there, _ = await far.meet(present=False)
        there.send(packet)
        assert (await there.pick(Disconnect)).reason == ReasonCode.PROTOCOL_ERROR
        await near.logged("the other broker sends a second CONNACK")
        await far.meet(present=True)


@pytest.mark.parametrize(
    "reason", [ReasonCode.SUCCESS, ReasonCode.NOT_AUTHORIZED, ReasonCode(0x97)]
)
@pytest.mark.parametrize("qos", [1, 2])
async def test_acknowledgements_of_nothing_change_nothing(
    tmp_path: Path, qos: int, reason: ReasonCode
) -> None:
    """Acknowledgements with a packet identifier that is not in flight, and acknowledgements of
    another QoS for the message in flight.
    """
    async with (
        scripted() as far,
        bridged(tmp_path, far.port, f"{UP}\nqos = {qos}") as near,
        wire(near.port, Connect("b")) as board,
    ):
        there, _ = await far.meet(present=False)
        await publish(board, READING, b"1", qos, 1)
        identifier = (await there.pick(Publish)).packet_id
        there.send(Puback(999, reason), Pubrec(999, reason), Pubcomp(999))
        there.send(Pubrec(identifier, reason) if qos == 1 else Puback(identifier, reason))
        there.send(Pubcomp(identifier))
        await near.logged("acknowledges a message that is not in flight")
        found = await until(tmp_path, waiting=1)
        assert (found["error"], found["sent"], found["refused"], found["aside"]) == (None, 0, 0, 0)
        if qos == 1:
            there.send(Puback(identifier))
        else:
            there.send(Pubrec(identifier))
            while (await there.pick(Pubrel)).packet_id != identifier:
                pass
            there.send(Pubcomp(identifier))
        await until(tmp_path, waiting=0, sent=1, refused=0)


async def test_the_server_keep_alive_is_kept(tmp_path: Path) -> None:
    async with scripted() as far, bridged(tmp_path, far.port, UP):
        there, _ = await far.meet(present=False, server_keep_alive=1)
        for _ in range(2):
            await there.pick(Pingreq)


async def test_server_keep_alive_of_0_asks_for_no_ping(tmp_path: Path) -> None:
    """The bridge still sends PINGREQ at its own interval, to notice a dead broker."""
    section = f"{UP}\nretained = false"
    async with scripted() as far, bridged(tmp_path, far.port, section) as near:
        there, _ = await far.meet(present=False, server_keep_alive=0)
        async with wire(near.port, Connect("board")) as board:
            for number in range(3):
                await publish(board, READING, b"%d" % number, 1)
        for number in range(3):
            assert (await there.take(Publish)).payload == b"%d" % number
