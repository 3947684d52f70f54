"""New firmware for boards in service, with the real avrdude and boot loader on the simulated Uno. A
real gateway has the board's port open.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from intelhex import IntelHex

from gateway.links.holders import holders
from hil.boards.simulator import BUILD, SimulatedBoard
from provisioning.boards import board
from provisioning.identity import SIZE, Identity
from provisioning.registry import Device, Registry
from provisioning.update import kept
from tests.service.process import GatewayProcess, gateway

pytestmark = pytest.mark.sim

HEX = BUILD / "uno" / "sensor.hex"
ONCEWAY = Path(sys.executable).with_name("onceway")
PAGE = board("uno").identity


@pytest_asyncio.fixture
async def uno(tmp_path: Path) -> AsyncIterator[SimulatedBoard]:
    async with SimulatedBoard(tmp_path / "board") as started:
        yield started


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Return the firmware of the sensor example with one more byte at its end."""
    image = IntelHex(str(HEX))
    image[(image.maxaddr() or 0) + 1] = 0x42
    image.write_hex_file(str(path := tmp_path / "newer.hex"))
    return path


@pytest.fixture
def mute(tmp_path: Path) -> Path:
    """Return a firmware that hangs, although it has the library's signature. It is longer than the
    sensor example.
    """
    image = IntelHex()
    image.puts(0, b"\xff\xcf" * 10_000)  # the instruction rjmp to itself
    image.puts(504, b"OWFW\x01" + PAGE.to_bytes(3))
    image.write_hex_file(str(path := tmp_path / "mute.hex"))
    return path


