"""A bit of the EEPROM changes while the board is off, in each byte of each structure, one after the
other.

The board's own tests try 10,000 changes of slots (firmware/tests/test_damage.c). Here, the gateway
receives the publications afterwards. Each arrives unchanged, or the board reports its sequence as
lost.
"""

from binascii import crc_hqx
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest

from gateway.payload.loss import LOST
from hil.boards.ledger import DONE_MASK, EEPROM_SIZE, RELEASED_MASK, SLOT_SIZE, SLOTS, SLOTS_AT
from hil.judge.senml import decode, expected, says
from tests.firmware.eeprom import with_interval
from tests.firmware.test_host_board import (
    NAME,
    SAMPLING_OFF,
    Board,
    configuration,
    gateway_at,
    spooled,
    until,
)

__all__ = ["configuration"]

NEWEST, WAITING = 90, 8
DONE = NEWEST - WAITING
DAMAGED = (31, DONE, DONE + 1, NEWEST - 3, NEWEST)
"""Sequences whose slots are damaged: the oldest one, whose slot the next publication overwrites;
the last one that is done; and the first, a middle and the last one that still wait.
"""


def checked(record: bytes) -> bytes:
    return record + crc_hqx(record, 0xFFFF).to_bytes(2)


def source_of(sequence: int) -> bytes:
    """Return the content of a slot: a reading of ADC channel 0 with its own time
    (examples/sensor/reading.h).
    """
    return (
        (0x695B9B00 % 2**31 + sequence).to_bytes(4) + (sequence * 11 % 1024).to_bytes(2) + bytes(2)
    )


def address_of(sequence: int) -> int:
    return SLOTS_AT + (sequence - 1) % SLOTS * SLOT_SIZE


def image(incarnation: int) -> bytearray:
    """Return the EEPROM of a board that has made NEWEST publications. The last WAITING publications
    are not acknowledged.
    """
    made = bytearray(with_interval(SAMPLING_OFF))
    assert len(made) == EEPROM_SIZE
    made[0x000:0x006] = made[0x008:0x00E] = checked(incarnation.to_bytes(4))
    for boot in range(4):
        at = 0x010 + 4 * boot
        made[at : at + 4] = checked((boot + 1).to_bytes(2))
    for sequence in range(NEWEST - SLOTS + 1, NEWEST + 1):
        at, low = address_of(sequence), sequence & 0xFF
        done = sequence <= DONE
        marks = bytes([low ^ RELEASED_MASK, low ^ DONE_MASK]) if done else bytes(2)
        made[at : at + SLOT_SIZE] = checked(sequence.to_bytes(4) + source_of(sequence)) + marks
    return made


PLACES = [*range(SLOTS_AT), *(address_of(one) + at for one in DAMAGED for at in range(SLOT_SIZE))]


@pytest.mark.parametrize(
    "places", [PLACES[5::24], pytest.param(PLACES, marks=pytest.mark.soak)], ids=["some", "all"]
)
async def test_a_changed_bit_loses_nothing_in_silence_and_uses_no_sequence_again(
    sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path], places: list[int]
) -> None:
    random, incarnations, reported = Random(43), count(0x10000001), 0
    board = Board(sensor, tmp_path)
    async with gateway_at(configuration(board)) as site:
        for place in places:
            incarnation, before = next(incarnations), len(site.gateway.log)
            damaged = image(incarnation)
            damaged[place] ^= 1 << random.randrange(8)
            board.write_eeprom(bytes(damaged))
            await board.power_on(place)
            try:
                rows = await arrived(tmp_path, incarnation)
            finally:
                await board.power_off()
            sequences = [sequence for sequence, _ in rows]
            waited = [one for one in sequences if DONE < one <= NEWEST]
            assert waited == list(range(DONE + 1, NEWEST + 1)), hex(place)
            assert len(set(sequences)) == len(sequences), hex(place)
            for sequence, payload in rows:
                if payload == LOST:
                    reported += 1
                    await site.gateway.logged(f"publication {sequence} is lost")
                elif sequence <= NEWEST:
                    assert says(decode(payload), expected(NAME, source_of(sequence))), hex(place)
            assert not any("payload" in line for line in site.gateway.log[before:]), hex(place)
        assert reported, "each byte of a waiting slot is damaged but its sequence and marks"


async def arrived(folder: Path, incarnation: int) -> list[tuple[int, bytes]]:
    """Wait for the status that the board sends last after its start. Return sequence and payload of
    all publications.
    """
    found: list[tuple[int, str, bytes]] = []

    def told() -> bool:
        found[:] = [row[2:] for row in spooled(folder) if row[1] == incarnation]
        return any(sequence > NEWEST and topic.endswith("/status") for sequence, topic, _ in found)

    await until(told, 60)
    return [(sequence, payload) for sequence, _, payload in found]
