"""Each row of the table of bounds in gateway/broker/README.md has a flood, which is sent to a
gateway process over loopback.

Each flood has limits for memory and disk. The event loop may not pause for more than 100 ms, or
longer on a slow machine (`tests/service/watched.py` measures it). The log may not have a line for
each refusal. No other client may lose its connection.
"""

import os
from pathlib import Path

import pytest

from tests.service.floods import coming, receiving, sending
from tests.service.floods.site import Cost, Flood, Site, cost, site
from tests.slowness import slowness

README = Path(__file__).parents[3] / "gateway" / "broker" / "README.md"
PAUSE_S = 0.1
WAIT_S = 3.0
FLOODS = {flood.row: flood for flood in (*coming.FLOODS, *sending.FLOODS, *receiving.FLOODS)}
SLOW = (
    "output that the client",
    "time of the event loop",
    "what comes due at once",
    "a large payload",
)
"""Rows, by their first words, whose floods take longest. `make test` leaves them out."""


def rows() -> list[str]:
    """Return the first column of the table of bounds."""
    _, _, section = README.read_text().partition("\n## Bounds\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [line.split("|")[1].strip() for line in lines[1:]]


def test_each_row_has_a_flood() -> None:
    assert sorted(rows()) == sorted(FLOODS)


@pytest.mark.skipif("COVERAGE_RUN" in os.environ, reason="a traced gateway is too slow")
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.soak] * row.startswith(SLOW)) for row in FLOODS],
)
async def test_a_flood_is_held_off(row: str, tmp_path: Path) -> None:
    """A long pause or waiting time counts only if each of three attempts has one. Pauses of a
    virtual machine, and CPU time of other processes, look like delays of the gateway.
    """
    for attempt in range(3):
        found = await _bring(FLOODS[row], tmp_path / str(attempt))
        if found.pause_s <= PAUSE_S * slowness() and found.waited_s <= WAIT_S * slowness():
            return
    assert found.pause_s <= PAUSE_S * slowness()
    assert found.waited_s <= WAIT_S * slowness()


async def _bring(flood: Flood, folder: Path) -> Cost:
    async with site(folder, flood) as target:
        found = await cost(target, flood)
        print(flood.row, found)
        assert found.memory <= flood.memory
        assert found.disk <= flood.disk
        assert found.served >= 1
        if flood.says:  # bytes may still be on their way to the gateway
            await target.running.logged(flood.says)
        _look_at_the_log(target, flood)
        if flood.counts:
            name, *labels = flood.counts.split()
            assert await target.count(name, **dict(item.split("=") for item in labels)) > 0
        assert await target.running.end() == 0
    return found


def _look_at_the_log(target: Site, flood: Flood) -> None:
    warnings = [line for line in target.running.log if line.startswith(("WARNING", "ERROR"))]
    mine = [line for line in warnings if flood.says and flood.says in line]
    assert bool(mine) == bool(flood.says), warnings[:5]
    assert len(warnings) <= flood.lines, warnings[:5]
    assert all(len(line) < 400 for line in warnings), max(warnings, key=len)
