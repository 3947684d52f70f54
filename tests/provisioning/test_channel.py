"""Channel and board number of a radio board: how they are chosen, and that a board keeps them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import OncewayError
from provisioning import boards, device, plans
from provisioning import channel as channel_module
from provisioning.channel import Wanted, channel
from provisioning.identity import Identity
from provisioning.radio_plan import RadioPlan
from provisioning.registry import Registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry.db")


def enter(registry: Registry, name: str, radio: RadioPlan) -> None:
    work = registry.begin(Identity.create(name), "uno-lora", "/dev/a", radio=radio)
    registry.finish(work, "ab" * 32, greets=False)


def test_channel_without_a_gateway_has_the_defaults_of_the_configuration(
    registry: Registry,
) -> None:
    assert channel(registry, "roof-1") == RadioPlan(0, 1, factor=9, frequency=869_525_000)


def test_device_number_is_unique_in_a_network(registry: Registry) -> None:
    enter(registry, "roof-1", RadioPlan(0, 1))
    enter(registry, "roof-2", RadioPlan(4, 2))
    assert channel(registry, "roof-3").device == 2
    assert channel(registry, "roof-3", Wanted(network=4)).device == 1
    with pytest.raises(OncewayError, match="'roof-1' has the number 1 in network 0"):
        enter(registry, "roof-3", RadioPlan(0, 1))
    enter(registry, "roof-1", RadioPlan(0, 1))


def test_a_board_that_is_replaced_keeps_its_channel_unless_the_gateway_has_another(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(registry, "roof-1", RadioPlan(4, 2, factor=8))
    assert channel(registry, "roof-1") == RadioPlan(4, 2, factor=8)
    radio = {"network": 4, "region": "EU868", "frequency": 868_300_000, "factor": 7}
    radio["numbers"] = {"2": "roof-1"}
    monkeypatch.setattr(channel_module, "radios", lambda registry: [radio])
    assert channel(registry, "roof-1") == RadioPlan(4, 2, factor=7, frequency=868_300_000)


def test_radio_of_the_gateway_decides_the_open_settings(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    radio: dict[str, Any] = {"network": 7, "region": "EU868", "frequency": 868_300_000, "factor": 8}
    radio["numbers"] = {"1": "other", "5": "roof-5"}
    monkeypatch.setattr(channel_module, "radios", lambda registry: [radio])
    assert channel(registry, "roof-1") == RadioPlan(7, 2, factor=8, frequency=868_300_000)
    assert channel(registry, "roof-5").device == 5
    wanted = Wanted(number=9, mhz=869.525, factor=10, power=10)
    assert channel(registry, "roof-1", wanted) == RadioPlan(7, 9, 10, 869_525_000, 10)
    with pytest.raises(OncewayError, match="EN 300 220-2 band M"):
        channel(registry, "roof-1", Wanted(power=17))
    monkeypatch.setattr(channel_module, "radios", lambda registry: [radio, radio | {"network": 8}])
    with pytest.raises(OncewayError, match="several radios"):
        channel(registry, "roof-1")
    assert channel(registry, "roof-1", Wanted(network=8)).network == 8


def test_board_keeps_its_channel_through_every_command(registry: Registry) -> None:
    radio = RadioPlan(7, 3, factor=8, power=10)
    enter(registry, "roof-1", radio)
    for plan in (
        plans.flash(registry, "roof-1"),
        plans.rekey(registry, "roof-1"),
        plans.rename(registry, "roof-1", "roof-2"),
    ):
        assert plan.radio == radio
    begun = registry.begin(Identity.create("roof-3"), "uno-lora", "/dev/a", radio=RadioPlan(7, 4))
    assert plans.provision(registry, "roof-3", RadioPlan(7, 5)).radio == begun.channel
    copy = Registry(registry.path.with_name("copy.db"))
    copy.load(registry.dump())
    assert copy.get("roof-1").channel == radio


@pytest.mark.parametrize(("board", "radio"), [("uno", RadioPlan(7, 3)), ("uno-lora", None)])
def test_a_channel_is_written_to_a_board_by_radio_and_to_no_other(
    board: str, radio: RadioPlan | None, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = device.Target(boards.board(board), "/dev/a", None)
    plan = plans.provision(registry, "roof-1", radio)
    with pytest.raises(OncewayError, match=r"is a radio board|has no radio channel"):
        device._check_radio(plan, target)


def test_a_name_too_long_for_a_frame_is_refused_before_anything_is_written(
    registry: Registry,
) -> None:
    longest, longer = "a" * 14, "a" * 15
    plans.provision(registry, longest, RadioPlan(0, 1))
    plans.provision(registry, longer)
    with pytest.raises(OncewayError, match="15 characters"):
        plans.provision(registry, longer, RadioPlan(0, 1))
    enter(registry, "roof-1", RadioPlan(0, 1))
    plans.rename(registry, "roof-1", longest)
    with pytest.raises(OncewayError, match="15 characters"):
        plans.rename(registry, "roof-1", longer)


@pytest.mark.parametrize(
    "command", [("add", "a" * 15, "--board", "uno-lora"), ("rename", "roof-1", "a" * 15)]
)
def test_command_line_explains_a_name_too_long_for_a_frame(
    command: tuple[str, ...], registry: Registry
) -> None:
    enter(registry, "roof-1", RadioPlan(0, 1))
    before = registry.dump()
    done = device_command(registry, *command)
    assert done.returncode == 1
    assert "has 15 characters" in done.stderr
    assert "a name of 14 characters at most" in done.stderr
    assert registry.dump() == before


def test_registered_board_with_a_name_too_long_for_a_frame_is_listed_with_a_warning(
    registry: Registry,
) -> None:
    longest, longer, wired = "a" * 14, "a" * 15, "w" * 15
    enter(registry, longest, RadioPlan(0, 1))
    enter(registry, longer, RadioPlan(0, 2))
    registry.finish(registry.begin(Identity.create(wired), "uno", "/dev/b"), "ab" * 32, greets=True)
    done = device_command(registry, "list", "--json")
    assert {row["name"] for row in json.loads(done.stdout)} == {longest, longer, wired}
    [warning] = done.stderr.splitlines()
    assert warning.startswith(f"{longer}: ")
    assert f"device rename {longer} NAME" in warning


def device_command(registry: Registry, *command: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("onceway")
    return subprocess.run(
        [program, "device", *command, "--registry", registry.path],
        capture_output=True,
        text=True,
        timeout=60,
    )
