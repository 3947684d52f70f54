"""A radio board is added by cable, with avrdude, the boot loader and the firmware of a real Uno.
Then its readings arrive by radio.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hil.boards.simulator import Air, SimulatedBoard
from provisioning.boards import board
from provisioning.radio_plan import AT, SIZE
from tests.firmware.eeprom import with_interval
from tests.hil.air.radio_site import RadioSite

pytestmark = pytest.mark.sim

ONCEWAY = Path(sys.executable).with_name("onceway")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RadioSite]:
    """Yield a site whose configuration has no board."""
    found = RadioSite(tmp_path)
    await found.begin()
    try:
        yield found
    finally:
        await found.end()


@pytest.fixture
async def bare(site: RadioSite) -> AsyncIterator[SimulatedBoard]:
    """Yield a simulated Uno with a radio, and only the boot loader in its flash. Its EEPROM holds
    an interval of one second.
    """
    place = site.folder / "bare"
    place.mkdir()
    (place / "eeprom.bin").write_bytes(with_interval(1000))
    air = Air(site.folder / "air.socket", "bare", (100.0, 0.0))
    async with SimulatedBoard(place, air=air) as started:
        yield started


async def device(site: RadioSite, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(ONCEWAY, "device", *arguments),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"ONCEWAY_REGISTRY": str(site.folder / "registry.db")},
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return out.decode()


async def listed(site: RadioSite) -> dict[str, Any]:
    (row,) = json.loads(await device(site, "list", "--json"))
    assert isinstance(row, dict)
    return row


def radio_part(bare: SimulatedBoard) -> bytes:
    at = board("uno-lora").identity + AT
    return bare.flash_image.read_bytes()[at : at + SIZE]


async def test_a_board_that_is_added_by_cable_is_heard_and_stays_so_under_another_name_and_key(
    site: RadioSite, bare: SimulatedBoard
) -> None:
    await site.start_gateway()
    port = ("--port", str(bare.port))
    out = await device(site, "add", "roof-7", "--board", "uno-lora", *port)
    assert "by radio: number 1 of network 7, 869.525 MHz, SF7, 14 dBm" in out
    assert len(await site.rows("roof-7", 2, 60)) >= 2
    row = await listed(site)
    assert (row["name"], row["status"], row["heard"]["rssi"]) == ("roof-7", "written", -75)
    assert row["heard"]["age"] < 30
    assert 0 < row["heard"]["left"] < row["heard"]["limit"] == 360
    assert 0 < row["heard"]["airtime"] < 10
    written = radio_part(bare)
    await device(site, "rename", "roof-7", "roof-8", *port)
    await device(site, "rekey", "roof-8", *port)
    assert radio_part(bare) == written
    assert len(await site.rows("roof-8", 2, 60)) >= 2
    assert (await listed(site))["radio"] == "number 1 of network 7, 869.525 MHz, SF7, 14 dBm"
