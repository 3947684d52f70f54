"""Admission of boards by the device registry while the gateway
runs.
"""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.access.authentication import ListenerAccess, Passwords
from gateway.access.identifiers import Identifiers
from gateway.access.rules import Acl
from gateway.access.users import Users
from gateway.boards.admission import FILE, LOOK_S, DeviceAccess, Watch, pending
from gateway.boards.admission import Registry as Admitted
from gateway.boards.reports import read as statuses
from gateway.config import AccessSection, AclSection, ListenerSection
from gateway.links.greeter import Refusal as LinkRefusal
from gateway.links.serial_port import PortStatus
from gateway.links.statistics import LinkStatistics
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.benchmarks.load import connect_packet
from tests.links.board import Board, Pty, until
from tests.service.process import START_S, GatewayProcess, gateway

KEY = bytes(range(16))
ONCEWAY = Path(sys.executable).with_name("onceway")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    registry = Registry(tmp_path / FILE)
    for name in ("roof-1", "roof-2"):
        registry.finish(registry.begin(Identity(name, KEY), "uno", "/dev/ttyACM0"), "ab" * 32)
    registry.revoke("roof-2")
    return tmp_path


@pytest.mark.parametrize("stranger", [True, False], ids=["open port", "closed port"])
def test_registered_devices_are_taken_revoked_ones_never_strangers_on_open_ports(
    folder: Path, stranger: bool
) -> None:
    admitted = Admitted(folder)
    answers = {name: admitted.admits(name, stranger) for name in ("roof-1", "roof-2", "roof-3")}
    assert answers == {"roof-1": True, "roof-2": False, "roof-3": stranger}


def test_boards_are_listed_by_name_also_after_a_change(tmp_path: Path) -> None:
    """The gateways of a site add the same boards in different orders."""
    with closing(Registry(tmp_path / FILE)) as registry:
        for name in ("roof-3", "roof-2", "roof-1"):
            registry.admit(name)
        registry.finish(registry.begin(Identity("roof-2", KEY), "uno", "/dev/ttyACM0"), "ab" * 32)
    assert list(Admitted(tmp_path).registered()) == ["roof-1", "roof-2", "roof-3"]


def test_registry_is_found_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "site?mode=rwc#1%41"
    Registry(folder / FILE).admit("roof-1")
    assert Admitted(folder).admits("roof-1", False)


@pytest.mark.parametrize("stranger", [True, False], ids=["open port", "closed port"])
def test_without_a_registry_only_open_ports_take_boards(tmp_path: Path, stranger: bool) -> None:
    assert Admitted(tmp_path).admits("roof-1", stranger) is stranger


def test_unreadable_registry_admits_no_board(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 100)
    assert not Admitted(tmp_path).admits("roof-1", True)


@pytest.fixture
def lines() -> Iterator[list[Pty]]:
    lines = [Pty(), Pty()]
    yield lines
    for line in lines:
        os.close(line.master)


@asynccontextmanager
async def gateway_on(lines: list[Pty], folder: Path) -> AsyncIterator[GatewayProcess]:
    """Run a gateway with two serial ports: strangers may use only the second one."""
    config = folder / "gateway.toml"
    config.write_text(
        f'[gateway]\ndata = "{folder}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        f'[[serial]]\nport = "{lines[0].path}"\n[[serial]]\nport = "{lines[1].path}"\nopen = true\n'
    )
    async with gateway(folder, "--config", str(config)) as running:
        yield running


async def _connected(line: Pty, name: str) -> Board:
    board = Board(line, name, key=KEY if name == "roof-1" else None)
    await until(lambda: board.started)
    board.write(connect_packet(name, clean=True))
    await until(lambda: board.received)
    assert board.received[3] == 0, "CONNACK"
    return board


async def _device(folder: Path, *command: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        ONCEWAY,
        "device",
        *command,
        "--registry",
        str(folder / FILE),
        "--json",
        stdout=subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), START_S)
    assert process.returncode == 0
    return json.loads(out)


