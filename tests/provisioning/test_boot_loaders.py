"""All boards except the Uno, each with its usual boot loader, from the empty board to its first
greeting.

A Nano is the simulated Uno with another boot loader. The others are chips in a simulator with only
a serial port (tests/firmware/bare.c). The boot loaders are those of Debian's package
arduino-core-avr.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from intelhex import IntelHex

from hil.boards.simulator import BUILD, SimulatedBoard
from provisioning.boards import board
from provisioning.registry import Registry
from tests.firmware.bare import build

pytestmark = pytest.mark.sim

LOADERS = Path("/usr/share/arduino/hardware/arduino/avr/bootloaders")
NANO_OLD = LOADERS / "atmega" / "ATmegaBOOT_168_atmega328.hex"
OTHERS = {
    "mega2560": ("atmega2560", LOADERS / "stk500v2" / "stk500boot_v2_mega2560.hex"),
    "pro-mini": ("atmega328p", LOADERS / "atmega" / "ATmegaBOOT_168_atmega328_pro_8MHz.hex"),
}
APPEARS_S = 20.0
TRIES = 8


@asynccontextmanager
async def chip(program: Path, name: str, link: Path) -> AsyncIterator[Path]:
    """Run a simulated chip with only its boot loader. Yield the path of its serial port."""
    kind, (mcu, loader) = board(name), OTHERS[name]
    assert first_address(loader) == kind.application_end
    command = [
        program,
        mcu,
        str(kind.clock),
        loader,
        str(kind.application_end),
        str(kind.link_baud),
        link,
    ]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(APPEARS_S):
            while not link.exists():  # noqa: ASYNC110, ASYNC240  # another process makes it
                await asyncio.sleep(0.01)
        yield link
    finally:
        process.terminate()
        await process.wait()


def first_address(loader: Path) -> int:
    return int(min(IntelHex(str(loader)).addresses()))


async def added(folder: Path, kind: str, port: Path) -> dict[str, Any]:
    """Add a board with `device add`, and return its row. A boot loader waits only a second for
    avrdude. If avrdude was too late, run the command again, as a user would.
    """
    firmware = BUILD / board(kind).firmware / "sensor.hex"
    command = [
        "device",
        "add",
        f"my-{kind}",
        "--board",
        kind,
        "--port",
        port,
        "--hex",
        firmware,
        "--json",
    ]
    for _ in range(TRIES):
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("onceway"),
            *command,
            env=os.environ | {"ONCEWAY_REGISTRY": str(folder / "registry.db")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 120)
        if process.returncode == 0:
            break
    assert process.returncode == 0, err.decode()
    return dict(json.loads(out))


async def probed(port: Path) -> list[str]:
    """Return the boards that `onceway board probe` names for a port."""
    command = [Path(sys.executable).with_name("onceway"), "board", "probe", "--json", "--port"]
    process = await asyncio.create_subprocess_exec(
        *command, port, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    return list(json.loads(out))


async def test_bare_board_of_each_kind_is_written_and_greets(tmp_path: Path) -> None:
    """All boards are written at the same time into one registry, because writing is mostly waiting.
    Meanwhile, a board with an old boot loader is probed. Its USB chip is on several kinds of
    boards, so only a probe finds the kind.
    """
    assert first_address(NANO_OLD) == board("nano-old").application_end
    program = build(tmp_path)
    async with AsyncExitStack() as stack:
        ports = {
            kind: (
                await stack.enter_async_context(SimulatedBoard(tmp_path / kind, bootloader=loader))
            ).port
            for kind, loader in (("nano", True), ("nano-old", NANO_OLD), ("pro-mini-5v", NANO_OLD))
        }
        ports |= {
            kind: await stack.enter_async_context(chip(program, kind, tmp_path / f"tty-{kind}"))
            for kind in OTHERS
        }
        unknown = await stack.enter_async_context(
            SimulatedBoard(tmp_path / "unknown", bootloader=NANO_OLD)
        )
        found, *said = await asyncio.gather(
            probed(unknown.port), *(added(tmp_path, kind, port) for kind, port in ports.items())
        )
    assert found == ["nano-old", "pro-mini", "pro-mini-5v"]
    assert all(device["incarnation"] > 0 for device in said)
    entered = {
        (device.name, device.board, device.status)
        for device in Registry(tmp_path / "registry.db").devices()
    }
    assert entered == {
        (f"my-{kind}", kind, "ready")
        for kind in ("nano", "nano-old", "pro-mini-5v", "mega2560", "pro-mini")
    }
