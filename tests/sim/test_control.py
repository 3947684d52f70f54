"""The control socket: one JSON object a line, refusals with a reason, a stream of events, and no
client that can harm the board.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from hil.boards.simulator import HZ, BoardError, SimulatedBoard
from tests.sim.monitor import MS, eventually

pytestmark = pytest.mark.sim


@asynccontextmanager
async def connection(
    board: SimulatedBoard,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    folder = os.open(board.directory, os.O_RDONLY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/control")
    finally:
        os.close(folder)
    yield reader, writer
    writer.close()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "unknown command"),
        ("explode", "unknown command"),
        ("power", "power on or power off"),
        ("power perhaps", "power on or power off"),
        ("power off now", "too many words"),
        ("reset 1", "too many words"),
        ("cut eeprom 1 torn 2", "too many words"),
        ("cut cycles", "N at least 1"),
        ("cut tx 0", "N at least 1"),
        ("cut tx -1", "N at least 1"),
        ("cut tx 1x", "N at least 1"),
        ("cut tx 99999999999999999999999", "N at least 1"),
        ("cut none 1", "N at least 1"),
        ("cut tx 1 torn", "N at least 1"),
        ("stick 1024 1 0", "address 0 to 1023"),
        ("stick 0 256 0", "bits and value 0 to 255"),
        ("stick 0 1", "stick ADDRESS BITS VALUE"),
        ("adc 8 100", "channel 0 to 7"),
        ("adc 0 5001", "0 to 5000 mV"),
        ("baud 0", "300 to 2000000"),
        ("rx", "rx HEX"),
        ("rx abc", "rx HEX"),
        ("rx zz", "rx HEX"),
        ("rx " + "00" * 1025, "rx HEX"),
        ("speed ludicrous", "speed real"),
        ("run forever", "run CYCLES"),
    ],
)
async def test_a_bad_command_is_refused_with_its_form(
    board: SimulatedBoard, line: str, why: str
) -> None:
    with pytest.raises(BoardError, match=why):
        await board.command(line)
    assert (await board.stats()).armed == "none"


async def test_run_is_for_speed_step_only(board: SimulatedBoard) -> None:
    await board.speed("max")
    with pytest.raises(BoardError, match="needs --speed step"):
        await board.run(1)


async def test_wire_buffers_a_bounded_number_of_bytes(board: SimulatedBoard) -> None:
    for _ in range(4):
        await board.send(bytes(1024))
    with pytest.raises(BoardError, match="the line is full"):
        await board.send(b"x")


async def test_events_come_as_lines_beside_answers(board: SimulatedBoard) -> None:
    async with connection(board) as (reader, writer):
        writer.write(b"events\nreset\nstats\n")
        lines = [json.loads(await reader.readline()) for _ in range(5)]
    assert [line.get("event") for line in lines] == [None, "reset", "boot", None, None]
    assert lines[1]["cause"] == lines[2]["cause"] == "external"
    assert lines[2]["boots"] == lines[4]["boots"] == 2


async def test_a_line_without_end_costs_its_sender_the_connection_only(
    board: SimulatedBoard,
) -> None:
    async with connection(board) as (reader, writer):
        writer.write(b"x" * 10_000)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    assert (await board.stats()).power


async def test_event_reader_that_never_reads_is_dropped(
    board: SimulatedBoard,
) -> None:
    async with connection(board) as (_, writer):
        writer.transport.pause_reading()
        writer.write(b"events\n")
        for _ in range(4000):
            await board.reset()
        assert (await board.stats()).boots == 4001


async def test_a_connection_too_many_is_closed_and_the_others_live(board: SimulatedBoard) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(7):  # `board` has another one
            reader, writer = await stack.enter_async_context(connection(board))
            writer.write(b"stats\n")
            assert await reader.readline()
        late, _ = await stack.enter_async_context(connection(board))
        assert await late.read() == b""
        assert (await board.stats()).power


async def test_a_dead_or_stopped_board_is_reported_in_words(board: SimulatedBoard) -> None:
    await board.command("quit")
    with pytest.raises(BoardError, match="has died"):
        await board.stats()
    await board.stop()
    with pytest.raises(BoardError, match="is not running"):
        await board.stats()


async def test_speed_can_be_changed_while_it_runs(board: SimulatedBoard) -> None:
    before = (await board.stats()).cycle
    await board.speed("max")
    await eventually(board, lambda stats: stats.cycle > before + 5 * HZ, seconds=20)
    await board.speed("step")
    stopped = (await board.stats()).cycle
    assert await board.run(MS) == b""
    assert (await board.stats()).cycle - stopped < 2 * MS
