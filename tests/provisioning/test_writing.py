"""Jobs with simulated boards in memory: which board may be written, the state of the registry at
each moment, and how an interrupted job is resumed.
"""

import io
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from intelhex import IntelHex

from gateway.errors import OncewayError
from provisioning import avrdude, cli, device, eeprom, exclusive, plans, ports
from provisioning.boards import Board, board
from provisioning.device import Target
from provisioning.identity import SIZE, Identity
from provisioning.plans import Plan
from provisioning.registry import Registry

UNO = board("uno")
SIGNATURE = b"OWFW\x01" + UNO.identity.to_bytes(3)
ERASER_SIZE = 2 * len(eeprom._PROGRAM)


class Flash:
    """A board as avrdude sees it. dies: stage at which the next job is interrupted; None: the job
    is completed. wiped: how many times the board's EEPROM was erased.
    """

    def __init__(self) -> None:
        self.content = IntelHex()
        self.content.padding = 0xFF
        self.dies: str | None = None
        self.wiped = 0

    @property
    def identity(self) -> Identity | None:
        return Identity.from_bytes(self.content.tobinstr(start=UNO.identity, size=SIZE))

    def write(self, kind: Board, port: str, image: Path, progress: avrdude.Progress) -> None:
        for stage in ("connect", "write", "verify"):
            progress(stage, 0.5)
            if self.dies == stage:
                self.dies = None
                raise OncewayError("the board stopped answering before avrdude was done", port)
            if stage == "write":
                self.content.merge(IntelHex(str(image)), overlap="replace")
        self.wiped += IntelHex(str(image)).maxaddr() < ERASER_SIZE

    def read(
        self, kind: Board, port: str, address: int, length: int, progress: avrdude.Progress
    ) -> bytes:
        return bytes(self.content.tobinstr(start=address, size=length))


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> dict[str, Flash]:
    """Connect two boards, and return them by port."""
    plugged = {"/dev/a": Flash(), "/dev/b": Flash()}
    monkeypatch.setattr(
        avrdude, "write", lambda kind, port, *rest: plugged[port].write(kind, port, *rest)
    )
    monkeypatch.setattr(
        avrdude, "read", lambda kind, port, *rest: plugged[port].read(kind, port, *rest)
    )
    monkeypatch.setattr(exclusive, "port", lambda path: nullcontext())
    monkeypatch.setattr(ports, "look", lambda port: None)
    monkeypatch.setattr(ports, "check", lambda port: None)
    monkeypatch.setattr(ports, "drop_dtr", lambda port: None)
    monkeypatch.setattr(eeprom, "seconds", lambda size: 0.0)
    return plugged


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry.db")


@pytest.fixture
def firmware(tmp_path: Path) -> Path:
    path = tmp_path / "firmware.hex"
    image = IntelHex(dict.fromkeys(range(300), 1))
    image.puts(300, SIGNATURE)
    image.write_hex_file(str(path))
    return path


def _write(
    registry: Registry, plan: Plan, firmware: Path, port: str = "/dev/a", empty: bool = False
) -> None:
    target = Target(UNO, port, firmware, empty=empty)
    device.write(registry, plan, target, lambda stage, share: None)


def _statuses(registry: Registry) -> dict[str, str]:
    return {entry.name: entry.status for entry in registry.devices()}


@pytest.fixture
def roof_1(registry: Registry, boards: dict[str, Flash], firmware: Path) -> Identity:
    """Give the board at /dev/a the name roof-1, a key and firmware. Return its identity."""
    _write(registry, plans.provision(registry, "roof-1"), firmware)
    identity = boards["/dev/a"].identity
    assert identity is not None
    return identity


