"""The replay of a recording of timed inputs gives the same bytes at the same cycles."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import serial

from hil.boards.simulator import BUILD, BoardError, SimulatedBoard, Stats
from tests.sim.monitor import eventually

pytestmark = pytest.mark.sim


def replay(recorded: SimulatedBoard, images: Path, folder: Path) -> None:
    """Replay a board's recording in `folder`. images: folder with the board's images from before
    the recording, which are copied.
    """
    folder.mkdir()
    for name in ("flash.bin", "eeprom.bin"):
        shutil.copy(images / name, folder / name)
    command = [
        BUILD / "sim" / "simboard",
        "--replay",
        recorded.inputs,
        "--bootloader",
        BUILD / "sim" / "optiboot.hex",
        "--seed",
        "7",
    ]
    command += [
        "--flash",
        "flash.bin",
        "--eeprom",
        "eeprom.bin",
        "--eeprom-log",
        "eeprom.log",
        "--tx-log",
        "tx.log",
    ]
    subprocess.run(command, cwd=folder, check=True, timeout=60)


async def hear(board: SimulatedBoard, port: serial.Serial, length: int) -> None:
    """Wait until `length` bytes have come."""
    heard = b""

    def enough(_: Stats) -> bool:
        nonlocal heard
        heard += port.read(length - len(heard))
        return len(heard) == length

    await eventually(board, enough)


async def test_a_life_with_resets_cuts_and_traffic_repeats_to_the_cycle(
    tmp_path: Path, monitor_hex: Path
) -> None:
    images = tmp_path / "images"
    prepared = SimulatedBoard(images, firmware=monitor_hex, off=True)
    async with prepared:
        pass
    shutil.copytree(images, tmp_path / "recorded")
    async with SimulatedBoard(tmp_path / "recorded", seed=7, record=True) as board:
        with serial.Serial(str(board.port), 115200, timeout=0) as port:
            events = await board.subscribe()
            await events.wait_for("boot")
            await board.adc(2, 1234)
            await hear(board, port, 3)
            for round_number in range(3):
                for cell in range(4):
                    port.write(b"E\x00\x00%c%cA\x02" % (cell, round_number))
                    await hear(board, port, 6)
                await board.cut("eeprom", 1, torn=True)
                port.write(b"E\x00\x00\x05%c" % round_number)
                await events.wait_for("cut")
                await board.power(True)
                await hear(board, port, 3)
            port.write(b"T" + bytes(range(5, 255)))
            await hear(board, port, 100)
    for name in ("first", "second"):
        replay(board, images, tmp_path / name)
        for file in ("tx.log", "eeprom.log", "eeprom.bin", "flash.bin"):
            assert (tmp_path / name / file).read_bytes() == (board.directory / file).read_bytes(), (
                file
            )
    assert len(board.tx_log.read_bytes().splitlines()) > 50


async def test_another_seed_tears_otherwise(tmp_path: Path, monitor_hex: Path) -> None:
    torn = set()
    for seed in range(4):
        async with SimulatedBoard(
            tmp_path / str(seed), firmware=monitor_hex, speed="step", seed=seed, bootloader=False
        ) as board:
            await board.run(1_200_000)
            for _ in range(8):
                await board.cut("eeprom", 1, torn=True)
                await board.send(b"E\x00\x00\x00\x00")
                await board.run(200_000)
                await board.power(True)
                await board.run(1_200_000)
        torn.add(board.eeprom_log.read_text())
    assert len(torn) == 4


@pytest.mark.parametrize(
    ("line", "number"), [("noise", 2), ("12 explode", 2), ("12 power perhaps", 2), ("reset", 2)]
)
def test_invalid_recording_is_refused_with_its_line(tmp_path: Path, line: str, number: int) -> None:
    (tmp_path / "inputs").write_text(f"10 reset\n{line}\n20 end\n")
    command = [BUILD / "sim" / "simboard", "--replay", tmp_path / "inputs"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert result.returncode == 1
    assert f"inputs: line {number} is no input of a recording" in result.stderr


async def test_refused_command_is_not_in_the_recording(tmp_path: Path, monitor_hex: Path) -> None:
    async with SimulatedBoard(
        tmp_path, firmware=monitor_hex, bootloader=False, record=True
    ) as board:
        await board.power(False)
        for refused in ("reset", "cut tx 0", "adc 9 9"):
            with pytest.raises(BoardError):
                await board.command(refused)
        # resets nothing, because the board has no power
        os.close(os.open(board.port, os.O_RDWR | os.O_NOCTTY))
        await board.stats()
    assert [line.partition(" ")[2] for line in board.inputs.read_text().splitlines()] == [
        "power off",
        "end",
    ]


def test_a_missing_recording_is_reported(tmp_path: Path) -> None:
    command = [BUILD / "sim" / "simboard", "--replay", tmp_path / "none"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert result.returncode == 1
    assert "No such file" in result.stderr
