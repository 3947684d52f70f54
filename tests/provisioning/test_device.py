"""Jobs that turn an empty board into a registered device, with the real avrdude and the real boot
loader on the simulated Uno.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from intelhex import IntelHex

from gateway.links.holders import holders
from hil.boards.simulator import BUILD, SimulatedBoard
from provisioning.boards import board
from provisioning.identity import SIZE, Identity
from provisioning.registry import Registry

pytestmark = pytest.mark.sim

HEX = BUILD / "uno" / "sensor.hex"
ONCEWAY = Path(sys.executable).with_name("onceway")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a small program that does nothing."""
    path = tmp_path / "small.hex"
    idle = b"\xff\xcf"  # the instruction rjmp to itself
    image = IntelHex()
    image.puts(0, idle * 256)
    image.write_hex_file(str(path))
    return path


@pytest.fixture
def signed(small: Path) -> Path:
    """Return the program `small` with the signature of the library: it looks like Onceway's
    firmware, but hangs.
    """
    image = IntelHex(str(small))
    image.puts(504, b"OWFW\x01" + board("uno").identity.to_bytes(3))
    image.write_hex_file(str(path := small.with_name("signed.hex")))
    return path


@pytest_asyncio.fixture
async def uno(tmp_path: Path) -> AsyncIterator[SimulatedBoard]:
    async with SimulatedBoard(tmp_path) as started:
        yield started


@pytest_asyncio.fixture
async def other(tmp_path: Path) -> AsyncIterator[SimulatedBoard]:
    async with SimulatedBoard(tmp_path / "other") as started:
        yield started


