"""A few power cuts and kills under load, and tests that the checker notices losses. `python -m
tests.durability.outages` runs hundreds.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hil.faults.loop_disk import LoopDisk, missing
from tests.durability.site import Site

SEED = 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    if reason := missing():
        pytest.skip(reason)
    made = LoopDisk(tmp_path / "disk")
    yield made
    made.close()


async def test_a_power_cut_costs_nothing_that_was_acknowledged(disk: LoopDisk) -> None:
    site = Site(disk.mount / "data", SEED)
    await site.outages(3, disk)
    assert site.faults == []
    assert site.reached["in the middle of a publication"]


async def test_kill_9_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    site = Site(tmp_path / "data", SEED)
    await site.outages(3, None)
    assert site.faults == []


def sabotaged(data: Path, fault: str, patience: float) -> Site:
    return Site(data, SEED, program=("-m", "tests.durability.sabotage", fault), patience=patience)


@pytest.mark.parametrize("fault", ["no sync", "early ack"])
async def test_the_checker_finds_a_gateway_that_breaks_its_promises_at_a_power_cut(
    disk: LoopDisk, fault: str
) -> None:
    site = sabotaged(disk.mount / "data", fault, patience=2)
    await site.outages(10, disk)
    assert site.faults


async def test_the_checker_finds_a_gateway_that_delivers_twice(tmp_path: Path) -> None:
    site = sabotaged(tmp_path / "data", "forgotten identifiers", patience=10)
    await site.outages(10, None)
    assert any("twice" in fault for fault in site.faults)