@pytest.mark.parametrize("stage", ["write", "verify"])
def test_an_interrupted_rename_goes_on_and_nothing_else_takes_either_name(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity, stage: str
) -> None:
    boards["/dev/a"].dies = stage
    with pytest.raises(OncewayError, match="stopped answering"):
        _write(registry, plans.rename(registry, "roof-1", "roof-2"), firmware)
    assert _statuses(registry) == {"roof-1": "flashing", "roof-2": "flashing"}
    with pytest.raises(OncewayError, match="`onceway device rename roof-1 roof-2` continues it"):
        plans.provision(registry, "roof-1")
    with pytest.raises(OncewayError, match="`onceway device rename roof-1 roof-2` continues it"):
        plans.replace(registry, "roof-2")
    _write(registry, plans.rename(registry, "roof-1", "roof-2"), firmware)
    assert _statuses(registry) == {"roof-2": "ready"}
    assert boards["/dev/a"].identity == Identity("roof-2", roof_1.key)
    assert boards["/dev/a"].wiped == 0, "its readings are still its own"


def test_an_interrupted_rename_can_be_ended_by_flashing_either_name(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity
) -> None:
    boards["/dev/a"].dies = "write"
    with pytest.raises(OncewayError, match="stopped answering"):
        _write(registry, plans.rename(registry, "roof-1", "roof-2"), firmware)
    _write(registry, plans.flash(registry, "roof-1"), firmware)
    assert _statuses(registry) == {"roof-1": "ready"}
    assert boards["/dev/a"].identity == roof_1


def test_a_rename_that_does_not_reach_the_board_leaves_all_as_it_was(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity
) -> None:
    boards["/dev/a"].dies = "connect"
    before = registry.devices()
    with pytest.raises(OncewayError, match="stopped answering"):
        _write(registry, plans.rename(registry, "roof-1", "roof-2"), firmware)
    assert registry.devices() == before


def test_an_interrupted_replacement_goes_on(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity
) -> None:
    boards["/dev/b"].dies = "verify"
    with pytest.raises(OncewayError, match="stopped answering"):
        _write(registry, plans.replace(registry, "roof-1"), firmware, "/dev/b")
    assert _statuses(registry) == {"roof-1": "flashing"}
    _write(registry, plans.replace(registry, "roof-1"), firmware, "/dev/b", empty=True)
    new = boards["/dev/b"].identity
    assert new is not None
    assert (_statuses(registry), registry.get("roof-1").key) == ({"roof-1": "ready"}, new.key)
    assert new.key != roof_1.key


def test_replaced_board_is_no_longer_that_device(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity
) -> None:
    _write(registry, plans.replace(registry, "roof-1"), firmware, "/dev/b")
    with pytest.raises(
        OncewayError,
        match=(
            "/dev/a: the board on this port had the name 'roof-1' before another board took"
            " that name"
        ),
    ):
        _write(registry, plans.flash(registry, "roof-1"), firmware, "/dev/a")
    with pytest.raises(OncewayError, match="its unsent readings would be deleted"):
        _write(registry, plans.provision(registry, "roof-2"), firmware, "/dev/a")
    _write(registry, plans.provision(registry, "roof-2"), firmware, "/dev/a", empty=True)
    assert _statuses(registry) == {"roof-1": "ready", "roof-2": "ready"}
    assert boards["/dev/a"].wiped == 1, "what its EEPROM holds was roof-1's"
    assert boards["/dev/b"].wiped == 0


@pytest.mark.parametrize("job", ["flash", "rename", "provision", "replace"])
def test_the_board_of_another_device_is_left_alone(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity, job: str
) -> None:
    _write(registry, plans.provision(registry, "roof-2"), firmware, "/dev/b")
    plan = {
        "flash": lambda: plans.flash(registry, "roof-1"),
        "rename": lambda: plans.rename(registry, "roof-1", "roof-3"),
        "provision": lambda: plans.provision(registry, "roof-3"),
        "replace": lambda: plans.replace(registry, "roof-1"),
    }[job]()
    before, there = registry.devices(), boards["/dev/b"].identity
    with pytest.raises(OncewayError, match=r"/dev/b: the board on this port is 'roof-2' \(ready\)"):
        _write(registry, plan, firmware, "/dev/b")
    assert (registry.devices(), boards["/dev/b"].identity) == (before, there)


