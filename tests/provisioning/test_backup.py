"""A backup gives the same devices back, and nothing to anyone without the passphrase."""

from pathlib import Path

import pytest

from gateway.errors import OncewayError
from provisioning.backup import open_sealed, seal
from provisioning.identity import Identity
from provisioning.registry import Device, Registry


@pytest.fixture
def devices(tmp_path: Path) -> list[Device]:
    registry = Registry(tmp_path / "registry.db")
    for name in ("roof-1", "roof-2"):
        registry.begin(Identity.create(name), "uno", "/dev/ttyACM0")
    registry.finish("roof-1", "ab" * 32)
    return registry.devices()


def test_a_backup_restores_devices_with_their_keys(devices: list[Device], tmp_path: Path) -> None:
    other = Registry(tmp_path / "other.db")
    for device in open_sealed(seal(devices, "correct horse"), "correct horse"):
        other.restore(device)
    assert other.devices() == devices


def test_a_wrong_passphrase_opens_nothing(devices: list[Device]) -> None:
    with pytest.raises(OncewayError, match="passphrase is wrong"):
        open_sealed(seal(devices, "correct horse"), "correct hors")


@pytest.mark.parametrize("position", [6, 25, 40, -1], ids=["salt", "nonce", "text", "tag"])
def test_an_altered_backup_is_refused(devices: list[Device], position: int) -> None:
    data = bytearray(seal(devices, "correct horse"))
    data[position] ^= 1
    with pytest.raises(OncewayError, match="altered"):
        open_sealed(bytes(data), "correct horse")


def test_a_foreign_file_is_no_backup() -> None:
    with pytest.raises(OncewayError, match="not a backup"):
        open_sealed(b"OWREG1 but short", "x")


def test_keys_do_not_stand_in_the_file(devices: list[Device]) -> None:
    data = seal(devices, "correct horse")
    assert not any(device.key in data or device.key.hex().encode() in data for device in devices)
