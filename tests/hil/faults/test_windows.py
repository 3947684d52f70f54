"""Stopping a program in a window."""

from pathlib import Path
from typing import Any, cast

import pytest

from hil.faults import windows
from hil.faults.fault import Fault
from hil.faults.gateway import GatewayKill
from hil.faults.preload import Machine
from hil.faults.under_test import ProgramUnderTest


class Child:
    """Comes to its window in the moment when nobody waits for it any more."""

    paused = True

    def check(self) -> None: ...

    def resume(self) -> None:
        self.paused = False


async def test_a_program_that_comes_to_its_window_too_late_is_not_left_standing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "PASSED_WITHIN", 0.01)
    monkeypatch.setattr(windows, "REACHED_WITHIN", 0.01)
    detail: dict[str, Any] = {"window": "committed", "pass": 0}
    fault = Fault("gateway/gateway-kill-1", "gateway-kill", "gateway", "", "spooled", 1, detail)
    machine, child = Machine(tmp_path / "work", tmp_path), Child()
    kind = GatewayKill(kind="gateway-kill")
    assert await kind.halt(fault, machine, cast(ProgramUnderTest, child)) is None
    assert not child.paused
