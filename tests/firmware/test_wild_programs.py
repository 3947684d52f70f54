"""Programs that run beyond their own code. In the simulated board, such a program harms only
itself.

A bare board is an example. Its erased flash leads from address 0 to the boot loader, again and
again. The stack grows through the RAM and the registers to address 0.
"""

import os
import random
import subprocess
from pathlib import Path

import pytest

import hil.boards.simulator
from hil.boards.simulator import SimulatedBoard

SECOND = 16_000_000
SIM = Path(__file__).parents[2] / "firmware" / "sim"

LDI_XYZ_FFFF = (0xEFAF, 0xEFBF, 0xEFEF, 0xEFFF)
"""Instructions: ldi XL, 0xFF; ldi XH, 0xFF; ldi ZL, 0xFF; ldi ZH, 0xFF."""

STACK_AT_FFFF = (0xEFEF, 0xBFED, 0xBFEE)
"""Instructions: ldi ZL, 0xFF; out SPL, ZL; out SPH, ZL."""

WILD: dict[str, tuple[int, ...]] = {
    "erased": (),
    "jumps-to-the-end-of-22-bits": (0x95FD, 0xFFFF),
    "jumps-through-a-pointer": (*LDI_XYZ_FFFF, 0x9409),
    "calls-through-a-pointer": (*LDI_XYZ_FFFF, 0x9509),
    "returns-to-nowhere": (0x9508,),
    "writes-beyond-the-ram": (*LDI_XYZ_FFFF, 0x93EC, 0xCFFF),
    "writes-and-steps-on": (*LDI_XYZ_FFFF, 0x93ED, 0x93ED, 0xCFFD),
    "reads-beyond-the-ram": (*LDI_XYZ_FFFF, 0x910C, 0xCFFF),
    "reads-beyond-the-flash": (*LDI_XYZ_FFFF, 0x9104, 0x9105, 0xCFFD),
    "pushes-from-beyond-the-ram": (*STACK_AT_FFFF, 0x93EF, 0xCFFE),
    "pops-from-beyond-the-ram": (*STACK_AT_FFFF, 0x91EF, 0xCFFE),
}


def flash(words: tuple[int, ...]) -> bytes:
    return b"".join(word.to_bytes(2, "little") for word in words).ljust(32_768, b"\xff")


def put_flash(folder: Path, image: bytes) -> None:
    folder.mkdir()
    (folder / "flash.bin").write_bytes(image)


async def runs(folder: Path, image: bytes, *, bootloader: bool) -> None:
    """Run an image with resets, power cuts and a new start. Raises an error if the simulator
    crashes.
    """
    put_flash(folder, image)
    async with SimulatedBoard(folder, speed="step", bootloader=bootloader) as board:
        for _ in range(3):
            await board.run(SECOND // 20)
            await board.reset()
            await board.run(SECOND // 20)
            await board.power(False)
            await board.power(True)


@pytest.mark.sim
@pytest.mark.parametrize("name", WILD)
async def test_a_wild_program_does_not_end_the_simulated_board(tmp_path: Path, name: str) -> None:
    await runs(tmp_path / "board", flash(WILD[name]), bootloader=False)


@pytest.mark.sim
async def test_bare_board_stays_in_its_boot_loader(tmp_path: Path) -> None:
    async with SimulatedBoard(tmp_path / "bare", speed="step") as board:
        for _ in range(4):
            await board.run(4 * SECOND)
            await board.reset()
        assert (await board.stats()).boots >= 5


@pytest.fixture(scope="module")
def with_sanitizers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the simulated board with sanitizers. Return a folder with the structure of
    build/firmware.
    """
    build = tmp_path_factory.mktemp("sanitized")
    flags = "-fsanitize=address,undefined -fno-sanitize-recover=all"
    command = ["make", "-s", "-C", str(SIM), f"OUT={build / 'sim'}", f"LDFLAGS={flags}"]
    environment = dict(os.environ, CFLAGS=f"-O1 -g {flags}")
    subprocess.run(command, env=environment, check=True, timeout=300)
    return build


@pytest.mark.soak
@pytest.mark.sim
async def test_sanitizers_find_nothing_in_a_board_that_runs_noise(
    tmp_path: Path, with_sanitizers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hil.boards.simulator, "BUILD", with_sanitizers)
    for name, words in WILD.items():
        await runs(tmp_path / name, flash(words), bootloader=False)
        await runs(tmp_path / f"{name}-2", flash(words), bootloader=True)
    for seed in range(40):
        noise = random.Random(seed).randbytes(32_256)
        await runs(
            tmp_path / f"noise-{seed}", noise.ljust(32_768, b"\xff"), bootloader=seed % 2 == 0
        )