async def _words(folder: Path, *command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(ONCEWAY, "device", *command, "--registry", str(folder / FILE)), stdout=subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), START_S)
    assert process.returncode == 0
    return out.decode()


async def test_a_stranger_is_pending_until_it_is_admitted(folder: Path, lines: list[Pty]) -> None:
    stranger = {"name": "roof-3", "port": lines[0].path}
    assert pending(folder) is None, "no gateway, no answer"
    async with gateway_on(lines, folder) as running:
        board = Board(lines[0], "roof-3")
        await until(lambda: pending(folder))
        assert await _device(folder, "pending") == [stranger]
        shown = {row["name"]: row for row in await _device(folder, "list")}
        assert {name: row["status"] for name, row in shown.items()} == {
            "roof-1": "ready",
            "roof-2": "revoked",
            "roof-3": "pending",
        }
        assert shown["roof-3"]["port"] == lines[0].path
        await running.logged("`onceway device admit NAME` lets it in")

        assert [
            (row["name"], row["status"]) for row in await _device(folder, "admit", "roof-3")
        ] == [("roof-3", "admitted")]
        assert await _device(folder, "pending") == []
        board.power_off()
        # a refused board would greet again after ten seconds; a restarted one greets at once
        board = Board(lines[0], "roof-3", boot=2)
        await until(lambda: board.started)
        await until(lambda: pending(folder) == [])
        board.power_off()


async def test_an_open_port_takes_strangers_and_another_port_does_not(
    folder: Path, lines: list[Pty]
) -> None:
    async with gateway_on(lines, folder):
        board = await _connected(lines[1], "roof-3")
        stranger = Board(lines[0], "roof-4")
        await until(lambda: stranger.refused)
        await until(lambda: [entry["name"] for entry in pending(folder) or ()] == ["roof-4"])
        stranger.power_off()
        board.power_off()


async def test_a_revoked_device_is_not_pending(folder: Path, lines: list[Pty]) -> None:
    async with gateway_on(lines, folder):
        board = Board(lines[0], "roof-2")
        await until(lambda: board.refused)
        board.power_off()
        board = Board(lines[0], "roof-3")
        await until(lambda: board.refused)
        await until(lambda: pending(folder))
        assert [entry["name"] for entry in pending(folder) or ()] == ["roof-3"]
        board.power_off()


@pytest.mark.parametrize("port", [0, 1], ids=["closed port", "open port"])
async def test_a_device_that_is_revoked_is_put_out_at_once_and_stays_out(
    folder: Path, lines: list[Pty], port: int
) -> None:
    Registry(folder / FILE).admit("roof-3")
    async with gateway_on(lines, folder) as running:
        other = await _connected(lines[1 - port], "roof-3")
        board = await _connected(lines[port], "roof-1")
        await _device(folder, "revoke", "roof-1")
        await until(lambda: board.refused)
        await running.logged(f"roof-1 ({lines[port].path}): the device was revoked")
        assert len(board.started) == 1
        assert (other.ended, len(other.started)) == ([], 1), "another device stays"
        board.power_off()
        other.power_off()


async def test_a_device_that_has_only_greeted_is_put_out_too(
    folder: Path, lines: list[Pty]
) -> None:
    async with gateway_on(lines, folder):
        board = Board(lines[0], "roof-1", key=KEY)
        await until(lambda: board.started)
        Registry(folder / FILE).revoke("roof-1")
        await until(lambda: board.refused)
        board.power_off()


