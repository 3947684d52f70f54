"""Operators write boards from the page, with the real avrdude and boot loader on the simulated Uno.
The browser is a real Chromium, and the gateway runs meanwhile.
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from gateway.boards import admission
from gateway.web import page_flash
from hil.boards.simulator import SimulatedBoard
from provisioning.registry import Registry
from tests.web.page import OPERATOR, USER, browser, page
from tests.web.test_page_browser import SHOTS, WIDTHS, fits, log_in, window

pytestmark = [pytest.mark.sim, pytest.mark.asyncio(loop_scope="session")]
FLASHED_MS = 90_000


@pytest_asyncio.fixture(loop_scope="session")
async def uno(tmp_path: Path) -> AsyncIterator[SimulatedBoard]:
    async with SimulatedBoard(tmp_path / "board") as started:
        yield started


def serial(uno: SimulatedBoard) -> str:
    return f'[[serial]]\nport = "{uno.port}"\n'


async def test_a_board_is_added_updated_and_replaced(
    tmp_path: Path, uno: SimulatedBoard, chromium: Browser
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    async with (
        page(tmp_path, [], serial(uno)) as there,
        window(chromium, there.url + "/#/boards", WIDTHS[0]) as shown,
    ):
        await log_in(shown)
        heading = shown.get_by_role("heading", level=1)
        await shown.get_by_role("link", name="Add a board").click()
        await expect(heading).to_have_text("Add a board")
        await expect(shown.get_by_label("Port")).to_have_value(str(uno.port))
        await shown.get_by_label("Name", exact=True).fill("roof-1")
        await shown.get_by_label("Kind of board").select_option("uno")
        for width in WIDTHS:
            await shown.set_viewport_size({"width": width, "height": 900})
            await fits(shown, width)
        await shown.get_by_role("button", name="Write it and add it").click()
        bar = shown.get_by_role("progressbar", name="This step")
        await expect(bar).to_be_visible()
        await expect(shown.get_by_text("roof-1: Writing")).to_be_visible(timeout=FLASHED_MS)
        await expect(shown.get_by_role("button", name="Write it")).to_be_disabled()
        for width in WIDTHS:
            await shown.set_viewport_size({"width": width, "height": 900})
            found = await Axe().run(shown)
            assert found.violations_count == 0, found.generate_report()
            await fits(shown, width)
            await shown.screenshot(path=SHOTS / f"flash-{width}-light.png", full_page=True)
        done = shown.get_by_role("status").filter(has_text="roof-1 is done")
        await expect(done).to_be_visible(timeout=FLASHED_MS)
        known = Registry(tmp_path / "data" / "registry.db")
        key = known.get("roof-1").key

        await shown.get_by_role("link", name="All boards").click()
        row = shown.get_by_role("row", name=re.compile("roof-1"))
        await expect(row).to_contain_text("online", timeout=FLASHED_MS)
        await shown.get_by_role("link", name="roof-1").click()
        await shown.get_by_role("link", name="Update its firmware").click()
        await expect(heading).to_have_text("Update roof-1")
        await expect(bar).to_be_hidden()
        await shown.get_by_role("button", name="Update it").click()
        await expect(shown.get_by_text("roof-1 is done: has this firmware.")).to_be_visible()
        assert known.get("roof-1").key == key

        await shown.goto(f"{there.url}/#/flash/replace/roof-1")
        await expect(shown.get_by_label("Port")).to_have_value(str(uno.port))
        alert = shown.get_by_role("alert")
        for _ in range(3):  # on a busy machine, the simulated boot loader may answer too late
            await shown.get_by_role("button", name="Write the new board").click()
            await expect(done.or_(alert.filter(has_text="boot loader"))).to_be_visible(
                timeout=FLASHED_MS
            )
            if await done.is_visible():
                break
        await expect(alert).to_be_empty()
        assert known.get("roof-1").key != key
        assert [line for line in there.running.log if f"'{OPERATOR}' asked for it" in line]


async def test_slow_listing_of_the_ports_leaves_the_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(page_flash, "LOOK_S", 0.001)
    flash = page_flash.PageFlash(tmp_path, admission.Registry(tmp_path), list)
    found = await flash.choices()
    assert found["ports"] == []
    assert {"name": "uno", "title": "Arduino Uno R3"} in found["kinds"]
    assert "`onceway board ports` failed: no answer within 0 s" in caplog.text


async def test_failed_write_is_answered_with_a_sentence(
    tmp_path: Path, uno: SimulatedBoard
) -> None:
    """The causes: invalid input, a path that is none of the gateway's ports, another job in
    progress, and a board that does not answer.
    """
    async with page(tmp_path, [], serial(uno)) as there, browser(there.url) as client:

        async def flash(deed: str, device: str, **more: object) -> tuple[int, object]:
            body = {"deed": deed, "device": device, "kind": "uno", "port": str(uno.port)} | more
            status, found = await client.post("/api/flash", body)
            return status, found.get("error")

        assert await client.login(USER) == 200
        status, _ = await client.get("/api/ports")
        assert (status, (await flash("add", "roof-1"))[0]) == (403, 403)
        assert await client.login(OPERATOR) == 200
        _, found = await client.get("/api/ports")
        mine = {"port": str(uno.port), "boards": [], "text": "", "device": None}
        assert found["ports"][0] == mine
        assert (await flash("burn", "roof-1"))[1] == "Choose add, update or replace."
        assert "at most 23 letters" in str((await flash("add", "--port"))[1])
        assert await flash("update", "roof-1") == (409, "roof-1 is not in the device registry.")
        for wrong in ({"port": "/etc/passwd"}, {"kind": "--hex=/etc/passwd"}):
            status, why = await flash("add", "roof-1", **wrong)
            assert (status, why) == (409, "Choose a kind of board and a port that exists.")
        assert not (tmp_path / "data" / "registry.db").exists()

        await uno.power(False)
        assert await flash("add", "roof-1") == (200, None)
        assert await flash("add", "roof-2") == (
            409,
            "roof-1 is being flashed now. Try again when this is finished.",
        )
        event = await client.hear("/api/flash", b'"running": false')
        assert b"boot loader" in event, event
