"""The registry says what is on a board, survives being reopened, and keeps keys to its owner."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from provisioning.identity import Identity
from provisioning.registry import Registry


def test_a_device_is_ready_only_after_it_was_read_back(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    identity = Identity.create("roof-1")
    Registry(path).begin(identity, "uno", "/dev/ttyACM0")
    interrupted = Registry(path).get("roof-1")
    assert interrupted.status == "flashing"
    assert interrupted.flashed is None
    Registry(path).finish("roof-1", "ab" * 32)
    ready = Registry(path).get("roof-1")
    assert (ready.status, ready.firmware, ready.identity) == ("ready", "ab" * 32, identity)


def test_writing_a_device_again_keeps_its_key_and_its_birthday(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.db")
    registry.begin(Identity.create("roof-1"), "uno", "/dev/ttyACM0")
    before = registry.get("roof-1")
    registry.begin(before.identity, "nano", "/dev/ttyUSB0")
    after = registry.get("roof-1")
    assert (after.key, after.created, after.board, after.port) == (before.key, before.created, "nano", "/dev/ttyUSB0")


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "registry.db"
    Registry(path)
    assert path.stat().st_mode & 0o077 == 0


def test_keys_are_never_shown(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.db")
    registry.begin(Identity.create("roof-1"), "uno", "p")
    device = registry.get("roof-1")
    assert "key" not in device.public()
    assert repr(device.key) not in repr(device)


def test_names_sort_and_an_unknown_one_is_said(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.db")
    for name in ("b", "a", "c"):
        registry.begin(Identity.create(name), "uno", "p")
    assert [device.name for device in registry.devices()] == ["a", "b", "c"]
    with pytest.raises(OncewayError, match="no device is called 'd'"):
        registry.get("d")


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(b"this is a letter to my aunt, not a database" * 100)
    before = path.read_bytes()
    with pytest.raises(OncewayError, match=r"registry\.db: this is not a device registry"):
        Registry(path)
    assert path.read_bytes() == before


def test_a_registry_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    Registry(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(OncewayError, match="newer Onceway"):
        Registry(path)


def test_many_who_enter_devices_at_once_wait_for_one_another(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from provisioning.identity import Identity; from provisioning.registry import Registry\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
        "registry = Registry(Path(sys.argv[1]))\n"
        "for number in range(5):\n"
        "    name = f'{sys.argv[2]}-{number}'\n"
        "    registry.begin(Identity.create(name), 'uno', 'p')\n"
        "    registry.finish(name, 'ab' * 32)\n"
    )
    path = tmp_path / "registry.db"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    many = [subprocess.Popen([sys.executable, "-c", code, str(path), f"board{number}"], **pipes) for number in range(6)]
    for process in many:
        assert process.stdout is not None
        process.stdout.readline()
    for process in many:  # all are up: now at once
        assert process.stdin is not None
        process.stdin.close()
    for process in many:
        process.stdin = None
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors.decode()) == (0, "")
    assert {device.status for device in Registry(path).devices()} == {"ready"}
    assert len(Registry(path).devices()) == 30
