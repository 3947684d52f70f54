"""Gateways of a site as processes that restart, while clients connect to them."""

import asyncio
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.mqtt.packets import Disconnect
from gateway.site.rules.contacts import START_S
from gateway.site.wiring import membership
from gateway.site.wiring.membership import Membership
from tests.site.gateways import gateways
from tests.site.rolling import NAMES, roll

CLIENTS = 24


async def test_a_rolling_restart_with_clients_that_hop_loses_no_session(tmp_path: Path) -> None:
    crowd = await roll(tmp_path, 30)
    assert crowd.come > 30
    assert crowd.lost == []


@pytest.mark.few(2)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", NAMES)
async def test_clients_that_come_as_soon_as_a_gateway_listens_find_their_sessions(
    tmp_path: Path, name: str, how: signal.Signals
) -> None:
    """The clients' sessions are at the other gateways, which keep running."""
    others = [other for other in NAMES if other != name]
    async with gateways(tmp_path, *NAMES) as site:
        for number in range(CLIENTS):
            wire, _ = await site.connect(others[number % 2], f"c{number}")
            wire.writer.close()
        await site.running[name].end(how)
        await site.start(name)
        came = [site.connect(name, f"c{number}") for number in range(CLIENTS)]
        found = await asyncio.gather(*came)
        assert [number for number, (_, present) in enumerate(found) if not present] == []
        assert (await site.figures(name))["marked"] == 0


async def test_a_gateway_that_stops_gives_its_sessions_to_where_clients_go(tmp_path: Path) -> None:
    """A gateway that is stopping accepts no new client. It sends BYE to the other gateways before
    it ends its links.
    """
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        idle, _ = await site.connect("a", "idle")
        stopping = asyncio.create_task(site.running["a"].end())
        assert (await client.take(Disconnect)).reason == 0x8B
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", site.running["a"].port)
        _, present = await site.connect("b")
        assert present
        assert await stopping == 0
        assert await site.sessions("b") == ["c"]
        idle.writer.close()
        await site.start("a")
        _, present = await site.connect("a", "idle")
        assert present, "one that goes nowhere finds its session where it was"


async def test_client_that_comes_during_a_restart_waits(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        (await site.connect("b"))[0].writer.close()
        begun = time.monotonic()
        await site.running["b"].end()
        await site.connect("a")
        assert time.monotonic() - begun > START_S
        await site.start("b")
        await site.joined()
        await site.kill("b")
        await site.running["a"].logged("b: lost: it ended the connection")


async def test_lone_gateway_stops_without_waiting(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        await site.connect("a")
        await site.kill("b")
        await site.running["a"].logged("b: lost")
        async with asyncio.timeout(20):
            assert await site.running["a"].end() == 0


@pytest.mark.parametrize(("moving", "takes_s"), [(150, (29, 36)), (60, (12, 18)), (0, (2, 8))])
def test_stop_waits_as_long_as_sessions_move(
    monkeypatch: pytest.MonkeyPatch, moving: int, takes_s: tuple[float, float]
) -> None:
    """On a busy machine, a session may take 0.2 s to move, so 150 sessions need half a minute."""
    now, here, gone = [0.0], {f"c{number}": None for number in range(150)}, set[str]()

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        if len(here) > 150 - min(moving, now[0] * 5) and (leaving := gone & here.keys()):
            here.pop(min(leaving))

    loop = SimpleNamespace(time=lambda: now[0])
    monkeypatch.setattr(
        membership, "asyncio", SimpleNamespace(get_running_loop=lambda: loop, sleep=sleep)
    )
    gateway = Membership.__new__(Membership)
    gateway._site = SimpleNamespace(up={"barn"}, holder=SimpleNamespace(given_to=dict))
    gateway._broker = SimpleNamespace(sessions=here)
    asyncio.run(gateway.hand_over(list(here), gone.update))
    assert gone == {f"c{number}" for number in range(150)}
    assert len(here) == 150 - moving
    assert takes_s[0] <= now[0] <= takes_s[1]
