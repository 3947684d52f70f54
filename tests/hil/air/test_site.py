"""A gateway with a radio, and radio boards: each reading lands once, and the airtime stays within
the legal limit.
"""

import asyncio
import os
import signal
import tty
from collections.abc import AsyncIterator
from pathlib import Path

import aiomqtt
import pytest

from gateway.commands.control_client import ask
from tests.hil.air.radio_site import RadioSite

pytestmark = pytest.mark.sim


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RadioSite]:
    found = RadioSite(tmp_path, "roof-1", "roof-2")
    await found.begin()
    try:
        yield found
    finally:
        await found.end()


def numbers(rows: list[tuple[int, bytes]]) -> list[int]:
    return [sequence for sequence, _ in rows]


@pytest.mark.soak  # in the gate, test_modems.py shows the same
async def test_readings_of_boards_land_once_and_in_order(site: RadioSite) -> None:
    gateway = await site.start_gateway()
    await gateway.logged("KISS modem, firmware 2, 869.525 MHz, SF7, 14 dBm. EN 300 220-2 band P")
    await site.start_board("roof-1")
    await site.start_board("roof-2", x=-300.0)
    await gateway.logged("roof-2 greets, boot ")
    for name in ("roof-1", "roof-2"):
        rows = await site.rows(name, 5, 60)
        assert numbers(rows) == list(range(1, len(rows) + 1))
    (radio,) = await asyncio.to_thread(ask, site.folder, do="radios")
    assert radio["is_open"]
    assert sorted(radio["connected"]) == ["roof-1", "roof-2"]
    assert 0 < radio["used"] < radio["limit"] == 360
    heard = {board["name"]: board["rssi"] for board in radio["boards"]}
    assert heard == {"roof-1": -75, "roof-2": -89}
    code, report = await site.end()
    assert code == 0, report["breaches"]
    assert report["radios"]["roof-1"]["sent"] >= 5
    assert set(report["worst_hours"]) == {"roof-1 P", "roof-2 P", "gateway P"}


async def test_a_modem_that_hangs_and_one_that_is_pulled_out_are_opened_again(
    site: RadioSite,
) -> None:
    gateway = await site.start_gateway()
    await site.start_board("roof-1")
    before = len(await site.rows("roof-1", 2, 60))
    site.signal("modem", signal.SIGUSR2)
    await gateway.logged("the modem hangs")
    site.signal("modem", signal.SIGUSR1)
    before = len(await site.rows("roof-1", before + 2, 60))
    await site.stop("modem")
    await gateway.logged("Waiting for it to come back")
    await site.plug_in()
    rows = await site.rows("roof-1", before + 2, 60)
    assert numbers(rows) == list(range(1, len(rows) + 1))


async def test_device_that_is_not_a_modem_is_reported(
    tmp_path: Path,
) -> None:
    """The device sends bytes, but no answer to the gateway, like a HAT on the UART or a board with
    other firmware.
    """
    site = RadioSite(tmp_path, "roof-1")
    await site.begin_without_modem()
    master, slave = os.openpty()
    tty.setraw(slave)
    (tmp_path / "modem").symlink_to(os.ttyname(slave))
    try:
        gateway = await site.start_gateway()
        os.write(master, b"$GPGGA,,,,,,0,,,,,,,,*66\r\n")
        await gateway.logged("no KISS modem answers")
        (radio,) = await asyncio.to_thread(ask, tmp_path, do="radios")
        assert not radio["is_open"]
        assert "no KISS modem answers" in radio["problem"]
        (row,) = await asyncio.to_thread(ask, tmp_path, do="status")
        assert [problem["part"] for problem in row["problems"]] == ["radio"]
        (tmp_path / "modem").unlink()
        await site.plug_in()
        await site.start_board("roof-1")
        assert await site.rows("roof-1", 2, 60)
    finally:
        os.close(master)
        os.close(slave)
        await site.end()


@pytest.mark.soak  # in the gate, the bench radio-power cuts both
async def test_power_cuts_of_gateway_and_board_lose_nothing(site: RadioSite) -> None:
    gateway = await site.start_gateway()
    await site.start_board("roof-1")
    before = len(await site.rows("roof-1", 2, 60))
    await gateway.end(signal.SIGKILL)
    await site.start_gateway()
    before = len(await site.rows("roof-1", before + 3, 90))
    await site.stop("roof-1")
    await site.start_board("roof-1")
    rows = await site.rows("roof-1", before + 3, 90)
    found = numbers(rows)
    assert sorted(set(found)) == list(range(1, max(found) + 1))
    assert len(set(rows)) == len(set(found))


@pytest.mark.soak  # in the gate: test_commands.py, and the bench radio-power
async def test_a_real_firmware_on_a_simulated_board_is_heard_and_hears(site: RadioSite) -> None:
    """The simulated flash has the firmware for a real Uno. The simulated radio chip sends into the
    ether.
    """
    gateway = await site.start_gateway()
    async with site.uno("roof-1") as board:
        before = len(await site.rows("roof-1", 4, 60))
        await board.power(False)
        await board.power(True)
        rows = await site.rows("roof-1", before + 4, 60)
        assert (await board.stats()).frames > before
        async with aiomqtt.Client("127.0.0.1", gateway.port) as client:
            await client.publish("commands/roof-1", b"blnik", qos=2)
        await gateway.logged("roof-1: the board does not know the command 'blnik'")
    found = numbers(rows)
    assert sorted(set(found)) == list(range(1, max(found) + 1))
    assert len(set(rows)) == len(set(found))
    code, report = await site.end()
    assert code == 0, report["breaches"]
    assert set(report["worst_hours"]) == {"roof-1 P", "gateway P"}
