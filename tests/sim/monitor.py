"""The board under test at speed `step`: ask its test program (programs/monitor.c) something, let
board time pass, take the answer.
"""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

from hil.boards.simulator import HZ, SimulatedBoard, Stats

MS = HZ // 1000
START_UP = 70 * MS
"""Longer than the time from any reset to the first bytes."""


def build(source: Path, folder: Path) -> Path:
    """Compile a program for the Uno; returns the HEX file."""
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
    """Send `question` and run until `length` bytes have come back, at most `within` cycles."""
    await board.send(question)
    return await listen(board, length, within)


async def listen(board: SimulatedBoard, length: int, within: int = 500 * MS) -> bytes:
    """Run until `length` bytes have come, at most `within` cycles."""
    answer = b""
    for _ in range(0, within, MS):
        answer += await board.run(MS)
        if len(answer) >= length:
            break
    return answer


async def write_cell(board: SimulatedBoard, address: int, value: int, mode: int = 0) -> int:
    """Program an EEPROM cell and return how long it took, in microseconds."""
    answer = await ask(board, b"E%c" % mode + address.to_bytes(2) + bytes([value]), 3)
    assert answer[:1] == b"e"
    return 4 * int.from_bytes(answer[1:])


async def eventually(
    board: SimulatedBoard, condition: Callable[[Stats], bool], seconds: float = 20.0
) -> None:
    """Wait, in real time, until the board's counters have these values."""
    async with asyncio.timeout(seconds):
        while not condition(await board.stats()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