def _rekey(registry: Registry, port: str = "/dev/a") -> None:
    device.write(
        registry,
        plans.rekey(registry, "roof-1"),
        Target(UNO, port, None),
        lambda stage, share: None,
    )


def test_rekeyed_device_has_another_key_and_is_otherwise_unchanged(
    boards: dict[str, Flash], registry: Registry, firmware: Path
) -> None:
    _write(registry, plans.provision(registry, "roof-1"), firmware)
    before, program = registry.get("roof-1"), boards["/dev/a"].content.tobinstr(start=0, size=400)
    _rekey(registry)
    after = registry.get("roof-1")
    assert after.key != before.key
    assert boards["/dev/a"].identity == Identity("roof-1", after.key or b"")
    assert boards["/dev/a"].content.tobinstr(start=0, size=400) == program
    assert (after.firmware, after.created, after.status) == (
        before.firmware,
        before.created,
        "ready",
    )
    assert boards["/dev/a"].wiped == 0


def test_a_board_whose_key_the_registry_has_lost_can_be_rekeyed(
    boards: dict[str, Flash], registry: Registry, firmware: Path, tmp_path: Path
) -> None:
    backup = registry.dump()
    _write(registry, plans.provision(registry, "roof-1"), firmware)
    old = Registry(tmp_path / "older.db")
    old.load(backup)
    old.admit("roof-1")
    _rekey(old)
    assert boards["/dev/a"].identity == Identity("roof-1", old.get("roof-1").key or b"")


@pytest.mark.parametrize("dies", ["write", "verify"])
def test_a_rekeying_that_was_interrupted_goes_on_with_the_same_key(
    boards: dict[str, Flash], registry: Registry, firmware: Path, dies: str
) -> None:
    _write(registry, plans.provision(registry, "roof-1"), firmware)
    boards["/dev/a"].dies = dies
    with pytest.raises(OncewayError, match="stopped answering"):
        _rekey(registry)
    begun = registry.work("roof-1")
    assert begun is not None
    _rekey(registry)
    assert registry.get("roof-1").key == begun.key
    assert _statuses(registry) == {"roof-1": "ready"}


def test_the_board_of_another_device_is_not_rekeyed(
    boards: dict[str, Flash], registry: Registry, firmware: Path
) -> None:
    _write(registry, plans.provision(registry, "roof-1"), firmware)
    _write(registry, plans.provision(registry, "roof-2"), firmware, "/dev/b")
    with pytest.raises(OncewayError, match=r"is 'roof-2' \(ready\)"):
        _rekey(registry, "/dev/b")
    assert _statuses(registry) == {"roof-1": "ready", "roof-2": "ready"}


def test_a_bare_board_is_not_taken_for_a_device_that_was_written(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity
) -> None:
    with pytest.raises(OncewayError, match="carries no identity: it is not 'roof-1'"):
        _write(registry, plans.flash(registry, "roof-1"), firmware, "/dev/b")


def test_a_board_of_a_revoked_device_is_free(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity
) -> None:
    registry.revoke("roof-1")
    for plan in (
        lambda: plans.flash(registry, "roof-1"),
        lambda: plans.rename(registry, "roof-1", "roof-2"),
    ):
        with pytest.raises(OncewayError, match="was revoked"):
            plan()
    _write(registry, plans.provision(registry, "roof-2"), firmware)
    assert _statuses(registry) == {"roof-1": "revoked", "roof-2": "ready"}
    assert boards["/dev/a"].wiped == 1


def test_an_admitted_device_keeps_the_key_that_its_board_has(
    registry: Registry, boards: dict[str, Flash], firmware: Path
) -> None:
    made_elsewhere = Identity.create("roof-1")
    boards["/dev/a"].content.puts(UNO.identity, made_elsewhere.to_bytes())
    registry.admit("roof-1")
    _write(registry, plans.flash(registry, "roof-1"), firmware)
    assert (registry.get("roof-1").key, registry.get("roof-1").status) == (
        made_elsewhere.key,
        "ready",
    )
    assert boards["/dev/a"].wiped == 0
    registry.admit("roof-2")
    with pytest.raises(OncewayError, match="carries no identity"):
        _write(registry, plans.flash(registry, "roof-2"), firmware, "/dev/b")


