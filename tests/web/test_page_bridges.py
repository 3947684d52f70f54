"""Bridges on the page, in Debian's Chromium. Each bridge has a row, which is red while the oldest
message is late.
"""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from gateway.mqtt.packets import Connect, Puback, Publish
from tests.bridge.picky import picky
from tests.service.wire import wire
from tests.web.page import page
from tests.web.test_page_browser import fits, log_in, window

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOON = (
    "-c",
    "from gateway.web import live, overview; from gateway.bridge import bridge, status;"
    " live.SAMPLE_S = overview.SAMPLE_S = 0.2; bridge.SAMPLE_S = 0.1; status.LATE_S = 3.0;"
    " from gateway.commands.main import main; main()",
)
"""Arguments of a gateway where a message counts as late after 3 s instead of 180 s."""


async def test_bridge_is_red_while_its_oldest_message_is_late(
    tmp_path: Path, chromium: Browser
) -> None:
    async with picky() as far:
        far.verdict = lambda packet: None  # the other broker acknowledges nothing
        text = (
            '[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n[[bridge]]\nname = "cloud"\n'
            f'server = "mqtt://127.0.0.1:{far.port}"\nup = ["up/#"]\n'
        )
        async with (
            page(tmp_path, [], text, program=SOON) as there,
            window(chromium, there.url) as shown,
        ):
            await log_in(shown)
            row = shown.get_by_role("row").filter(has=shown.get_by_role("rowheader"))
            await expect(row).to_contain_text("cloud")
            async with wire(there.running.port, Connect("board")) as board:
                board.send(Publish("up/x", b"1", 1, 1))
                await board.pick(Puback)
                await expect(row).to_contain_text("1, the oldest for")
                await expect(row).to_have_class("bad")
                await expect(row).to_contain_text("! cloud")
                problem = shown.locator(".verdict li")
                await expect(problem).to_contain_text(
                    "bridge cloud: 1 message waits, the oldest for"
                )
                for width in (360, 1400):
                    await shown.set_viewport_size({"width": width, "height": 900})
                    await fits(shown, width)
                far.verdict = lambda packet: 0
                far.close()
                await expect(row).to_have_class("")
                await expect(row).to_contain_text("the other broker closed the connection")
