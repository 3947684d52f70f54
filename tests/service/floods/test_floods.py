"""The table of bounds in gateway/broker/README.md, row by row: a flood for each, against a gateway
process on the loopback address.

What a flood may cost: the memory and the disk that it names, no pause of the event loop beyond 100
ms (how that is measured: `tests/service/watched.py`; on a slow machine more), no line in the log
for each thing that is refused, and no one else the connection.
"""

from pathlib import Path

import pytest

from tests.service.floods import coming, receiving, sending
from tests.service.floods.site import Cost, Flood, Site, cost, site
from tests.slowness import slowness

README = Path(__file__).parents[3] / "gateway" / "broker" / "README.md"
PAUSE_S = 0.1
WAIT_S = 3.0
FLOODS = {flood.row: flood for flood in (*coming.FLOODS, *sending.FLOODS, *receiving.FLOODS)}


def rows() -> list[str]:
    """Return the first column of the table of bounds, which is under its heading and above the
    next.
    """
    _, _, section = README.read_text().partition("\n## Bounds\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [line.split("|")[1].strip() for line in lines[1:]]


def test_each_row_has_a_flood() -> None:
    assert sorted(rows()) == sorted(FLOODS)


@pytest.mark.parametrize("row", FLOODS)
async def test_a_flood_is_held_off(row: str, tmp_path: Path) -> None:
    """A long pause or wait counts only if all three attempts show it. A virtual machine pauses now
    and then, and other processes take CPU time, which the gateway cannot tell from its own delays.
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
        if flood.says:  # what came may still be on its way through the sockets
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
    assert all(len(line) < 400 for line in warnings)