def test_a_board_that_does_not_greet_is_not_entered_until_it_does(
    registry: Registry, boards: dict[str, Flash], firmware: Path
) -> None:
    def silent(identity: Identity) -> None:
        raise OncewayError("no greeting came")

    job = (Target(UNO, "/dev/a", firmware), lambda stage, share: None)
    with pytest.raises(OncewayError, match="no greeting came"):
        device.write(registry, plans.provision(registry, "roof-1"), *job, silent)
    assert _statuses(registry) == {"roof-1": "flashing"}
    carried = boards["/dev/a"].identity
    device.write(registry, plans.provision(registry, "roof-1"), *job, lambda identity: None)
    assert _statuses(registry) == {"roof-1": "ready"}
    assert boards["/dev/a"].identity == carried


def test_a_name_is_written_by_one_command_at_a_time(
    registry: Registry, boards: dict[str, Flash], firmware: Path
) -> None:
    def meanwhile(identity: Identity) -> None:
        with pytest.raises(
            OncewayError, match="another `onceway device` command is writing to 'roof-1'"
        ):
            _write(registry, plans.provision(registry, "roof-1"), firmware, "/dev/b")
        assert boards["/dev/b"].identity is None, "the other board was not touched"
        _write(registry, plans.provision(registry, "roof-2"), firmware, "/dev/b")

    job = (Target(UNO, "/dev/a", firmware), lambda stage, share: None)
    device.write(registry, plans.provision(registry, "roof-1"), *job, meanwhile)
    assert _statuses(registry) == {"roof-1": "ready", "roof-2": "ready"}


def test_name_taken_after_the_plan_was_made_is_refused(
    registry: Registry, boards: dict[str, Flash], firmware: Path
) -> None:
    """Meanwhile, another command gives the name to another board."""
    late = plans.provision(registry, "roof-1")
    _write(registry, plans.provision(registry, "roof-1"), firmware, "/dev/a")
    entered = registry.get("roof-1")
    with pytest.raises(OncewayError, match="'roof-1' was changed by another command meanwhile"):
        _write(registry, late, firmware, "/dev/b")
    assert registry.get("roof-1") == entered
    assert boards["/dev/b"].identity is None, "the other board was not touched"


@pytest.mark.parametrize(("port", "answer", "asked", "goes_on"), [
    ("/dev/a", "n", True, False), ("/dev/a", "y", True, True), ("/dev/b", "", False, True),
])  # fmt: skip
def test_terminal_user_is_asked_before_a_device_is_replaced(
    registry: Registry,
    firmware: Path,
    roof_1: Identity,
    monkeypatch: pytest.MonkeyPatch,
    port: str,
    answer: str,
    asked: bool,
    goes_on: bool,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(cli, "hear", lambda *where: None)
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    said = io.StringIO()
    monkeypatch.setattr(sys, "stdout", said)
    command = [
        "replace",
        "roof-1",
        "--port",
        port,
        "--hex",
        str(firmware),
        "--registry",
        str(registry.path),
    ]
    with suppress(SystemExit):
        cli.app(command)
    assert ("'roof-1' itself" in said.getvalue()) == asked
    assert (registry.get("roof-1").key != roof_1.key) == goes_on


def test_interrupted_wipe_is_repeated(
    registry: Registry, boards: dict[str, Flash], firmware: Path, roof_1: Identity
) -> None:
    registry.revoke("roof-1")
    boards["/dev/a"].dies = "verify"
    with pytest.raises(OncewayError, match="stopped answering"):
        _write(registry, plans.provision(registry, "roof-2"), firmware)
    assert _statuses(registry)["roof-2"] == "flashing"
    _write(registry, plans.provision(registry, "roof-2"), firmware)
    assert boards["/dev/a"].wiped == 1
    assert _statuses(registry)["roof-2"] == "ready"
