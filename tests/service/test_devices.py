"""Which boards may greet, as the registry that provisioning keeps says it."""

from pathlib import Path

import pytest

from gateway.service.devices import FILE
from gateway.service.devices import Registry as Admitted
from provisioning.identity import Identity
from provisioning.registry import Registry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    registry = Registry(tmp_path / FILE)
    for name in ("roof-1", "roof-2"):
        registry.begin(Identity.create(name), "uno", "/dev/ttyACM0")
    registry.finish("roof-1", "ab" * 32)
    registry.revoke("roof-2")
    return tmp_path


@pytest.mark.parametrize("stranger", [True, False], ids=["open port", "closed port"])
def test_registered_devices_are_taken_revoked_ones_never_strangers_on_open_ports(folder: Path, stranger: bool) -> None:
    admitted = Admitted(folder)
    answers = {name: admitted.admits(name, stranger) for name in ("roof-1", "roof-2", "roof-3")}
    assert answers == {"roof-1": True, "roof-2": False, "roof-3": stranger}


@pytest.mark.parametrize("stranger", [True, False], ids=["open port", "closed port"])
def test_without_a_registry_only_open_ports_take_boards(tmp_path: Path, stranger: bool) -> None:
    assert Admitted(tmp_path).admits("roof-1", stranger) is stranger


def test_a_registry_that_cannot_be_read_admits_nobody(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 100)
    assert not Admitted(tmp_path).admits("roof-1", True)
