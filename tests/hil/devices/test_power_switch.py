"""A power switch that labgrid drives: the rig's calls of labgrid, and the error if labgrid fails.
`real.py` uses the real labgrid.
"""

import sys
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from hil.devices.power_switch import Switch

STAND_IN = """
class Switch:
    def on(self):
        print("on")

    def off(self):
        raise RuntimeError("the strip does not answer")


class Target:
    def __init__(self, name):
        self.name = name

    def get_driver(self, protocol):
        if (self.name, protocol) != ("uno", "PowerProtocol"):
            raise LookupError(f"no {protocol} in {self.name}")
        return Switch()


class Environment:
    def __init__(self, config_file):
        open(config_file).close()

    def get_target(self, role):
        return Target(role) if role in ("uno", "bare") else None
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in for labgrid on Python's path. Return the path of a labgrid environment
    file.
    """
    (tmp_path / "labgrid.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "labgrid", raising=False)
    path = tmp_path / "lab.yaml"
    path.write_text("targets: {}\n")
    return path


def test_a_switch_turns_the_power_of_its_target(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    switch = Switch(environment, "uno")
    switch.turn(True)
    assert capsys.readouterr().out == "on\n"
    with pytest.raises(
        OncewayError, match=r"the power cannot be switched off \(the strip does not answer\)"
    ):
        switch.turn(False)


@pytest.mark.parametrize(
    ("file", "target", "told"),
    [
        ("lab.yaml", "none", "the labgrid environment has no such target"),
        ("lab.yaml", "bare", r"labgrid finds no power switch \(no PowerProtocol in bare\)"),
        ("none.yaml", "uno", r"labgrid finds no power switch \(.*No such file"),
    ],
)
def test_without_a_switch_the_environment_and_the_target_are_named(
    environment: Path, file: str, target: str, told: str
) -> None:
    path = environment.with_name(file)
    with pytest.raises(OncewayError, match=told) as caught:
        Switch(path, target)
    assert str(path) in str(caught.value)


def test_without_labgrid_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "labgrid", None)
    with pytest.raises(OncewayError, match=r"power switches need labgrid.*\[hil-labgrid\]"):
        Switch(Path("lab.yaml"), "main")
