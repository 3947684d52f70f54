"""The serial port in real time: avrdude and Optiboot, DTR, hang-ups, and files that a process
leaves behind or removes.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import serial
from intelhex import IntelHex

from gateway.errors import OncewayError
from hil.boards.images import write_flash
from hil.boards.simulator import BUILD, BoardError, SimulatedBoard
from tests.sim.monitor import eventually

pytestmark = pytest.mark.sim


@pytest.fixture
async def uno(tmp_path: Path, monitor_hex: Path) -> AsyncIterator[SimulatedBoard]:
    async with SimulatedBoard(tmp_path / "uno", firmware=monitor_hex) as board:
        yield board


async def hear(port: int, length: int, seconds: float = 20.0) -> bytes:
    """Read `length` bytes from the port."""
    os.set_blocking(port, False)
    loop, heard, ready = asyncio.get_running_loop(), b"", asyncio.Event()
    loop.add_reader(port, ready.set)
    try:
        async with asyncio.timeout(seconds):
            while len(heard) < length:
                await ready.wait()
                ready.clear()
                with contextlib.suppress(BlockingIOError):
                    heard += os.read(port, length - len(heard))
    finally:
        loop.remove_reader(port)
    return heard


async def close(board: SimulatedBoard, port: int) -> None:
    """Close the port, and wait until the board's process has noticed that."""
    os.close(port)
    await eventually(board, lambda stats: not stats.open)


def open_port(board: SimulatedBoard) -> int:
    return os.open(board.port, os.O_RDWR | os.O_NOCTTY)


def avrdude_command(board: SimulatedBoard, *arguments: str) -> list[str]:
    return [
        "avrdude",
        "-q",
        "-c",
        "arduino",
        "-p",
        "m328p",
        "-P",
        str(board.port),
        "-b",
        "115200",
        *arguments,
    ]


async def avrdude(board: SimulatedBoard, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        avrdude_command(board, *arguments),
        capture_output=True,
        text=True,
        timeout=30,
    )


async def test_avrdude_flashes_and_verifies_and_the_program_runs(
    tmp_path: Path, monitor_hex: Path
) -> None:
    async with SimulatedBoard(tmp_path / "board") as board:
        assert (await avrdude(board, "-U", f"flash:w:{monitor_hex}:i")).returncode == 0
        events = await board.subscribe()
        port = open_port(board)
        while (await events.wait_for("boot")).details["cause"] != "external":
            pass  # the boot loader may still be running after avrdude
        assert (await events.wait_for("boot")).details[
            "cause"
        ] == "watchdog"  # the boot loader's timeout
        assert (await hear(port, 3))[:2] == b"B\x00"  # Optiboot clears MCUSR
        os.write(port, b"N")
        assert await hear(port, 1) == b"n"
        os.close(port)
    program = IntelHex(str(monitor_hex))
    flash = board.flash_image.read_bytes()
    assert all(flash[address] == program[address] for address in program.addresses())


async def test_a_flash_cut_off_by_power_can_be_repeated(tmp_path: Path) -> None:
    """No program can overwrite the boot loader, so a board can always be flashed again over its
    port.
    """
    write = ("-U", f"flash:w:{BUILD / 'uno' / 'sensor.hex'}:i")
    async with SimulatedBoard(tmp_path / "board") as board:
        events = await board.subscribe()
        await board.cut("tx", 60)
        process = await asyncio.create_subprocess_exec(
            *avrdude_command(board, *write), stderr=asyncio.subprocess.DEVNULL
        )
        await events.wait_for("cut")
        process.kill()
        await process.wait()
        await eventually(board, lambda stats: not stats.open)
        await board.power(True)
        assert (await avrdude(board, *write)).returncode == 0


async def test_flash_and_eeprom_outlive_a_kill(uno: SimulatedBoard) -> None:
    before = uno.flash_image.read_bytes()
    await uno.kill()
    assert uno.flash_image.read_bytes() == before
    await uno.start()
    assert (await uno.stats()).boots == 1


async def test_each_opening_resets_the_board(uno: SimulatedBoard) -> None:
    events = await uno.subscribe()
    for _ in range(2):
        port = open_port(uno)
        assert (await events.wait_for("reset")).details["cause"] == "external"
        second = open_port(uno)  # DTR is asserted already: no edge
        os.close(second)
        await close(uno, port)
    assert (await uno.stats()).boots >= 3


async def test_an_opener_that_clears_hupcl_spares_the_next_one_the_reset(
    uno: SimulatedBoard,
) -> None:
    port = open_port(uno)
    await eventually(uno, lambda stats: stats.open)
    settings = termios.tcgetattr(port)
    settings[2] &= ~termios.HUPCL
    termios.tcsetattr(port, termios.TCSANOW, settings)
    assert (await hear(port, 3))[:1] == b"B"  # after the boot loader
    boots = (await uno.stats()).boots
    await close(uno, port)
    port = open_port(uno)
    os.write(port, b"N")
    assert await hear(port, 1) == b"n"
    assert (await uno.stats()).boots == boots
    os.close(port)


