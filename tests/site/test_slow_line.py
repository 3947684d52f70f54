"""Members with a slow line between them, such as LTE."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.mqtt.packets import Puback, Publish, Suback, Subscribe, Subscription
from tests.service.process import free_port
from tests.site.gateways import Gateways, end
from tests.site.members import Site, running, until


@asynccontextmanager
async def slow(address: str, line_s: float) -> AsyncIterator[str]:
    """Run a proxy for a member's address that delays all bytes by `line_s` seconds in each
    direction. Yield the proxy's address.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def write(data: bytes) -> None:
            if not writer.is_closing():
                writer.write(data)

        while data := await reader.read(1 << 16):
            loop.call_later(line_s, write, data)
        loop.call_later(line_s, writer.close)

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(host, int(port))
            await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))
        except OSError:
            writer.close()

    listening = free_port()
    server = await asyncio.start_server(both, "127.0.0.1", listening)
    try:
        yield f"127.0.0.1:{listening}"
    finally:
        server.close()


async def test_link_over_a_slow_line_stays(tmp_path: Path) -> None:
    """The first bytes after the greetings take longer than the time after which a member counts as
    silent.
    """
    site = Site(tmp_path, "attic", "barn")
    async with slow(site.addresses["barn"], 1.0) as address:
        far = site.addresses | {"barn": address}
        async with running(site.config("attic", members=far), site.config("barn")) as (attic, barn):
            await until(lambda: attic.linked("barn") and barn.linked("attic"))
            await until(lambda: attic.row("barn")["lag_ms"] and barn.row("attic")["lag_ms"])
            assert (attic.events, barn.events) == ([("joined", "barn")], [("joined", "attic")])
            assert attic.row("barn")["lag_ms"] > 1900


@pytest.mark.soak
@pytest.mark.parametrize("line_s", [0.5, 1.0])
async def test_a_client_that_hops_over_a_slow_line_keeps_its_session(
    tmp_path: Path, line_s: float
) -> None:
    found = Gateways(tmp_path, "attic", "barn")
    async with slow(found.site.addresses["barn"], line_s) as address:
        text = found.config("attic").read_text()
        far = f'barn = "{found.site.addresses["barn"]}"'
        assert far in text
        found.config("attic").write_text(text.replace(far, f'barn = "{address}"'))
        try:
            for name in found.names:
                await found.start(name)
            await found.shown("attic", lambda rows: all(row["connected"] for row in rows))
            await asyncio.sleep(4 * line_s)  # the keep-alives measure the line's delay
            client, _ = await found.connect("attic")
            client.send(Subscribe(1, [Subscription("t", 1)]))
            await client.take(Suback)
            client.writer.close()
            other, _ = await found.connect("barn", "publisher")
            other.send(Publish("t", b"1", 1, packet_id=1))
            await other.take(Puback)
            for name in ("barn", "attic"):
                client, present = await found.connect(name)
                assert present, f"the session has not moved to {name}"
                client.writer.close()
            rows = [*await found.rows("attic"), *await found.rows("barn")]
            assert not any(row.get("silent") for row in rows)
            assert not any(row["problem"] for row in rows)
        finally:
            for name in found.names:
                await end(found, name)