def _command(folder: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    registry = {"ONCEWAY_REGISTRY": str(folder / "registry.db")}
    return [str(ONCEWAY), "device", *arguments], os.environ | registry


async def onceway(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command, environment = _command(folder, *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


async def update(folder: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    code, out, err = await onceway(folder, "update", *arguments, "--json")
    return code, json.loads(out or "[]"), err


@asynccontextmanager
async def in_service(folder: Path, uno: SimulatedBoard) -> AsyncIterator[GatewayProcess]:
    """Write the board as roof-1, and run a gateway. Yield the gateway when the board has
    greeted.
    """
    code, _, err = await onceway(
        folder, "add", "roof-1", "--port", str(uno.port), "--hex", str(HEX)
    )
    assert code == 0, err
    config = folder / "gateway.toml"
    config.write_text(
        f'[gateway]\ndata = "{folder}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        f'[[serial]]\nport = "{uno.port}"\n'
    )
    async with gateway(folder, "--config", str(config)) as running:
        await running.logged("roof-1 greets")
        yield running


def greetings(running: GatewayProcess) -> list[str]:
    return [line for line in running.log if "roof-1 greets" in line]


async def greets_again(running: GatewayProcess, before: int) -> int:
    """Wait for the board's next greeting. Return the next sequence that the greeting names. before:
    number of greetings so far.
    """
    async with asyncio.timeout(30):
        while len(greetings(running)) <= before:  # noqa: ASYNC110  # lines have no event here
            await asyncio.sleep(0.05)
    return int(greetings(running)[-1].split("next sequence ")[1])


def device(folder: Path) -> Device:
    return Registry(folder / "registry.db").get("roof-1")


def program(uno: SimulatedBoard) -> bytes:
    return uno.flash_image.read_bytes()[:PAGE]


def holds(uno: SimulatedBoard, firmware: Path) -> bool:
    wanted = IntelHex(str(firmware)).tobinstr()
    return program(uno)[: len(wanted)] == wanted


async def test_a_board_in_service_gets_another_firmware_while_the_gateway_runs(
    tmp_path: Path, uno: SimulatedBoard, newer: Path
) -> None:
    async with in_service(tmp_path, uno) as running:
        first, eeprom = await greets_again(running, 0), device(tmp_path)
        before = len(greetings(running))
        code, (row,), err = await update(tmp_path, "roof-1", "--hex", str(newer))
        assert (code, row["outcome"]) == (0, "updated"), err
        assert holds(uno, newer)
        found = device(tmp_path)
        assert (found.status, found.key) == ("ready", eeprom.key)
        assert found.firmware != eeprom.firmware
        assert await greets_again(running, before) >= first, "it is the life that it had"
        assert not kept(Registry(tmp_path / "registry.db"), "roof-1").exists()
        code, (row,), _ = await update(tmp_path, "--all", "--hex", str(newer))
        assert (code, row["outcome"]) == (0, "has this firmware")


@pytest.mark.soak  # `make test` has the same way back after an update that was killed
async def test_firmware_that_does_not_greet_is_replaced_by_the_previous_one(
    tmp_path: Path, uno: SimulatedBoard, mute: Path
) -> None:
    async with in_service(tmp_path, uno) as running:
        known, before, flashed = device(tmp_path), len(greetings(running)), program(uno)
        code, (row,), err = await update(tmp_path, "roof-1", "--hex", str(mute))
        assert (code, row["outcome"]) == (1, "put back"), err
        assert "no greeting came" in row["error"]
        assert "has its old firmware again" in row["error"]
        assert holds(uno, HEX)
        assert program(uno)[: len(IntelHex(str(HEX)))] == flashed[: len(IntelHex(str(HEX)))]
        found = device(tmp_path)
        assert (found.status, found.firmware) == ("ready", known.firmware)
        await greets_again(running, before)
        folder = kept(Registry(tmp_path / "registry.db"), "roof-1").parent
        assert list(folder.iterdir()) == []


async def test_an_update_that_is_killed_goes_on_and_can_still_go_back(
    tmp_path: Path, uno: SimulatedBoard, newer: Path, mute: Path
) -> None:
    async with in_service(tmp_path, uno) as running:
        known, before, flashed = device(tmp_path), len(greetings(running)), program(uno)
        await kill_in_the_middle(tmp_path, uno, newer)
        assert device(tmp_path).status == "flashing"
        saved = IntelHex(str(kept(Registry(tmp_path / "registry.db"), "roof-1")))
        key = device(tmp_path).key or b""
        assert key not in saved.tobinstr()
        assert saved.maxaddr() < PAGE
        code, (row,), err = await update(tmp_path, "--all", "--hex", str(mute))
        assert (code, row["outcome"]) == (1, "put back"), err
        assert "no greeting came" in row["error"]
        assert "has its old firmware again" in row["error"]
        assert program(uno)[: len(IntelHex(str(HEX)))] == flashed[: len(IntelHex(str(HEX)))], (
            "what it had before all of it"
        )
        found = device(tmp_path)
        assert (found.status, found.firmware) == ("ready", known.firmware)
        await greets_again(running, before)
        assert list(kept(Registry(tmp_path / "registry.db"), "roof-1").parent.iterdir()) == []

        before = len(greetings(running))
        await kill_in_the_middle(tmp_path, uno, newer)
        code, (row,), err = await update(tmp_path, "--all", "--hex", str(newer))
        assert (code, row["outcome"]) == (0, "updated"), err
        assert holds(uno, newer)
        assert Identity.from_bytes(uno.flash_image.read_bytes()[PAGE : PAGE + SIZE]) == Identity(
            "roof-1", key
        )
        await greets_again(running, before)


async def kill_in_the_middle(folder: Path, uno: SimulatedBoard, firmware: Path) -> None:
    command, environment = _command(folder, "update", "roof-1", "--hex", str(firmware))
    process = await asyncio.create_subprocess_exec(
        *command, stderr=subprocess.PIPE, env=environment
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while (await process.stderr.readline()).strip() != b"writing":
            pass
        process.kill()
        await process.wait()
        while any("avrdude" in holder for holder in holders(str(uno.port))):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_impossible_update_is_an_error_and_changes_nothing_and_a_look_borrows_the_port(
    tmp_path: Path, uno: SimulatedBoard, newer: Path
) -> None:
    async with in_service(tmp_path, uno) as running:
        flashed = program(uno)
        registry = Registry(tmp_path / "registry.db")
        registry.finish(registry.begin(Identity.create("away-1"), "uno", "/dev/gone"), "ab" * 32)
        registry.admit("stranger-1")
        for arguments, exit_code, why in (
            (("update", "--json"), 2, "name the devices, or give --all"),
            (("update", "roof-9"), 5, "no device is called 'roof-9'"),
            (("update", "stranger-1", "--json"), 1, "is admitted"),
            (("update", "away-1"), 1, "is not plugged in"),
            (
                ("update", "roof-1", "--hex", str(tmp_path / "none.hex"), "--json"),
                1,
                "there is no firmware for",
            ),
        ):
            code, out, err = await onceway(tmp_path, *arguments)
            assert (code, why in err + out) == (exit_code, True), err
        code, rows, _ = await update(tmp_path, "--all", "--hex", str(newer), "--dry-run")
        assert code == 1
        assert {row["name"]: row["outcome"] for row in rows} == {
            "away-1": "away",
            "roof-1": "would be updated",
        }
        assert program(uno) == flashed
        assert len(greetings(running)) == 1, "its port was left alone"
        code, out, err = await onceway(
            tmp_path, "read", "--port", str(uno.port), "--json",
            "--registry", str(tmp_path / "registry.db"),
        )  # fmt: skip
        assert code == 0, err
        assert json.loads(out)["name"] == "roof-1"
        await greets_again(running, 1)
        command, env = _command(tmp_path, "read")
        probe = [command[0], "board", "probe", "--port", str(uno.port), "--json"]
        process = await asyncio.create_subprocess_exec(
            *probe, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        answer, error = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode == 0, error.decode()
        assert "uno" in json.loads(answer)
        await greets_again(running, 2)


def test_a_registry_without_boards_is_named(tmp_path: Path) -> None:
    """Without sudo, the command may read another registry than the gateway's. So it names the
    registry that it has read.
    """
    Registry(tmp_path / "registry.db").admit("stranger-1")
    command, env = _command(tmp_path, "update", "--all")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    said = "this registry has no board that was written here"
    assert done.stdout == f"{tmp_path}/registry.db: {said}\n"