async def test_a_program_that_sets_hupcl_again_lets_the_next_one_reset_the_board(
    uno: SimulatedBoard,
) -> None:
    port = open_port(uno)
    await eventually(uno, lambda stats: stats.open)
    settings = termios.tcgetattr(port)
    settings[2] &= ~termios.HUPCL
    termios.tcsetattr(port, termios.TCSANOW, settings)
    await close(uno, port)
    boots = (await uno.stats()).boots
    # no question to the board's process in between, so it may miss this closing
    port = open_port(uno)
    settings[2] |= termios.HUPCL
    termios.tcsetattr(port, termios.TCSANOW, settings)
    os.close(port)
    port = open_port(uno)
    await eventually(uno, lambda stats: stats.boots == boots + 1)
    os.close(port)


async def test_next_opener_of_a_port_gets_no_old_bytes(
    uno: SimulatedBoard,
) -> None:
    assert uno.pid
    port = open_port(uno)
    assert (await hear(port, 3))[:1] == b"B"  # after the boot loader
    os.kill(uno.pid, signal.SIGSTOP)  # so that it sees the write and the close at the same time
    os.write(port, b"NN")
    os.close(port)
    os.kill(uno.pid, signal.SIGCONT)
    await eventually(uno, lambda stats: stats.rx == 2)
    assert not (await uno.stats()).open


async def test_pyserial_at_the_wrong_rate_hears_garbage(uno: SimulatedBoard) -> None:
    with serial.Serial(str(uno.port), 9600) as port:
        assert (await hear(port.fileno(), 1)) != b"B"
    with serial.Serial(str(uno.port), 115200) as port:
        assert (await hear(port.fileno(), 1)) == b"B"


async def test_bytes_to_a_closed_port_are_lost(uno: SimulatedBoard) -> None:
    events = await uno.subscribe()
    await uno.power(False)
    await uno.power(True)
    await events.wait_for("boot")
    await eventually(uno, lambda stats: stats.tx == 3)
    port = open_port(uno)
    assert (await hear(port, 3))[:2] == b"B\x00"
    os.close(port)
    assert (await uno.stats()).tx == 6


async def test_unplugging_hangs_up_and_plugging_brings_the_port_back(uno: SimulatedBoard) -> None:
    port = open_port(uno)
    await eventually(uno, lambda stats: stats.open)
    await uno.unplug()
    assert not uno.port.is_symlink()
    assert os.read(port, 1) == b""  # end of file: the line has hung up
    os.close(port)
    await uno.plug()
    port = open_port(uno)
    assert (await hear(port, 3))[:1] == b"B"
    os.close(port)


async def test_a_stopped_board_leaves_no_port_and_no_socket(uno: SimulatedBoard) -> None:
    await uno.stop()
    assert {path.name for path in uno.directory.iterdir()} == {
        "flash.bin",
        "eeprom.bin",
        "adc.log",
        "eeprom.log",
        "simboard.log",
    }
    await uno.stop()


async def test_a_board_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = """
import asyncio, os, pathlib, sys
from hil.boards.simulator import SimulatedBoard
async def main():
    board = SimulatedBoard(pathlib.Path(sys.argv[1]))
    await board.start()
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(tmp_path))
    assert await process.wait() == -signal.SIGKILL
    async with asyncio.timeout(20):
        while (tmp_path / "tty").is_symlink():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_the_traces_of_a_killed_board_do_not_stop_the_next(uno: SimulatedBoard) -> None:
    await uno.kill()
    assert uno.port.is_symlink()
    await uno.start()
    port = open_port(uno)
    assert (await hear(port, 3))[:1] == b"B"
    os.close(port)


async def test_a_second_board_in_the_same_folder_is_refused(uno: SimulatedBoard) -> None:
    with pytest.raises(BoardError, match="another simulated board has this image in use"):
        await SimulatedBoard(uno.directory).start()
    with pytest.raises(OncewayError, match="a running board has this flash in use"):
        await SimulatedBoard(uno.directory, firmware=BUILD / "uno" / "sensor.hex").start()
    assert (await uno.stats()).power


async def test_an_image_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "eeprom.bin").write_bytes(b"\xff" * 1000)
    with pytest.raises(BoardError, match="wrong size"):
        await SimulatedBoard(tmp_path).start()


@pytest.mark.parametrize(
    ("content", "why"),
    [("no hex\n", "not an Intel HEX file"), (":00000001FF\n", "empty or too large")],
)
def test_invalid_firmware_file_is_refused(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "bad.hex").write_text(content)
    with pytest.raises(OncewayError, match=why):
        write_flash(tmp_path / "flash.bin", tmp_path / "bad.hex")
