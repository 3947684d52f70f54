"""The users' view of a running gateway's radios: `radio listen`, `device ping`, and the warning
before the hour's airtime is used up.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.store.uptime import uptime
from tests.hil.air.radio_site import RadioSite

pytestmark = pytest.mark.sim

ONCEWAY = Path(sys.executable).with_name("onceway")
PATIENCE_S = 60


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RadioSite]:
    found = RadioSite(tmp_path, "roof-1")
    await found.begin()
    try:
        yield found
    finally:
        await found.end()


@asynccontextmanager
async def onceway(site: RadioSite, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(ONCEWAY, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"ONCEWAY_REGISTRY": str(site.folder / "registry.db")},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said(site: RadioSite, *arguments: str) -> tuple[int | None, str, str]:
    async with onceway(site, *arguments) as process:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        return process.returncode, out.decode(), err.decode()


async def inject(site: RadioSite, frame: bytes) -> None:
    """Send a frame from a foreign radio."""
    _, writer = await asyncio.open_unix_connection(site.folder / "air.socket")
    words = f"radio foreign 50 0\nlisten 869525000 125000 7\ninject {frame.hex()}\n"
    writer.write(words.encode())
    await writer.drain()
    writer.close()


async def test_listen_shows_what_is_heard_foreign_frames_too(site: RadioSite) -> None:
    await site.start_gateway()
    data = ("--data", str(site.folder))
    async with onceway(site, "radio", "listen", "--json", *data) as process:
        assert process.stdout is not None
        seen: dict[str, dict[str, Any]] = {}
        async with asyncio.timeout(PATIENCE_S):
            while "foreign" not in seen:
                # `radio listen` does not show frames from before its start
                await inject(site, b"\x40\xaa\x01 of a neighbour")
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        frame = json.loads(await process.stdout.readline())
                        seen[frame["result"]] = frame
            await site.start_board("roof-1")
            while "turns" not in seen:
                frame = json.loads(await process.stdout.readline())
                seen[frame["result"]] = frame
    assert seen["greetings"]["device"] == seen["turns"]["device"] == "roof-1"
    assert seen["turns"]["rssi"] == -75
    assert seen["turns"]["utc"] > 1_700_000_000
    foreign = seen["foreign"]
    assert (bytes.fromhex(foreign["frame"]), foreign["device"]) == (
        b"\x40\xaa\x01 of a neighbour",
        None,
    )


async def test_ping_is_answered_at_the_next_turn_and_a_board_without_a_log_says_nothing(
    site: RadioSite,
) -> None:
    """The sensor sketch of radio boards has no log. It accepts the command `log`, but sends no
    answer.
    """
    await site.start_gateway()
    code, _, error = await said(site, "device", "ping", "roof-1", "--wait", "1")
    assert code == 1
    assert "roof-1 is not connected. A radio board is heard when it sends next" in error
    assert "nothing was heard of the board within 1 s" in error
    code, _, error = await said(site, "device", "ping", "nobody", "--wait", "1")
    assert (code, "there is no such device" in error) == (5, True)
    await site.start_board("roof-1")
    code, out, _ = await said(site, "device", "ping", "roof-1", "--json")
    assert code == 0
    answer = json.loads(out)
    assert (answer["name"], answer["rssi"]) == ("roof-1", -75)
    assert 0 <= answer["after"] < PATIENCE_S
    await site.rows("roof-1", 1, PATIENCE_S)
    code, _, error = await said(site, "device", "log", "roof-1", "--wait", "7")
    assert code == 1
    assert "roof-1 is on a radio: it gets the command when it next sends" in error
    assert "has received the command, but has not answered within 7 s" in error


async def test_missing_gateway_and_missing_radio_are_reported(tmp_path: Path) -> None:
    site = RadioSite(tmp_path, "roof-1")
    for words in (("radio", "listen"), ("radio", "status")):
        code, _, error = await said(site, *words, "--data", str(tmp_path))
        assert (code, "no gateway runs here" in error) == (12, True)
    code, _, error = await said(site, "device", "ping", "roof-1")
    assert (code, "no gateway runs here" in error) == (12, True)


async def test_the_log_warns_once_before_the_hour_is_used_up(site: RadioSite) -> None:
    """The gateway has sent 287.9 of the 360 s that it may send in an hour. The warning is due at
    four fifths, 288 s.
    """
    started = uptime()
    assert started is not None
    name = str(site.folder / "modem").strip("/").replace("/", "-")
    told = {"at": started.seconds, "bands": {"P": {"reserved": 0, "sent": [[300.0, 287.9]]}}}
    record = site.folder / f"airtime-{name}.json"
    record.write_text(json.dumps({"machine": started.machine, **told}))
    gateway = await site.start_gateway()
    await site.start_board("roof-1")
    await gateway.logged("288 of the 360 s that it may send in an hour")
    assert len(await site.rows("roof-1", 3, 60)) >= 3
    assert sum("`onceway radio plan` says" in line for line in gateway.log) == 1
    code, out, _ = await said(site, "radio", "status", "--data", str(site.folder))
    assert (code, "warning the radio has used 288 of the 360 s" in out) == (0, True)
    heard = re.search(r"heard +(\d+\.\d) s within an hour: \d% of the 546 s", out)
    assert heard is not None, out
    assert float(heard[1]) > 0
