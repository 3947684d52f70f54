"""The network between gateways: the rig cuts it, slows it down, and repairs it."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hil.programs.process import children
from hil.programs.site import MemberLinks


@pytest.fixture
async def links(tmp_path: Path) -> AsyncIterator[tuple[MemberLinks, int]]:
    """Yield links between attic and barn, and the port to which attic connects. Barn is an echo
    server.
    """

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = MemberLinks({"barn": f"127.0.0.1:{port}", "attic": "127.0.0.1:1"})
    assert found.seen_by("barn")["attic"] == "127.0.0.1:1", "the lower name dials"
    dialled = int(found.seen_by("attic")["barn"].rpartition(":")[2])
    assert dialled != port
    async with children(tmp_path) as programs, server:
        await found.start(programs)
        following = asyncio.create_task(found.follow())
        yield found, dialled
        await found.stop()
        await following


async def test_cut_link_delivers_all_bytes_after_its_mending(
    links: tuple[MemberLinks, int],
) -> None:
    found, port = links
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"a")
    assert await reader.read(10) == b"a"
    await found.order("cut", "barn")
    writer.write(b"b")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(10), 0.3)
    newcomer, other = await asyncio.open_connection("127.0.0.1", port)
    other.write(b"c")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(newcomer.read(10), 0.3)
    mended = await found.order("mend", "barn")
    assert mended["held"] == 1
    assert await reader.read(10) == b"b"
    assert await newcomer.read(10) == b"c"
    writer.close()
    other.close()


async def test_a_slow_member_is_late_and_its_connections_end_like_others(
    links: tuple[MemberLinks, int],
) -> None:
    found, port = links
    await found.order("slow", "attic", seconds=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = time.monotonic()
    writer.write(b"a")
    assert await reader.read(10) == b"a"
    assert time.monotonic() - begun >= 0.4
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(10), 10) == b""
    writer.close()