async def test_locked_or_missing_registry_disconnects_no_board(
    folder: Path, lines: list[Pty]
) -> None:
    async with gateway_on(lines, folder) as running:
        board = await _connected(lines[0], "roof-1")
        with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as writer:
            writer.execute("PRAGMA locking_mode = EXCLUSIVE")
            writer.execute("UPDATE device SET port = 'elsewhere'")
            await running.logged("another program has locked the database: database is locked")
        (folder / FILE).rename(folder / "away")
        await asyncio.sleep(1.5 * LOOK_S)  # no event shows that the board stays connected
        (folder / "away").rename(folder / FILE)
        assert board.ended == []
        Registry(folder / FILE).revoke("roof-1")
        await until(lambda: board.refused)
        board.power_off()


async def test_a_registry_that_is_being_written_holds_no_board_up(
    folder: Path, lines: list[Pty]
) -> None:
    async with gateway_on(lines, folder) as running:
        with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as writer:
            writer.execute("PRAGMA locking_mode = EXCLUSIVE")
            writer.execute("UPDATE device SET port = 'elsewhere'")
            boards = [
                await _connected(line, name)
                for line, name in zip(lines, ("roof-1", "roof-5"), strict=True)
            ]
            await running.logged("another program has locked the database: database is locked")
        for board in boards:
            assert (board.refused, len(board.started)) == (False, 1)
            board.power_off()


async def test_damaged_registry_admits_and_disconnects_no_board(
    folder: Path, lines: list[Pty]
) -> None:
    async with gateway_on(lines, folder) as running:
        board = await _connected(lines[0], "roof-1")
        (folder / "bad").write_bytes(b"not a database" * 100)
        (folder / "bad").rename(folder / FILE)
        await running.logged("the database is damaged: file is not")
        other = Board(lines[1], "roof-5")
        await until(lambda: other.refused)
        assert board.ended == []
        other.power_off()
        board.power_off()


async def test_a_board_of_older_firmware_is_refused_by_name_and_taken_by_an_open_port(
    folder: Path, lines: list[Pty]
) -> None:
    async with gateway_on(lines, folder) as running:
        board = Board(lines[0], "roof-1")
        await until(lambda: board.refused)
        await running.logged(
            f"{lines[0].path}: the device 'roof-1' greets without a key, as older firmware does."
            f" `onceway device flash roof-1 --port {lines[0].path}`"
        )
        await until(lambda: _shown(folder))
        assert (await _device(folder, "list"))[0]["keyed"] is False
        board.power_off()
        other = await _connected(lines[1], "roof-1")
        other.power_off()


def test_a_board_that_has_proved_its_key_is_not_taken_without_it_any_more(folder: Path) -> None:
    registry = Admitted(folder)
    port = DeviceAccess(registry, stranger=True)
    assert port.greets("roof-1", False) is None, "its firmware may be older: nobody knows yet"
    registry.boards.greeted("roof-1", keyed=True)
    text = registry.boards.news()
    assert text is not None
    registry.boards.write(text)
    # `Admitted`: as after a restart
    for here in (port, DeviceAccess(Admitted(folder), stranger=True)):
        assert here.greets("roof-1", False) is LinkRefusal.NO_PROOF
        assert here.greets("roof-1", False) is LinkRefusal.NO_PROOF
        assert here.greets("roof-1", True) is None
        assert here.greets("roof-3", False) is None
    assert registry.boards.status("roof-1") == {"keyed": 1}


def _shown(folder: Path) -> bool:
    return "keyed" in statuses(folder).get("roof-1", {})


async def test_a_board_with_another_key_is_refused_by_name_and_no_key_is_shown(
    folder: Path, lines: list[Pty]
) -> None:
    async with gateway_on(lines, folder) as running:
        board = Board(lines[0], "roof-1", key=bytes(range(1, 17)))
        await until(lambda: board.refused)
        await running.logged(f"`onceway device rekey roof-1 --port {lines[0].path}`")
        board.power_off()
        unknown = Board(lines[1], "roof-7", key=KEY)
        await until(lambda: unknown.refused)
        await running.logged("the device 'roof-7' has a key that is not in the registry")
        await running.logged(f"`onceway device rekey roof-7 --board KIND --port {lines[1].path}`")
        await until(lambda: bool(pending(folder)))
        said = await _words(folder, "admit", "roof-7")
        assert f"onceway device rekey roof-7 --board KIND --port {lines[1].path}" in said
        assert not any("NAME` lets it in" in line for line in running.log)
        unknown.power_off()
        board = await _connected(lines[0], "roof-1")
        await until(lambda: _shown(folder))
        assert (await _device(folder, "list"))[0]["keyed"] is True
        board.power_off()
        assert not any(KEY.hex() in line for line in running.log)


