"""Faults with a window: the rig stops a program while a publication is in the window."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from hil.faults import windows
from hil.faults.fault import Fault
from hil.faults.gateway import GatewayKill, UplinkKill
from hil.faults.landing_place import LandingPlace
from hil.faults.preload import Machine
from hil.faults.under_test import ProgramUnderTest
from hil.observe.counters import wait_until


class Child:
    """A child process that reaches its window just after the wait for it has ended."""

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


@pytest.mark.parametrize(
    ("window", "there", "told"),
    [
        ("data", (), "000000000007.parquet is missing"),
        ("data", (".parquet",), None),
        ("landed", (".parquet",), "000000000007.json is missing"),
        ("landed", (".json",), "000000000007.parquet is missing"),
        ("landed", (".parquet", ".json"), None),
        ("deleted", (), None),
    ],
)
async def test_window_of_the_uplink_counts_only_in_the_state_that_it_names(
    tmp_path: Path, window: str, there: tuple[str, ...], told: str | None
) -> None:
    """there: suffixes of the files that have landed. The landing place is unmounted before the
    check, as a fault may unmount it.
    """
    machine = Machine(tmp_path / "work", tmp_path / "data")
    place, source = tmp_path / "landing", tmp_path / "source"
    place.mkdir()
    source.touch()
    landing = LandingPlace(place, tmp_path / "mount", tmp_path / "key")
    machine.arm(windows.BEFORE_MANIFEST)
    manifest = tmp_path / "mount/000000000007.json"
    child = await asyncio.create_subprocess_exec("ln", source, manifest, env=machine.env)
    await wait_until(lambda: machine["reached"] == windows.BEFORE_MANIFEST)
    child.kill()
    await child.wait()
    assert machine.found == str(manifest)
    for suffix in there:
        (place / manifest.name).with_suffix(suffix).touch()
    landing.unmount()
    fault = Fault("u/1", "uplink-kill", "uplink", "", "landed", 1, {"window": window, "pass": 0})
    assert UplinkKill(kind="uplink-kill").window_error(fault, machine, landing) == told
