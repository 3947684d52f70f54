"""`[site] copies = 2` with processes: a gateway and its disk are lost for good."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from gateway.config import UplinkSection
from gateway.mqtt.packets import Packet, Puback, Publish, Pubrec
from gateway.mqtt.properties import PropertyId
from gateway.site.cli import app
from gateway.uplink.batch import decode
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import open_landing
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from tests.service.wire import Wire
from tests.site.gateways import Gateways, gateways

COPIES = "copies = 2\ncopies_silent_s = 2\n"
SOON_S = 60

UPLINK = '[uplink]\nlanding = "file:///landing"\n'


def drain(data: Path, landing: Path) -> None:
    """Run `onceway uplink run --once`."""
    spool = Spool(data)
    try:
        settings = UplinkSection(landing=str(landing), batch_count=50)
        connect = partial(open_landing, str(landing))
        cutter = Cutter(spool, data, settings)
        Uplink(spool, cutter, settings, connect, load_or_make(data)).run(threading.Event(), True)
    finally:
        spool.close()


def table(landing: Path) -> dict[tuple[str, int, int], bytes]:
    """Return the payloads of all landed batches by key, as the ingest would. Assert that no key has
    two payloads.
    """
    found: dict[tuple[str, int, int], bytes] = {}
    for path in landing.glob("*/[!.]*/*.parquet"):
        for row in decode(path.read_bytes())[0]:
            assert found.setdefault(row[:3], row[5]) == row[5], row[:3]
    return found


class Source:
    """A publisher at QoS 1 and 2. Half of its messages have an identity. acknowledged: payloads of
    the acknowledged messages.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._number = 0
        self.acknowledged: list[bytes] = []

    def publish(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            number = self._number
            stated = {PropertyId.USER_PROPERTY: [("incarnation", "7"), ("seq", f"{number}")]}
            self._wire.send(
                Publish(
                    "t",
                    b"%d" % number,
                    1 + number // 2 % 2,
                    number,
                    properties=stated if number % 2 else None,
                )
            )

    async def hear(self, count: int) -> None:
        for _ in range(count):
            packet = await self._wire.take(Packet, SOON_S)
            assert isinstance(packet, Puback | Pubrec)
            assert packet.reason == 0, packet
            self.acknowledged.append(b"%d" % packet.packet_id)


async def until(site: Gateways, name: str, true: Callable[[dict[str, Any]], object]) -> None:
    """Wait until `true` holds for a gateway's figures about copies."""
    async with asyncio.timeout(SOON_S):
        while True:
            if true((await site.rows(name))[0]["copies"]):
                return
            await asyncio.sleep(0.1)


async def test_a_gateway_and_its_disk_die_and_each_acknowledged_reading_lands_once(
    tmp_path: Path,
) -> None:
    landing = tmp_path / "landing"
    async with gateways(tmp_path, "a", "b", text=UPLINK, site=COPIES) as site:
        wire, _ = await site.connect("a", "source", clean=True)
        source = Source(wire)
        source.publish(100)
        await source.hear(100)
        await asyncio.to_thread(drain, site.data("a"), landing)
        assert len(table(landing)) == 100
        source.publish(400)
        await source.hear(300)
        await site.kill("a")
        shutil.rmtree(site.data("a"))
        await until(site, "b", lambda row: row["copies_landed"] >= 300)
        await until(site, "b", lambda row: not row["copies_kept_bytes"])
        await asyncio.to_thread(drain, site.data("b"), landing)
        payloads = list(table(landing).values())
        assert len(payloads) == len(set(payloads)), "under two keys"
        missing = set(source.acknowledged) - set(payloads)
        assert (len(source.acknowledged), missing) == (400, set())
        # a lone gateway refuses messages that need a second disk, and says why
        wire, _ = await site.connect("b", "other", clean=True)
        await until(site, "b", lambda row: row["copies_refusing"])
        wire.send(Publish("t", b"more", 1, 1))
        assert (await wire.take(Puback)).reason == 0x97
        said = await asyncio.to_thread(
            CliRunner().invoke, app, ["status", "--config", str(site.config("b"))]
        )
        assert "no other member accepts copies: readings are refused" in said.output
