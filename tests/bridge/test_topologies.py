"""Several bridges with the same topics: in the end, every broker has the same retained messages."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.commands import control_client as control
from gateway.mqtt.packets import Connect, Puback, Publish, Suback, Subscribe, Subscription
from tests.bridge.mosquitto import mosquitto
from tests.bridge.test_bridge import publish
from tests.bridge.test_loops import section
from tests.service.process import GatewayProcess, free_port, gateway
from tests.service.wire import wire

ALL = 'up = ["#"]\n'


@asynccontextmanager
async def named(folder: Path, port: int, bridges: str) -> AsyncIterator[GatewayProcess]:
    """Run a gateway under the name of its folder. bridges: configuration of its bridges."""
    os.makedirs(folder, exist_ok=True)
    file = folder / "gateway.toml"
    file.write_text(
        f'gateway.name = "{folder.name}"\ngateway.data = "{folder}/data"\n[[listener]]\n'
        f'bind = "127.0.0.1:{port}"\nanonymous = true\n{bridges}'
    )
    async with gateway(folder, "--config", str(file)) as running:
        yield running


async def states(folder: Path) -> list[dict[str, Any]]:
    (found,) = await asyncio.to_thread(control.ask, folder / "data", do="status")
    bridges: list[dict[str, Any]] = found["bridges"]
    return bridges


async def retain(port: int, payload: bytes, *topics: str) -> None:
    async with wire(port, Connect("writer")) as client:
        for topic in topics:
            client.send(Publish(topic, payload, 1, 7, True))
            await client.pick(Puback)


async def held(port: int, topic_filter: str = "#") -> dict[str, bytes]:
    """Return the retained messages of a broker."""
    found: dict[str, bytes] = {}
    async with wire(port, Connect("reader")) as client:
        client.send(Subscribe(1, [Subscription(topic_filter, 0)]))
        await client.pick(Suback)
        client.send(Subscribe(2, [Subscription("reader-end", 0)]))
        await client.pick(Suback)
        await publish(client, "reader-end", b"", 1, 9)
        while (packet := await client.pick(Publish)).topic != "reader-end":
            if packet.retain:
                found[packet.topic] = packet.payload
    return found


async def settles(
    folders: list[Path],
    right: Callable[[], Any],
    what: Callable[[], object] = lambda: "",
    wanted: tuple[str, ...] = ("equal",),
) -> None:
    """Wait until `right` returns true, all bridges have compared both ends, and no message has
    crossed for half a second. After 60 s, the test fails. what: returns a text for the failure.
    wanted: accepted results of a comparison.
    """
    before: object = None
    try:
        async with asyncio.timeout(60):
            while True:
                found = [item for folder in folders for item in await states(folder)]
                counts = [(item["sent"], item["received"], item["looped"]) for item in found]
                done = all(item["retained"] in wanted for item in found)
                if done and counts == before and await right():
                    return
                before = counts
                await asyncio.sleep(0.5)
    except TimeoutError:
        pytest.fail(f"{what()} {found}")


@pytest.mark.parametrize(
    "more",
    [pytest.param("", marks=pytest.mark.soak), 'down = ["#"]\n'],
    ids=["up", "up and down"],
)
async def test_two_gateways_with_all_topics_end_equal(tmp_path: Path, more: str) -> None:
    """Each gateway has a bridge to the other one. The retained messages of each gateway change
    while the other gateway is down. Then both bridges connect, and each sends its own gateway's
    messages.
    """
    a, b, topics = free_port(), free_port(), f"{ALL}{more}"
    to_b, to_a = section("to-b", b, topics), section("to-a", a, topics)
    async with named(tmp_path / "a", a, to_b):
        await retain(a, b"a", "x", "only/a")
    async with named(tmp_path / "b", b, to_a):
        await retain(b, b"b", "x", "only/b")
        async with named(tmp_path / "a", a, to_b):
            found: list[dict[str, bytes]] = []

            async def right() -> bool:
                found[:] = [await held(a), await held(b)]
                return found[0] == found[1] and {"x", "only/a", "only/b"} <= {*found[0]}

            await settles([tmp_path / "a", tmp_path / "b"], right, lambda: found)
            moved = [(await states(tmp_path / name))[0]["sent"] for name in "ab"]
            assert sum(moved) <= 20, "three topics do not go back and forth"


@pytest.mark.soak
async def test_three_bridges_of_a_gateway_end_equal(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        far = [await stack.enter_async_context(mosquitto(tmp_path / name)) for name in "xyz"]
        both = 'up = ["t/#"]\ndown = ["t/#"]\n'
        bridges = "".join(section(f"to-{i}", each.port, both) for i, each in enumerate(far))
        for number, each in enumerate(far):
            await retain(each.port, b"%d" % number, f"t/{number}")
        port = free_port()
        await stack.enter_async_context(named(tmp_path / "near", port, bridges))
        await retain(port, b"near", "t/near")
        wanted = {"t/near": b"near"} | {f"t/{i}": b"%d" % i for i in range(3)}
        ends = [port, *(each.port for each in far)]

        async def right() -> bool:
            return all([await held(one, "t/#") == wanted for one in ends])

        await settles([tmp_path / "near"], right)
        await retain(far[1].port, b"", "t/0")
        del wanted["t/0"]
        await settles([tmp_path / "near"], right)


@pytest.mark.soak
@pytest.mark.parametrize("names", ["abc", "abcd"])
async def test_ring_of_gateways_ends_equal_and_a_deletion_goes_round(
    tmp_path: Path, names: str
) -> None:
    """All gateways set the same topic at the same moment, so at each gateway the messages arrive in
    a different order.
    """
    ports = {name: free_port() for name in names}
    up = 'up = ["t/#"]\n'
    folders = [tmp_path / name for name in names]
    async with AsyncExitStack() as stack:
        for name, other in zip(names, names[1:] + names[0], strict=True):
            text = section(f"to-{other}", ports[other], up)
            await stack.enter_async_context(named(tmp_path / name, ports[name], text))
        found: list[dict[str, bytes]] = []

        async def right() -> bool:
            found[:] = [await held(port, "t/#") for port in ports.values()]
            return all(one == found[0] for one in found) and {*found[0]} == wanted

        wanted = set[str]()
        await settles(folders, right)
        await asyncio.gather(
            *(retain(ports[name], name.encode(), "t/all", f"t/{name}") for name in names)
        )
        wanted = {"t/all", *(f"t/{name}" for name in names)}
        await settles(folders, right, lambda: found)
        await retain(ports["b"], b"", "t/all", "t/a")
        wanted -= {"t/all", "t/a"}
        await settles(folders, right, lambda: found)


@pytest.mark.parametrize(
    "prefixes",
    [
        ("s/", "s/t/"),
        pytest.param(("s/", "s/"), marks=pytest.mark.soak),
        pytest.param(("", "s/"), marks=pytest.mark.soak),
    ],
)
async def test_overlapping_prefixes_do_not_grow(tmp_path: Path, prefixes: tuple[str, str]) -> None:
    """Two bridges lead to one broker, where the topics of one bridge are also topics of the
    other.
    """
    both = 'up = ["#"]\ndown = ["#"]\n'
    async with mosquitto(tmp_path / "far") as far:
        bridges = "".join(
            section(f"b{number}", far.port, f'{both}prefix = "{prefix}"\n')
            for number, prefix in enumerate(prefixes)
        )
        port = free_port()
        async with named(tmp_path / "near", port, bridges):
            await retain(port, b"1", "x")
            async with wire(port, Connect("board")) as board:
                for number in range(5):
                    await publish(board, "live", b"%d" % number, 2, number + 1)

            async def right() -> bool:
                there = await held(far.port)
                return all(there.get(f"{prefix}x") == b"1" for prefix in prefixes)

            await settles([tmp_path / "near"], right, wanted=("equal", "differ"))
            first = len(await held(far.port)), len(await held(port))
        async with named(tmp_path / "near", port, bridges):
            for _ in range(2):
                await settles([tmp_path / "near"], right, wanted=("equal", "differ"))
            assert (len(await held(far.port)), len(await held(port))) == first
