"""A backup of the registry restores the same devices, and is unreadable without its passphrase."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from provisioning.backup import open_sealed, seal
from provisioning.identity import Identity
from provisioning.registry import Registry

ONCEWAY = Path(sys.executable).with_name("onceway")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "registry.db")
    registry.finish(registry.begin(Identity.create("roof-1"), "uno", "/dev/ttyACM0"), "ab" * 32)
    registry.begin(Identity.create("roof-2"), "uno", "/dev/ttyACM0")
    registry.admit("roof-3")
    return registry


def test_a_backup_restores_devices_with_their_keys(registry: Registry, tmp_path: Path) -> None:
    other = Registry(tmp_path / "other.db")
    other.load(open_sealed(seal(registry.dump(), "correct horse"), "correct horse"))
    assert other.devices() == registry.devices()
    assert other.works() == registry.works()


def test_restored_device_replaces_a_write_that_began_after_the_backup(
    registry: Registry,
) -> None:
    data = seal(registry.dump(), "x")
    before = registry.get("roof-1")
    registry.begin(Identity.create("roof-1"), "nano", "p")
    registry.load(open_sealed(data, "x"))
    assert registry.get("roof-1") == before


def test_a_wrong_passphrase_opens_nothing(registry: Registry) -> None:
    with pytest.raises(OncewayError, match="the passphrase is wrong"):
        open_sealed(seal(registry.dump(), "correct horse"), "correct hors")


@pytest.mark.parametrize(
    "position", [6, 25, 40, -1, -40], ids=["salt", "nonce", "text", "checksum", "tag"]
)
def test_damaged_backup_is_called_damaged(registry: Registry, position: int) -> None:
    data = bytearray(seal(registry.dump(), "correct horse"))
    data[position] ^= 1
    with pytest.raises(OncewayError, match="the backup is damaged"):
        open_sealed(bytes(data), "correct horse")


@pytest.mark.parametrize("length", [6, 40, 66, -1])
def test_a_backup_that_was_cut_short_is_damaged(registry: Registry, length: int) -> None:
    with pytest.raises(OncewayError, match="the backup is damaged"):
        open_sealed(seal(registry.dump(), "x")[:length], "x")


def test_altered_backup_with_a_correct_checksum_is_refused(registry: Registry) -> None:
    data = bytearray(seal(registry.dump(), "x")[:-32])
    data[40] ^= 1
    with pytest.raises(OncewayError, match="passphrase is wrong"):
        open_sealed(bytes(data) + hashlib.sha256(data).digest(), "x")


def test_a_foreign_file_is_no_backup() -> None:
    with pytest.raises(OncewayError, match="not a backup"):
        open_sealed(b"OWREG1 but short", "x")


def test_keys_do_not_stand_in_the_file(registry: Registry) -> None:
    data = seal(registry.dump(), "correct horse")
    keys = [device.key for device in registry.devices() if device.key]
    assert len(keys) == 2
    assert not any(key in data or key.hex().encode() in data for key in keys)


def _run(
    tmp_path: Path, *arguments: str, passphrase: str | None
) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "ONCEWAY_PASSPHRASE"}
    environment |= {"ONCEWAY_PASSPHRASE": passphrase} if passphrase is not None else {}
    return subprocess.run(
        [ONCEWAY, "registry", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        timeout=60,
        start_new_session=True,  # no terminal for a prompt
    )


def test_backup_commands_move_devices_to_another_machine(
    registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "backup").write_text("an older one that everybody may read")
    done = _run(
        tmp_path,
        "export",
        "backup",
        "--registry",
        str(registry.path),
        "--json",
        passphrase="correct horse",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["devices"] == 2
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "registry.db"]

    wrong = _run(tmp_path, "import", "backup", "--registry", "other.db", passphrase="wrong horse")
    assert (wrong.returncode, wrong.stderr) == (1, "error: backup: the passphrase is wrong\n")
    done = _run(tmp_path, "import", "backup", "--registry", "other.db", passphrase="correct horse")
    assert done.returncode == 0, done.stderr
    assert Registry(tmp_path / "other.db").devices() == registry.devices()


def test_the_passphrase_does_not_go_on_the_command_line(registry: Registry, tmp_path: Path) -> None:
    refused = _run(
        tmp_path,
        "export",
        "backup",
        "--registry",
        str(registry.path),
        "--passphrase",
        "x",
        passphrase=None,
    )
    assert refused.returncode == 2
    missing = _run(tmp_path, "export", "backup", "--registry", str(registry.path), passphrase=None)
    assert missing.returncode == 1
    assert "ONCEWAY_PASSPHRASE" in missing.stderr
    empty = _run(tmp_path, "export", "backup", "--registry", str(registry.path), passphrase="")
    assert (empty.returncode, empty.stderr) == (1, "error: the passphrase is empty\n")
    assert not (tmp_path / "backup").exists()


def test_a_misspelt_registry_is_not_made(tmp_path: Path) -> None:
    done = _run(tmp_path, "export", "backup", "--registry", "typo.db", passphrase="x")
    assert (done.returncode, done.stderr) == (
        1,
        "error: typo.db: there is no such registry. `onceway device add` creates a registry\n",
    )
    listed = subprocess.run(
        [ONCEWAY, "device", "list", "--registry", "typo.db"],
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        start_new_session=True,  # no terminal for a prompt
    )
    assert (listed.returncode, list(tmp_path.iterdir())) == (1, [])


def test_an_older_backup_does_not_let_a_revoked_device_in_again(registry: Registry) -> None:
    data = seal(registry.dump(), "x")
    registry.revoke("roof-1")
    assert registry.load(open_sealed(data, "x")) == ["roof-1"]
    assert registry.get("roof-1").status == "revoked"
    assert registry.get("roof-3").status == "admitted", "the others are restored"


def test_newer_backup_readmits_a_device_and_can_revoke_one(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.revoke("roof-1")
    monkeypatch.setattr("provisioning.registry._now", lambda: "2999-01-01T00:00:00+00:00")
    other = Registry(tmp_path / "other.db")
    other.load(registry.dump())
    assert other.get("roof-1").status == "revoked"
    other.admit("roof-1")
    assert registry.load(other.dump()) == []
    assert registry.get("roof-1").status == "ready"


def test_an_older_backup_brings_no_replaced_key_back(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.begin(Identity.create("roof-4"), "uno", "p")  # interrupted before the backup is made
    (tmp_path / "backup").write_bytes(seal(registry.dump(), "x"))
    monkeypatch.setattr("provisioning.registry._now", lambda: "2999-01-01T00:00:00+00:00")
    for name in ("roof-1", "roof-4"):  # like `device rekey` and `device add`
        registry.finish(registry.begin(Identity.create(name), "uno", "p"), None)
    before = registry.get("roof-1"), registry.get("roof-4")
    done = _run(tmp_path, "import", "backup", "--registry", str(registry.path), passphrase="x")
    assert (registry.get("roof-1"), registry.get("roof-4")) == before
    assert done.stderr == "changed here since the backup, so left as they are: roof-1\n"
    assert "1 device" in done.stdout


def test_older_backup_does_not_revoke_a_readmitted_device(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.revoke("roof-3")
    rows = registry.dump()
    monkeypatch.setattr("provisioning.registry._now", lambda: "2999-01-01T00:00:00+00:00")
    registry.admit("roof-3")
    assert registry.load(rows) == ["roof-3"]
    assert registry.get("roof-3").status == "admitted"


def test_backup_of_the_previous_version_is_restored(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = registry.dump()
    for row in rows["device"]:
        del row["changed"]
    with monkeypatch.context() as before:
        before.setattr("provisioning.backup.VERSION", 2)
        data = seal(rows, "x")
    other = Registry(tmp_path / "other.db")
    other.load(open_sealed(data, "x"))
    assert [one.status for one in other.devices()] == [one.status for one in registry.devices()]