async def test_a_session_under_a_key_that_counts_no_more_ends(
    folder: Path, lines: list[Pty]
) -> None:
    async with gateway_on(lines, folder) as running:
        board = await _connected(lines[0], "roof-1")
        registry = Registry(folder / FILE)
        work = registry.begin(Identity("roof-1", bytes(range(1, 17))), "uno", lines[0].path)
        registry.finish(work, None)
        await until(lambda: board.ended or board.refused)
        await running.logged("greets with a key other")
        board.power_off()


@pytest.mark.parametrize(
    ("sections", "answers"),
    [
        ([], {"roof-1": False, "roof-3": True}),
        ([AclSection(write=["#"])], {"roof-1": False, "roof-3": False}),
        ([AclSection(users=["bridge"], identity=["roof-*"])], {"roof-1": True, "roof-3": True}),
        ([AclSection(users=["other"], identity=["roof-*"])], {"roof-1": False, "roof-3": False}),
    ],
    ids=["no rules", "no word of it", "named", "another user"],
)
def test_client_over_tcp_speaks_for_a_board_by_a_rule_only(
    folder: Path, sections: list[AclSection], answers: dict[str, bool]
) -> None:
    section = ListenerSection(bind="127.0.0.1:0")
    users = Users(folder / "users")
    identifiers = Identifiers(AccessSection(), users.hashes.__contains__, Admitted(folder).reserves)
    access = ListenerAccess(section, Passwords(users, AccessSection()), identifiers)
    acl = Acl(sections)
    callers = {name: SimpleNamespace(user="bridge", client=name, acl=acl) for name in answers}
    assert {name: access.may_identify(caller) for name, caller in callers.items()} == answers  # type: ignore[arg-type]


def test_the_registry_is_read_again_before_a_board_is_refused(folder: Path) -> None:
    admitted = Admitted(folder)
    assert not admitted.admits("roof-9", False)
    Registry(folder / FILE).admit("roof-9")
    assert not admitted.admits("roof-9", False), "nobody has looked yet"
    assert admitted.refresh_now()
    assert admitted.admits("roof-9", False)
    assert not admitted.refresh_now(), "nothing is new"
    assert admitted.refresh(), "who looks each second is told of it, too"
    assert not admitted.refresh()


def test_port_that_is_open_by_another_name_counts_as_present(tmp_path: Path) -> None:
    """The registry has the board at /dev/ttyUSB0. The configuration names the same port by a link
    in by-id.
    """
    device, by_id = tmp_path / "ttyUSB0", tmp_path / "by-id"
    device.touch()
    by_id.symlink_to(device)
    ports = [PortStatus(str(by_id), True, None, None, None, LinkStatistics())]
    registry = SimpleNamespace(
        expected=SimpleNamespace(port_of=lambda name: str(device)),
        is_by_radio=lambda name: False,
    )
    watch = SimpleNamespace(
        _ports=lambda: ports,
        _registry=registry,
        _engine=SimpleNamespace(broker=SimpleNamespace(connections=[])),
        _is_refused=lambda port: False,
    )
    assert Watch._seen(watch, ["roof-1"])["roof-1"].port_open  # type: ignore[arg-type]
    by_id.unlink()
    assert not Watch._seen(watch, ["roof-1"])["roof-1"].port_open  # type: ignore[arg-type]
