"""Gateways as processes with a slow line between them, such as LTE: 500 ms in each direction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.mqtt.packets import Puback, Publish, Suback, Subscribe, Subscription
from tests.service.process import free_port
from tests.site.gateways import Gateways, end

LINE_S = 0.5


@asynccontextmanager
async def slow(address: str) -> AsyncIterator[str]:
    """Return the address of a line to that address that delays all bytes by LINE_S."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def write(data: bytes) -> None:
            if not writer.is_closing():
                writer.write(data)

        while data := await reader.read(1 << 16):
            loop.call_later(LINE_S, write, data)
        loop.call_later(LINE_S, writer.close)

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


@pytest.mark.soak
async def test_a_client_that_hops_over_a_slow_line_keeps_its_session(tmp_path: Path) -> None:
    found = Gateways(tmp_path, "attic", "barn")
    async with slow(found.site.addresses["barn"]) as address:
        text = found.config("attic").read_text()
        far = f'barn = "{found.site.addresses["barn"]}"'
        assert far in text
        found.config("attic").write_text(text.replace(far, f'barn = "{address}"'))
        try:
            for name in found.names:
                await found.start(name)
            await found.shown("attic", lambda rows: all(row["connected"] for row in rows))
            await asyncio.sleep(2)  # beats measure the line
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