async def _onceway(
    tmp_path: Path, *arguments: str, path: str | None = None
) -> tuple[int, str, str]:
    environment = (
        os.environ
        | {"ONCEWAY_REGISTRY": str(tmp_path / "registry.db")}
        | ({"PATH": path} if path is not None else {})
    )
    process = await asyncio.create_subprocess_exec(
        ONCEWAY,
        *arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


async def _provision(
    tmp_path: Path, uno: SimulatedBoard, firmware: Path, *more: str
) -> tuple[int, str, str]:
    return await _onceway(
        tmp_path,
        "device",
        "provision",
        "roof-1",
        "--port",
        str(uno.port),
        "--hex",
        str(firmware),
        *(() if firmware == HEX else ("--foreign",)),
        *more,
    )


def _on_board(uno: SimulatedBoard) -> Identity | None:
    address = board("uno").identity
    return Identity.from_bytes(uno.flash_image.read_bytes()[address : address + SIZE])


async def test_a_bare_board_becomes_a_device_takes_a_new_key_and_keeps_it_through_a_new_firmware(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    code, out, err = await _provision(tmp_path, uno, HEX)
    assert (code, err.splitlines()) == (
        0,
        ["waiting for the boot loader", "writing", "reading back", "waiting for its greeting"],
    )
    assert "roof-1 provisioned" in out

    entered = Registry(tmp_path / "registry.db").get("roof-1")
    assert entered.status == "ready"
    assert _on_board(uno) == Identity("roof-1", entered.key or b"")
    program = IntelHex(str(HEX)).tobinstr()
    assert uno.flash_image.read_bytes()[: len(program)] == program

    before, flashed = _on_board(uno), uno.flash_image.read_bytes()[:0x7D00]
    code, out, err = await _onceway(tmp_path, "device", "rekey", "roof-1", "--port", str(uno.port))
    assert (code, err.splitlines()[-1]) == (0, "waiting for its greeting")
    assert "roof-1 given another key" in out
    entered = Registry(tmp_path / "registry.db").get("roof-1")
    assert _on_board(uno) == Identity("roof-1", entered.key or b"") != before
    assert uno.flash_image.read_bytes()[:0x7D00] == flashed

    code, out, _ = await _onceway(
        tmp_path,
        "device",
        "flash",
        "roof-1",
        "--port",
        str(uno.port),
        "--hex",
        str(small),
        "--foreign",
        "--json",
    )
    assert code == 0
    assert json.loads(out)["name"] == "roof-1"
    assert _on_board(uno) == Identity("roof-1", entered.key or b"")

    code, out, _ = await _onceway(tmp_path, "device", "list", "--json")
    assert [(row["name"], row["status"]) for row in json.loads(out)] == [("roof-1", "written")]
    assert (entered.key or b"").hex() not in out


async def _add(tmp_path: Path, uno: SimulatedBoard, name: str) -> dict[str, Any]:
    code, out, err = await _onceway(
        tmp_path, "device", "add", name, "--port", str(uno.port), "--hex", str(HEX), "--json"
    )
    assert code == 0, err
    return dict(json.loads(out))


async def test_board_reports_its_name(tmp_path: Path, uno: SimulatedBoard, small: Path) -> None:
    read = ("device", "read", "--port", str(uno.port), "--json")
    assert json.loads((await _onceway(tmp_path, *read))[1])["name"] is None
    await _provision(tmp_path, uno, small)
    assert json.loads((await _onceway(tmp_path, *read))[1])["name"] == "roof-1"


async def test_board_takes_a_new_name_and_a_name_takes_a_new_board(
    tmp_path: Path, uno: SimulatedBoard, other: SimulatedBoard, small: Path
) -> None:
    await _provision(tmp_path, uno, small)
    first = _on_board(uno)
    assert first is not None
    where = ("--port", str(uno.port), "--hex", str(small), "--foreign")

    code, _, err = await _onceway(tmp_path, "device", "rename", "roof-1", "roof-2", *where)
    assert code == 0, err
    assert _on_board(uno) == Identity("roof-2", first.key)
    assert [device.name for device in Registry(tmp_path / "registry.db").devices()] == ["roof-2"]

    code, _, err = await _onceway(
        tmp_path,
        "device",
        "replace",
        "roof-2",
        "--port",
        str(other.port),
        "--hex",
        str(small),
        "--foreign",
    )
    assert code == 0, err
    second = _on_board(other)
    assert second is not None
    assert (second.name, second.key != first.key) == ("roof-2", True)
    assert Registry(tmp_path / "registry.db").get("roof-2").key == second.key


async def test_a_taken_name_and_a_taken_board_are_refused_before_the_board_is_touched(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    await _provision(tmp_path, uno, small)
    before = uno.flash_image.read_bytes()
    code, _, err = await _provision(tmp_path, uno, small)
    assert code == 1
    assert "the name 'roof-1' is in use by a device" in err
    code, out, err = await _provision(tmp_path, uno, small, "--json")
    assert (code, out) == (1, "")
    said = json.loads(err)
    assert said["where"] == str(tmp_path / "registry.db")
    assert "the name 'roof-1' is in use by a device" in said["error"]
    assert "`replace`" in said["hint"]
    code, _, err = await _onceway(
        tmp_path,
        "device",
        "provision",
        "roof-2",
        "--port",
        str(uno.port),
        "--hex",
        str(small),
        "--foreign",
    )
    assert code == 1
    assert f"{uno.port}: the board on this port is 'roof-1' (written)" in err
    assert uno.flash_image.read_bytes() == before
    assert [device.name for device in Registry(tmp_path / "registry.db").devices()] == ["roof-1"]


async def _with_catalogue(
    patch: str, command: Awaitable[tuple[int, str, str]], tmp_path: Path
) -> tuple[int, str, str]:
    """Run a command with a changed board catalogue. patch: Python code that changes the catalogue
    `known`.
    """
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(
        f"import provisioning.boards as b\nknown = b.catalogue()\n{patch}\n"
    )
    os.environ["PYTHONPATH"] = str(tmp_path / "patch")
    try:
        return await command
    finally:
        del os.environ["PYTHONPATH"]


async def test_wrong_chip_is_an_error_and_nothing_is_written_or_entered(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    before = uno.flash_image.read_bytes()
    patch = (
        "known['mini'] = known['uno'].model_copy(update={'name': 'mini', 'chip': 'm168',"
        " 'chip_title': 'ATmega168', 'identity': 0x3D80})"
    )
    code, _, err = await _with_catalogue(
        patch, _provision(tmp_path, uno, small, "--board", "mini"), tmp_path
    )
    assert code == 1
    assert "not an ATmega168" in err
    assert "0x1e950f" in err.lower()
    assert uno.flash_image.read_bytes() == before
    assert Registry(tmp_path / "registry.db").devices() == []


async def test_a_board_without_power_does_not_answer_and_an_old_entry_stays_as_it_was(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    await _provision(tmp_path, uno, small)
    before = Registry(tmp_path / "registry.db").get("roof-1")
    await uno.power(False)
    code, _, err = await _onceway(
        tmp_path,
        "device",
        "flash",
        "roof-1",
        "--port",
        str(uno.port),
        "--hex",
        str(small),
        "--foreign",
    )
    assert code == 1
    assert "the boot loader does not answer" in err
    assert Registry(tmp_path / "registry.db").get("roof-1") == before


async def _begun(tmp_path: Path) -> None:
    """Wait until the registry has a job that is being written."""
    registry = Registry(tmp_path / "registry.db")
    async with asyncio.timeout(20):
        while not registry.works():  # noqa: ASYNC110  # another process does it
            await asyncio.sleep(0.02)


async def test_an_interrupted_device_is_taken_up_again_with_its_identity(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    provisioning = asyncio.create_task(_provision(tmp_path, uno, small))
    await asyncio.wait(
        (provisioning, asyncio.create_task(_begun(tmp_path))), return_when="FIRST_COMPLETED"
    )
    await uno.cut("tx", 60)  # the power fails while the firmware is written
    code, _, err = await provisioning
    assert code == 1, err
    interrupted = Registry(tmp_path / "registry.db").get("roof-1")
    assert interrupted.status == "flashing"
    await uno.power(True)
    code, _, err = await _provision(tmp_path, uno, small)
    assert code == 0, err
    assert _on_board(uno) == Identity("roof-1", interrupted.key or b"")
    assert Registry(tmp_path / "registry.db").get("roof-1").status == "written"


async def test_a_rename_that_is_killed_is_taken_up_again(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    await _provision(tmp_path, uno, small)
    key = (_on_board(uno) or Identity.create("none")).key
    command = (
        "device",
        "rename",
        "roof-1",
        "roof-2",
        "--port",
        str(uno.port),
        "--hex",
        str(small),
        "--foreign",
    )
    (tmp_path / "scratch").mkdir()
    environment = os.environ | {
        "ONCEWAY_REGISTRY": str(tmp_path / "registry.db"),
        "TMPDIR": str(tmp_path / "scratch"),
    }
    process = await asyncio.create_subprocess_exec(
        ONCEWAY, *command, stderr=subprocess.DEVNULL, env=environment
    )
    await _begun(tmp_path)
    process.kill()
    await process.wait()
    assert list((tmp_path / "scratch").iterdir()) == [], "no file with the key stays behind"
    assert {
        device.name: device.status for device in Registry(tmp_path / "registry.db").devices()
    } == {
        "roof-1": "flashing",
        "roof-2": "flashing",
    }
    async with asyncio.timeout(20):
        while holders(str(uno.port)):  # noqa: ASYNC110  # avrdude is still at it
            await asyncio.sleep(0.05)
    code, _, err = await _onceway(tmp_path, *command)
    assert code == 0, err
    assert _on_board(uno) == Identity("roof-2", key)
    assert [
        (device.name, device.status) for device in Registry(tmp_path / "registry.db").devices()
    ] == [("roof-2", "written")]


async def test_a_board_that_does_not_hold_what_was_written_is_not_ready(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    image = IntelHex(str(small))
    # at the address of the boot loader, which cannot be written
    image.puts(0x7E00, bytes(range(64)))
    image.write_hex_file(str(small))
    patch = (
        "known['uno'] = known['uno'].model_copy(update={'application_end': 0x8000, 'identity':"
        " 0x7F80})"
    )
    code, _, err = await _with_catalogue(patch, _provision(tmp_path, uno, small), tmp_path)
    assert code == 1
    assert "differs from the written image from byte 0x7e00 on" in err
    assert Registry(tmp_path / "registry.db").get("roof-1").status == "flashing"


async def test_too_large_firmware_is_an_error_before_the_board_is_touched(
    tmp_path: Path, uno: SimulatedBoard
) -> None:
    large = tmp_path / "large.hex"
    image = IntelHex()
    image.puts(0, bytes(40_000))
    image.write_hex_file(str(large))
    before = uno.flash_image.read_bytes()
    code, _, err = await _provision(tmp_path, uno, large)
    assert code == 1
    assert "the firmware ends at 0x9C3F, but Arduino Uno R3 has room below 0x7D80 only" in err
    assert uno.flash_image.read_bytes() == before
    assert Registry(tmp_path / "registry.db").devices() == []


async def test_a_dry_run_changes_nothing(tmp_path: Path, uno: SimulatedBoard, signed: Path) -> None:
    path, events = tmp_path / "registry.db", await uno.subscribe()
    for command in (("add", "roof-1"), ("provision", "roof-1")):
        code, out, err = await _onceway(
            tmp_path,
            "device",
            *command,
            "--port",
            str(uno.port),
            "--hex",
            str(signed),
            "--dry-run",
            "--json",
        )
        assert code == 0, err
        assert (json.loads(out)["name"], json.loads(out)["size"]) == ("roof-1", 512)
    boards = tmp_path / "boards.csv"
    boards.write_text(f"name,port\nroof-1,{uno.port}\n")
    code, out, err = await _onceway(
        tmp_path, "device", "import", str(boards), "--hex", str(signed), "--foreign", "--dry-run"
    )
    assert (code, out) == (
        0,
        f"[1/1] roof-1 on {uno.port}\n1 of 1 boards can be written\n",
    ), err
    await uno.power(False)
    seen = []
    async for event in events:
        if event.name == "power":
            break
        seen.append(event.details.get("cause"))
    assert "external" not in seen, "opening the port would have reset the board"
    assert not path.exists()
    Registry(path).admit("roof-2")
    Registry(path).revoke("roof-2")
    code, _, err = await _onceway(
        tmp_path,
        "device",
        "flash",
        "roof-2",
        "--port",
        str(uno.port),
        "--hex",
        str(signed),
        "--foreign",
        "--dry-run",
    )
    assert code == 1
    assert "was revoked" in err


async def test_port_held_by_another_program_is_left_alone(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    holder = os.open(uno.port, os.O_RDWR | os.O_NOCTTY)
    try:
        code, _, err = await _provision(tmp_path, uno, small)
    finally:
        os.close(holder)
    assert code == 1
    assert "in use by" in err
    assert f"(pid {os.getpid()})" in err


async def test_without_avrdude_its_package_is_named(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    process = await asyncio.create_subprocess_exec(
        ONCEWAY, "device", "provision", "roof-1",
        "--port", str(uno.port), "--hex", str(HEX), "--registry", str(tmp_path / "r.db"),
        stderr=subprocess.PIPE, env={"PATH": str(tmp_path / "bin")},
    )  # fmt: skip
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    assert b"apt-get install avrdude" in err


async def test_a_list_of_boards_goes_on_after_an_error_and_is_taken_up_again(
    tmp_path: Path, uno: SimulatedBoard, other: SimulatedBoard
) -> None:
    boards = tmp_path / "boards.csv"
    boards.write_text(f"name,port\nroof-1,{uno.port}\nroof-2,/dev/ttyNONE0\nroof-3,{other.port}\n")
    run = ("device", "import", str(boards), "--hex", str(HEX))
    code, out, err = await _onceway(tmp_path, *run)
    assert code == 1
    assert "there is no such port" in err
    assert f"{boards}:3: " in err
    assert "1 of 3 boards failed" in err
    assert "[1/3] roof-1 is ready" in out
    assert "[3/3] roof-3 is ready" in out

    boards.write_text(f"name,port\nroof-1,{uno.port}\nroof-4,/dev/ttyNONE0\n")
    code, out, err = await _onceway(tmp_path, *run, "--json")
    assert code == 1
    ready, failed = json.loads(out)
    assert (ready["name"], ready["status"], "error" in ready) == ("roof-1", "ready", False)
    assert (failed["name"], failed["status"]) == ("roof-4", None)
    assert "there is no such port" in failed["error"]

    boards.write_text(f"name,port\nroof-1,{uno.port}\nroof-3,{other.port}\n")
    code, out, _ = await _onceway(tmp_path, *run)
    assert code == 0
    assert sorted(out.splitlines()) == [
        "2 of 2 boards are done",
        "[1/2] roof-1 is ready",
        "[2/2] roof-3 is ready",
    ]


async def test_a_program_without_the_library_is_written_only_if_that_is_wanted_and_is_not_ready(
    tmp_path: Path, uno: SimulatedBoard, small: Path
) -> None:
    before = uno.flash_image.read_bytes()
    command = ("device", "provision", "roof-1", "--port", str(uno.port), "--hex", str(small))
    code, _, err = await _onceway(tmp_path, *command)
    assert code == 1
    assert "has no signature of the Onceway library" in err
    assert "--foreign" in err
    assert uno.flash_image.read_bytes() == before
    code, out, err = await _onceway(tmp_path, *command, "--foreign")
    assert code == 0, err
    assert "entered in the registry as written" in out
    assert Registry(tmp_path / "registry.db").get("roof-1").status == "written"


async def test_a_firmware_that_does_not_greet_is_not_ready_and_flash_takes_the_registry_s_port(
    tmp_path: Path, uno: SimulatedBoard, signed: Path
) -> None:
    await _add(tmp_path, uno, "roof-1")
    code, _, err = await _onceway(tmp_path, "device", "flash", "roof-1", "--hex", str(signed))
    assert code == 1
    assert f"{uno.port}: the board was flashed and read back, but no greeting came" in err
    assert Registry(tmp_path / "registry.db").get("roof-1").status == "flashing"


async def test_a_board_that_was_replaced_keeps_its_unsent_readings_until_that_is_wanted(
    tmp_path: Path, uno: SimulatedBoard, other: SimulatedBoard, small: Path
) -> None:
    await _add(tmp_path, uno, "roof-1")
    replace = ("device", "replace", "roof-1", "--port", str(other.port), "--hex", str(small))
    code, _, err = await _onceway(tmp_path, *replace, "--foreign")
    assert code == 0, err
    before = uno.flash_image.read_bytes()
    add = ("device", "add", "roof-9", "--port", str(uno.port), "--hex", str(HEX))
    code, _, err = await _onceway(tmp_path, *add)
    assert code == 1
    assert "the board on this port was 'roof-1'" in err
    assert "--empty" in err
    assert uno.flash_image.read_bytes() == before
    code, _, err = await _onceway(tmp_path, *add, "--empty")
    assert code == 0, err


async def test_bare_board_gets_name_and_interval_and_may_become_another_device(
    tmp_path: Path, uno: SimulatedBoard
) -> None:
    add = ("device", "add", "roof-1", "--port", str(uno.port), "--hex", str(HEX))
    before = uno.flash_image.read_bytes()
    code, _, err = await _onceway(tmp_path, *add, "--interval", "1s")
    assert (code, uno.flash_image.read_bytes() == before) == (1, True)
    assert "lasts only 69" in err
    assert "--force" in err

    code, out, err = await _onceway(tmp_path, *add, "--interval", "15min", "--json")
    assert code == 0, err
    first = json.loads(out)
    assert (first["name"], first["status"]) == ("roof-1", "ready")
    assert first["incarnation"] > 0
    assert (first["interval_s"], first["life"]) == (900, 100)
    kept = (await uno.eeprom())[0x20:0x22]
    assert kept == (15).to_bytes(2), "where firmware/examples/sensor keeps it"

    await _onceway(tmp_path, "device", "revoke", "roof-1")
    add = ("device", "add", "roof-2", *add[3:])
    code, out, err = await _onceway(tmp_path, *add, "--interval", "1s", "--force", "--json")
    assert code == 0, err
    second = json.loads(out)
    assert second["incarnation"] not in (
        0,
        first["incarnation"],
    ), "what the EEPROM held was roof-1's"
    assert second["next_sequence"] <= 2, "a reading may have been taken meanwhile"
    assert (second["interval_s"], second["life"]) == (1, 0.2)
    assert (await uno.eeprom())[0x20:0x22] == (1).to_bytes(2)
    assert {
        device.name: device.status for device in Registry(tmp_path / "registry.db").devices()
    } == {
        "roof-1": "revoked",
        "roof-2": "ready",
    }
