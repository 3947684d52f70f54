"""The figures on the page, of commands, in metrics and in `/status` are right. The test counts the
sent messages and the messages in landed files itself.
"""

import asyncio
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import cbor2
import pyarrow.parquet as pq

from gateway.access.users import Users
from gateway.mqtt.packets import (
    Connect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
)
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.links.board import Pty
from tests.service.boards import Sensor, configuration
from tests.service.process import GatewayProcess, gateway
from tests.service.wire import Wire, wire
from tests.web.page import OPERATOR, PASSWORD, Browser
from tests.web.page import address as page_address
from tests.web.test_web import address as web_address
from tests.web.test_web import metrics, value

KEY = bytes(range(16))
MORE = """
[spool]
topics = ["sensors/#"]
[mirror]
[web]
bind = "127.0.0.1:0"
[page]
bind = "127.0.0.1:0"
operators = ["otto"]
[uplink]
landing = "file://{landing}"
"""


@dataclass
class Sent:
    """The messages that were sent for the uplink. A message counts once, even if its packet is sent
    again.
    """

    by: Counter[str] = field(default_factory=Counter)
    """Number of messages by sender and kind. The keys are texts such as "board, reading"."""
    readings: int = 0
    """Number of readings of the board."""

    @property
    def messages(self) -> int:
        return self.by.total()


async def _send(sent: Sent, sensor: Sensor, client: Wire) -> None:
    for number in range(3):
        await sensor.measure(float(number))
        sent.by["board, reading"] += 1
        sent.readings += 1
    status = [{-2: "roof-1:", 0: "boot", 2: 3}, {0: "life", 2: 100}]
    await sensor.publish("sensors/roof-1/status", cbor2.dumps(status))
    sent.by["board, status"] += 1
    await sensor.publish("logs/roof-1", b"not for the uplink")
    client.send(Publish("sensors/of-a-client", b"one", 1, 1))
    await client.take(Puback)
    sent.by["client, QoS 1"] += 1
    for dup in (False, True):  # the same packet again, as after a lost PUBREC
        client.send(Publish("sensors/of-a-client", b"two", 2, 2, dup=dup))
        await client.take(Pubrec)
    client.send(Pubrel(2))
    await client.take(Pubcomp)
    sent.by["client, QoS 2"] += 1
    client.send(Publish("elsewhere", b"not for the uplink", 1, 3))
    await client.take(Puback)


async def _run(file: Path, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *words, "--config", str(file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return out.decode()


def _landed(landing: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in landing.rglob("*.parquet"))


async def _page(running: GatewayProcess) -> dict[str, Any]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        browser = Browser(await page_address(running), http)
        await browser.post("/api/login", {"user": OPERATOR, "password": PASSWORD})
        event = await browser.hear("/api/events", b'"all": true')
    found: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return found


async def _shown(running: GatewayProcess, file: Path) -> list[tuple[str, int, int]]:
    """Return each view of the figures, with its number of waiting messages and its number of landed
    messages.
    """
    url = await web_address(running)
    found, samples = json.loads(await _run(file, "status", "--json")), await metrics(url)
    async with aiohttp.ClientSession() as http, http.get(f"{url}/status") as answer:
        told = await answer.json()
    uplink = json.loads(await _run(file, "uplink", "status", "--json"))
    outlets = [
        ("onceway status", found["spool"]["messages"], found["uplink"]["messages"]),
        ("/status", told["spool"]["messages"], told["uplink"]["messages"]),
        (
            "metrics",
            *(round(value(samples, name)) for name in ("spool_messages", "uplink_messages_total")),
        ),
        ("uplink status", uplink["rows"], uplink["sent"]["messages"]),
    ]
    page = (await _page(running))["overview"]
    outlets.append(("page", page["spool"]["waiting"], page["uplink"]["messages"]))
    text = re.search(r"([0-9,]+) messages? waits?, ([0-9,]+) landed", await _run(file, "status"))
    assert text is not None
    outlets.append(("onceway status, text", int(text[1]), int(text[2])))
    return outlets


async def _show(running: GatewayProcess, file: Path, waiting: int, landed: int) -> None:
    """Wait until each view shows these figures, at most 120 s. The gateway looks for landed batches
    once a second.
    """
    try:
        async with asyncio.timeout(120):
            while any(one[1:] != (waiting, landed) for one in await _shown(running, file)):
                pass
    except TimeoutError:
        raise AssertionError((waiting, landed, await _shown(running, file))) from None


async def test_each_outlet_counts_what_was_sent_and_what_has_landed(tmp_path: Path) -> None:
    data, line, landing = tmp_path / "data", Pty(), tmp_path / "landing"
    data.mkdir()
    registry = Registry(data / "registry.db")
    registry.finish(registry.begin(Identity("roof-1", KEY), "uno", "/dev/null"), "ab" * 32)
    Users(data / "users").add(OPERATOR, PASSWORD)
    file = configuration(tmp_path, [line], MORE.format(landing=landing))
    file.write_text(file.read_text().replace("[[listener]]", "[[listener]]\nanonymous = true"))
    sent = Sent(Counter({"gateway, list of devices": 1}))
    async with gateway(tmp_path, "--config", str(file)) as running:
        sensor = Sensor(line, "roof-1", KEY)
        await sensor.connect()
        async with wire(running.port, Connect("client", Version.V5)) as client:
            await _send(sent, sensor, client)
        await _show(running, file, sent.messages, 0)
        assert (await _run(file, "uplink", "run", "--once")) == ""
        await _show(running, file, 0, sent.messages)
        assert _landed(landing) == sent.messages
        (row,) = [row for row in (await _page(running))["boards"] if row["name"] == "roof-1"]
        assert row["per_hour"] == sent.readings
        before = sent.messages
        await sensor.measure(7.5)
        sent.by["board, reading"] += 1
        sent.readings += 1
        await running.end()
    # a restart counts no message again
    async with gateway(tmp_path, "--config", str(file)) as running:
        await _show(running, file, 1, before)
        assert "1 message waits," in await _run(file, "status")
        await _run(file, "uplink", "run", "--once")
        await _show(running, file, 0, sent.messages)
        assert _landed(landing) == sent.messages
        (row,) = [row for row in (await _page(running))["boards"] if row["name"] == "roof-1"]
        assert row["per_hour"] == sent.readings
        sensor.unplug()
