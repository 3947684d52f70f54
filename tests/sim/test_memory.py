"""The sensor, with its journal in a memory on the I2C bus: wherever its power is cut, nothing is
lost or duplicated.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from gateway.mqtt.packets import Packet, Publish
from hil.boards.exchange import Gateway, converse
from hil.boards.simulator import BUILD, HZ, SimulatedBoard
from hil.judge.senml import Record, decode
from tests.firmware.eeprom import with_interval

pytestmark = pytest.mark.sim

SENSOR = BUILD / "uno" / "sensor-memory.hex"
READINGS = 2
SLOT, SOURCE_AT = 16, 4

Kind = Literal["fram", "i2c-eeprom"]
KINDS: tuple[Kind, ...] = ("fram", "i2c-eeprom")


def board_in(folder: Path, kind: Kind | None, seed: int = 1, interval: int = 250) -> SimulatedBoard:
    folder.mkdir(exist_ok=True)
    (folder / "eeprom.bin").write_bytes(with_interval(interval))
    return SimulatedBoard(folder, firmware=SENSOR, speed="step", seed=seed, memory=kind)


def check(gateway: Gateway, waiting: int = 3) -> None:
    """Check that each sequence was delivered only once. Up to `waiting` sequences before the last
    one may still be on their way.
    """
    delivered = sorted(delivery.sequence for delivery in gateway.deliveries)
    assert len(delivered) == len(set(delivered)), "doubled"
    assert delivered[-1] - len(delivered) <= waiting, "lost"


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
async def test_power_cut_at_every_write_to_the_memory(
    tmp_path: Path, kind: Kind, step: int
) -> None:
    gateway = Gateway()
    async with board_in(tmp_path / "uncut", kind) as board:
        await converse(board, gateway, completed=READINGS)
        writes = (await board.stats()).memory_writes
    check(gateway)
    assert writes >= 2 * 14, "two slots, of which no byte stood there before"
    for number in range(1, writes + 1, step):
        gateway = Gateway()
        async with board_in(tmp_path / str(number), kind, seed=number) as board:
            await board.cut("memory", number, torn=True)
            await converse(board, gateway, completed=READINGS)
            assert (await board.stats()).armed == "none", "the cut did not fire"
            await board.power(True)
            await converse(board, gateway, completed=gateway.completed + READINGS)
        check(gateway)


async def test_hours_without_a_gateway_fit(tmp_path: Path) -> None:
    """The board keeps its readings in FRAM. The chip's own EEPROM has room for only sixty."""
    gateway = Gateway()
    async with board_in(tmp_path / "board", "fram") as board:
        await board.run(60 * HZ)
        await board.power(False)
        await board.power(True)
        await converse(board, gateway, completed=200, seconds=60)
        taken = (await board.stats()).samples
    check(gateway, waiting=taken)
    assert gateway.completed == 200


@pytest.mark.parametrize("kind", KINDS)
async def test_damage_at_rest_is_mended_before_the_watchdog_bites(
    tmp_path: Path, kind: Kind
) -> None:
    """At its start, the board reads all slots of the memory. It reports each damaged slot by a
    publication with the slot's sequence and the payload `lost`.
    """
    gateway = Gateway()
    async with board_in(tmp_path / "board", kind) as board:
        await board.run(5 * HZ)
        await board.power(False)
        image = tmp_path / "board" / "memory.bin"
        there = bytearray(image.read_bytes())
        for slot in (3, 4, 9):
            there[slot * SLOT + SOURCE_AT] ^= 0x10
        image.write_bytes(there)
        await board.power(True)
        await converse(board, gateway, completed=12, seconds=120)
        stats = await board.stats()
    check(gateway)
    assert (stats.boots, stats.cause) == (2, "power-on")
    lost = [one.sequence for one in gateway.deliveries if one.payload == b"lost"]
    assert lost == [4, 5, 10]


async def test_a_memory_that_is_missing_is_shown(tmp_path: Path) -> None:
    """Without the external memory, the board runs, but takes no samples. At each connection, it
    reports that the memory is missing.
    """
    said: list[bytes] = []

    class Listening(Gateway):
        def _answers(self, packet: Packet) -> Iterator[Packet]:
            if isinstance(packet, Publish) and packet.qos == 0:
                said.append(packet.payload)
            else:
                yield from super()._answers(packet)

    async with board_in(tmp_path / "board", None) as board:
        await converse(board, Listening(), completed=1, seconds=5)
    assert [decode(payload) for payload in said] == [(Record(":memory", 0, None),)]
