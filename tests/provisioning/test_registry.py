"""The registry lists the firmware of each board, survives being closed and opened again, and
protects the keys.
"""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from provisioning import registry as registry_module
from provisioning.identity import Identity
from provisioning.registry import Registry
from provisioning.schema import _MIGRATIONS


def test_a_device_is_ready_only_after_it_was_read_back(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    identity = Identity.create("roof-1")
    Registry(path).begin(identity, "uno", "/dev/ttyACM0")
    interrupted = Registry(path).get("roof-1")
    assert interrupted.status == "flashing"
    assert interrupted.flashed is None
    (work,) = Registry(path).works()
    assert work.identity == identity
    ready = Registry(path).finish(work, "ab" * 32)
    assert (ready.status, ready.firmware, ready.key) == ("ready", "ab" * 32, identity.key)
    assert Registry(path).devices() == [ready]
    assert Registry(path).works() == []


def test_writing_a_device_again_keeps_its_creation_time_and_its_last_firmware(
    tmp_path: Path,
) -> None:
    registry = Registry(tmp_path / "registry.db")
    before = registry.finish(
        registry.begin(Identity.create("roof-1"), "uno", "/dev/ttyACM0"), "ab" * 32
    )
    work = registry.begin(Identity("roof-1", bytes(16)), "nano", "/dev/ttyUSB0")
    now = registry.get("roof-1")
    assert (now.status, now.created, now.firmware, now.board) == (
        "flashing",
        before.created,
        before.firmware,
        "nano",
    )
    registry.abandon(work, None)
    assert registry.devices() == [before]


def test_interrupted_device_stays_interrupted_if_the_next_try_does_not_reach_the_board(
    tmp_path: Path,
) -> None:
    registry = Registry(tmp_path / "registry.db")
    earlier = registry.begin(Identity.create("roof-1"), "uno", "/dev/ttyACM0")
    registry.abandon(registry.begin(earlier.identity, "uno", "/dev/ttyACM1"), earlier)
    assert registry.works() == [earlier]


def test_renamed_device_has_one_row_before_and_after_each_step(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.db")
    old = registry.finish(registry.begin(Identity.create("roof-1"), "uno", "p"), "ab" * 32)
    assert old.key is not None
    work = registry.begin(Identity("roof-2", old.key), "uno", "p", was="roof-1")
    assert {device.name: device.status for device in registry.devices()} == {
        "roof-1": "flashing",
        "roof-2": "flashing",
    }
    registry.finish(work, "ab" * 32)
    (new,) = registry.devices()
    assert (new.name, new.status, new.key, new.created) == ("roof-2", "ready", old.key, old.created)


def test_first_of_two_writers_of_one_name_gets_an_error(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.db")
    first = registry.begin(Identity.create("roof-1"), "uno", "/dev/ttyACM0")
    second = registry.begin(Identity.create("roof-1"), "uno", "/dev/ttyACM1")
    with pytest.raises(OncewayError, match="changed by another command meanwhile"):
        registry.finish(first, "ab" * 32)
    assert registry.finish(second, "ab" * 32).key == second.key


def test_devices_are_admitted_revoked_and_admitted_again(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.db")
    assert registry.admit("roof-1").status == "admitted"
    registry.revoke("roof-1")
    assert registry.get("roof-1").status == "revoked"
    assert registry.admit("roof-1").status == "admitted"
    registry.finish(registry.begin(Identity.create("roof-1"), "uno", "p"), "ab" * 32)
    registry.revoke("roof-1")
    assert registry.admit("roof-1").status == "ready", "it was written here, and is what it was"
    with pytest.raises(OncewayError, match="is not a valid device name"):
        registry.admit("a/b")


def test_readmitted_device_that_never_was_ready_is_not_ready(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.db")
    foreign, interrupted = Identity.create("roof-1"), Identity.create("roof-2")
    registry.finish(registry.begin(foreign, "uno", "p"), "ab" * 32, greets=False)
    registry.begin(interrupted, "uno", "p")
    for name in ("roof-1", "roof-2"):
        registry.revoke(name)
        registry.revoke(name)
        assert registry.admit(name).status == "written"


def test_a_device_that_is_revoked_while_it_is_written_is_not_ready_afterwards(
    tmp_path: Path,
) -> None:
    registry = Registry(tmp_path / "registry.db")
    work = registry.begin(Identity.create("roof-1"), "uno", "p")
    registry.revoke("roof-1")
    with pytest.raises(OncewayError, match="meanwhile"):
        registry.finish(work, "ab" * 32)
    assert registry.get("roof-1").status == "revoked"


def test_a_registry_of_the_first_version_keeps_its_devices(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    with closing(sqlite3.connect(path)) as old, old:
        for statement in _MIGRATIONS[0].split(";"):
            old.execute(statement)
        rows = [
            ("a", "ready", "2026-01-02"),
            ("b", "flashing", None),
            ("c", "revoked", "2026-01-02"),
            ("d", "flashing", "2026-01-02"),
        ]
        for name, status, flashed in rows:
            old.execute(
                "INSERT INTO device VALUES (?, 'uno', ?, ?, 'p', NULL, '2026-01-01', ?)",
                (name, name.encode() * 16, status, flashed),
            )
        old.execute("PRAGMA user_version = 1")
    registry = Registry(path)
    assert [
        (device.name, device.status, device.key, device.flashed) for device in registry.devices()
    ] == [(name, status, name.encode() * 16, flashed) for name, status, flashed in rows]
    assert [work.name for work in registry.works()] == ["b", "d"]


def test_registry_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "registry.db"
    Registry(path)
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    Registry(path)
    assert path.stat().st_mode & 0o077 == 0, "a copy made by hand holds keys, too"


def test_a_folder_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(OncewayError, match="Is a directory"):
        Registry(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_registry_made_by_root_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)
    Registry(tmp_path / "registry.db").admit("roof-1")
    status = (tmp_path / "registry.db").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 12346, 0o600)


def test_keys_are_never_shown(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.db")
    work = registry.begin(Identity.create("roof-1"), "uno", "p")
    device = registry.finish(work, "ab" * 32)
    assert "key" not in device.public()
    assert repr(device.key) not in repr(device) + repr(work)


def test_devices_are_sorted_by_name_and_an_unknown_name_is_an_error(tmp_path: Path) -> None:
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
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(OncewayError, match="newer Onceway"):
        Registry(path)


def test_registry_locked_by_another_process_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_WAIT_S", 0.05)
    registry = Registry(tmp_path / "registry.db")
    other = sqlite3.connect(registry.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for use in (
        lambda: registry.admit("roof-1"),
        registry.devices,
        lambda: registry.begin(Identity.create("roof-1"), "uno", "p"),
    ):
        with pytest.raises(
            OncewayError,
            match=r"registry\.db: the device registry cannot be used: another program.*locked",
        ):
            use()
    other.close()


def test_damaged_registry_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    registry = Registry(path)
    for number in range(200):
        registry.admit(f"roof-{number}")
    with path.open("r+b") as file:
        file.seek(4096)  # behind the first page, which has the header and the names of the tables
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(OncewayError, match=r"registry\.db: the device registry cannot be used"):
        Registry(path).devices()


def test_writers_that_enter_devices_at_once_wait_for_one_another(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from provisioning.identity import Identity; from"
        " provisioning.registry import Registry\nprint(flush=True)\nsys.stdin.read()\nregistry ="
        " Registry(Path(sys.argv[1]))\nfor number in range(5):\n    name ="
        " f'{sys.argv[2]}-{number}'\n    registry.finish(registry.begin(Identity.create(name),"
        " 'uno', 'p'), 'ab' * 32)\n"
    )
    path = tmp_path / "registry.db"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    many = [
        subprocess.Popen([sys.executable, "-c", code, str(path), f"board{number}"], **pipes)
        for number in range(6)
    ]
    for process in many:
        assert process.stdout is not None
        process.stdout.readline()
    for process in many:  # all processes are ready: now they begin at the same moment
        assert process.stdin is not None
        process.stdin.close()
    for process in many:
        process.stdin = None
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors.decode()) == (0, "")
    assert {device.status for device in Registry(path).devices()} == {"ready"}
    assert len(Registry(path).devices()) == 30
