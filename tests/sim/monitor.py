"""Calls to a board at speed `step` with its test program (programs/monitor.c): send it a command,
let board time pass, and read the answer.
"""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

from hil.boards.simulator import HZ, SimulatedBoard, Stats

MS = HZ // 1000
START_UP = 70 * MS
"""Cycles from reset after which each program has sent its first bytes, with a margin."""


def build(source: Path, folder: Path) -> Path:
    """Compile a program for the Uno. Return the HEX file."""
    elf, image = folder / f"{source.stem}.elf", folder / f"{source.stem}.hex"
    compiler = [
        "avr-gcc",
        "-mmcu=atmega328p",
        "-DF_CPU=16000000UL",
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Os",
    ]
    subprocess.run([*compiler, "-o", elf, source], check=True)
    subprocess.run(["avr-objcopy", "-O", "ihex", elf, image], check=True)
    return image


async def ask(board: SimulatedBoard, question: bytes, length: int, within: int = 500 * MS) -> bytes:
    """Send `question`. Run at most `within` cycles, until `length` bytes have arrived, and return
    these.
    """
    await board.send(question)
    return await listen(board, length, within)


async def listen(board: SimulatedBoard, length: int, within: int = 500 * MS) -> bytes:
    """Run at most `within` cycles, until `length` bytes have arrived, and return these."""
    answer = b""
    for _ in range(0, within, MS):
        answer += await board.run(MS)
        if len(answer) >= length:
            break
    return answer


async def write_cell(board: SimulatedBoard, address: int, value: int, mode: int = 0) -> int:
    """Let the board program an EEPROM cell. Return how long that took, in microseconds."""
    answer = await ask(board, b"E%c" % mode + address.to_bytes(2) + bytes([value]), 3)
    assert answer[:1] == b"e"
    return 4 * int.from_bytes(answer[1:])


async def eventually(
    board: SimulatedBoard, condition: Callable[[Stats], bool], seconds: float = 20.0
) -> None:
    """Wait at most `seconds` of real time until `condition` holds for the board's counters."""
    async with asyncio.timeout(seconds):
        while not condition(await board.stats()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
