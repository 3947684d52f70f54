"""The program that makes the table of clients: its judgement, its proxy and its page. Two clients
that are always installed are tried.
"""

import asyncio
import random
from pathlib import Path

import pytest

from gateway.mqtt.reason import ReasonCode as R
from tests.clients import probes
from tests.clients.brokers import Broker, Ours, broker, cutting
from tests.clients.clients import clients
from tests.clients.page import CELLS, PAGE, bad, page, read, worse
from tests.links.certificates import Authority


@pytest.mark.parametrize(
    ("found", "ordered", "text"),
    [
        ([0, 1, 2], True, "once"),
        ([0, 2, 1], True, "once, not in order"),
        ([0, 2, 1], False, "once"),
        ([0, 2], True, "**1 lost**"),
        ([0, 1, 1, 2], True, "**1 twice**"),
        ([0, 0], True, "**2 lost**, **1 twice**"),
    ],
)
def test_messages_are_counted(found: list[int], ordered: bool, text: str) -> None:
    assert probes.count(found, 3, ordered) == text


def test_page_in_the_tree_is_that_of_its_cells() -> None:
    """If the page and the file of cells differ, run `make docs`."""
    assert PAGE.read_text() == page(read(CELLS))


def test_a_cell_that_was_good_and_is_bad_is_worse() -> None:
    def cells(ours: str) -> dict[str, dict[str, dict[str, list[str]]]]:
        return {"brokers": {"x 1|5": {"TCP": [ours, "**3 lost**"]}}}

    assert worse(cells("yes"), cells("**1 lost**")) == ["brokers: x 1|5, TCP: **1 lost**"]
    assert worse(cells("yes"), cells("once")) == []
    assert worse(cells("**9 lost**"), cells("**1 lost**")) == []
    assert not bad(cells("yes")["brokers"]["x 1|5"]["TCP"])


async def test_proxy_cuts_as_often_as_ordered_and_then_passes_all() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)
        writer.close()

    listener = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    data = random.Random(1).randbytes(20_000)
    async with listener, cutting(port, 3, "seed") as proxy:
        for cut in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(data)
            found = b""
            while len(found) < len(data) and (more := await _read(reader)):
                found += more
            assert data.startswith(found)
            assert (found == data) == (cut == 3)
            writer.transport.abort()
        assert proxy.cuts == 3


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(4096)
    except ConnectionError:
        return b""


async def test_paho_says_published_of_a_refused_message() -> None:
    """Onceway has its own publisher because paho has this fault."""
    paho = next(one for one in clients() if one.names[5].startswith("paho"))
    assert await probes.refused(paho, R.NOT_AUTHORIZED, 2) == "published (1 ×)"


@pytest.mark.soak
async def test_a_client_is_cut_and_each_message_arrives_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "MANY", 150)
    monkeypatch.setattr(probes, "CUTS", 1)
    paho = next(one for one in clients() if one.names[5].startswith("paho"))
    own: Broker = Ours(tmp_path, Authority(tmp_path))
    async with broker(own):
        at = probes.Where(own, tmp_path, 5, "t")
        assert await probes.cut_publisher(paho, at) == "once"
