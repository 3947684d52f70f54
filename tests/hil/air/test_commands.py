"""`onceway device command --wait`, end to end: the command line, a gateway, and the sensor's own
firmware on simulated boards, one on a serial line and one by radio.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from hil.boards.simulator import BUILD, SimulatedBoard
from tests.firmware.bare import named
from tests.firmware.eeprom import with_interval
from tests.hil.air.radio_site import RadioSite

pytestmark = pytest.mark.sim

ONCEWAY = Path(sys.executable).with_name("onceway")
PATIENCE_S = 60
ASKED = [
    ("interval 2000 force", 0, "done"),
    ("interval", 0, "2000"),
    ("fly", 1, "refused: the board does not know this command"),
]
"""Command, expected exit code, and the beginning of the expected answer."""


async def said(folder: Path, *arguments: str) -> tuple[int | None, str]:
    """Run `onceway device command … --wait` and return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *(ONCEWAY, "device", "command", *arguments, "--wait", "--within", str(PATIENCE_S)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"ONCEWAY_REGISTRY": str(folder / "registry.db")},
    )
    out, _ = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_S)
    return process.returncode, out.decode()


async def ask_all(folder: Path, name: str) -> None:
    for command, code, words in ASKED:
        found, printed = await said(folder, name, command)
        last = printed.splitlines()[-1]
        assert (found, last.startswith(f"{name}: {words}")) == (code, True), printed


async def test_boards_on_a_line_and_by_radio_answer_the_command_line(tmp_path: Path) -> None:
    place = tmp_path / "wired"
    place.mkdir()
    (place / "eeprom.bin").write_bytes(with_interval(1000))
    line = f'[[serial]]\nport = "{place}/tty"\nopen = true\n'
    site = RadioSite(tmp_path, "roof-2", text=line)
    firmware = named(BUILD / "uno" / "sensor.hex", "uno", tmp_path)
    await site.begin()
    try:
        async with SimulatedBoard(place, firmware=firmware), site.uno("roof-2"):
            await site.start_gateway()
            await site.rows("roof-1", 1, PATIENCE_S)
            await site.rows("roof-2", 1, PATIENCE_S)
            await asyncio.gather(ask_all(tmp_path, "roof-1"), ask_all(tmp_path, "roof-2"))
    finally:
        await site.end()
