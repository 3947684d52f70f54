"""If a board of a site connects to no gateway, one gateway reports this as a problem: the first
gateway by name that is not dead. While a gateway is silent for a short time, no gateway reports a
problem, because the board may be connected to the silent one.
"""

import asyncio
from contextlib import closing
from pathlib import Path

from gateway.commands import control_client as control
from provisioning.registry import Registry
from tests.site.gateways import SOON_S, Gateways, gateways


def impatient(more: str = "") -> tuple[str, str]:
    return (
        "-c",
        "from gateway.boards import expected, nowhere; expected.UNKNOWN_S = 0.1;"
        f" expected.LEAST_S = 0.1; nowhere.ASK_S = 0.1; {more}"
        " from gateway.commands.main import main; main()",
    )


IMPATIENT = impatient("nowhere.SELDOM_S = 0.2;")


async def missing(site: Gateways, name: str) -> list[str]:
    (row,) = await asyncio.to_thread(control.ask, site.data(name), do="status")
    found: list[str] = row["missing"]
    return found


async def looked(site: Gateways, name: str, times: int) -> None:
    """Wait until the other gateway counts as lost. Then wait `times` seconds and one more, in which
    this gateway looks for its boards at least `times` times.
    """
    async with asyncio.timeout(SOON_S):
        while (await site.rows(name))[1]["connected"]:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.1)
        (row,) = await asyncio.to_thread(control.ask, site.data(name), do="status")
        end = row["uptime_s"] + times + 1
        while row["uptime_s"] < end:
            await asyncio.sleep(0.1)
            (row,) = await asyncio.to_thread(control.ask, site.data(name), do="status")


async def becomes(site: Gateways, name: str, wanted: list[str]) -> None:
    async with asyncio.timeout(SOON_S):
        while await missing(site, name) != wanted:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.1)


async def knows(site: Gateways, name: str, *wanted: str) -> None:
    """Wait until the registry of a gateway has these boards."""
    file = site.data(name) / "registry.db"
    async with asyncio.timeout(SOON_S):
        while not file.exists():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.1)
        with closing(Registry(file)) as registry:
            while {device.name for device in registry.devices()} != {*wanted}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def test_a_board_that_came_nowhere_is_reported_once(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b", program=IMPATIENT) as site:
        await site.connect("b", "roof-2")
        with closing(Registry(site.data("b") / "registry.db")) as registry:
            registry.admit("roof-2")
            registry.admit("roof-1")
        await knows(site, "a", "roof-1", "roof-2")  # a dead gateway could not forward them any more
        await becomes(site, "a", ["roof-1"])
        await becomes(site, "b", ["roof-2"])
        assert await missing(site, "a") == ["roof-1"]
        await site.kill("b")
        await becomes(site, "a", ["roof-1", "roof-2"])
        await looked(site, "a", 3)
        assert await missing(site, "a") == ["roof-1", "roof-2"], "no gateway hears them"
        await site.start("b")
        await site.joined()
        await becomes(site, "a", ["roof-1"])
        with closing(Registry(site.data("b") / "registry.db")) as registry:
            registry.revoke("roof-1")
        await becomes(site, "a", [])


async def test_restarts_of_gateways_begin_and_end_no_problem(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b", program=impatient()) as site:
        await site.connect("b", "roof-2")
        with closing(Registry(site.data("a") / "registry.db")) as registry:
            registry.admit("roof-1")
            registry.admit("roof-2")
        await knows(site, "b", "roof-1", "roof-2")
        await becomes(site, "a", ["roof-1"])
        log = site.running["a"].log
        await site.kill("b")
        async with asyncio.timeout(SOON_S):
            while (await site.rows("a"))[1]["connected"]:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.1)
        await asyncio.to_thread(
            control.ask, site.data("a"), do="expect", client="roof-1", interval="0.1s"
        )
        assert await missing(site, "a") == ["roof-1"]
        await site.start("b")
        await site.joined()
        assert await missing(site, "a") == ["roof-1"]
        told = [line for line in log if "roof-1" in line]
        assert len([line for line in told if "has received no reading" in line]) == 1
        assert not [line for line in told if "no problem any more" in line]
        assert await site.running["a"].end() == 0
        await site.start("a")
        await becomes(site, "a", ["roof-1"])
        await site.joined()
        assert await missing(site, "a") == ["roof-1"]
        assert not [line for line in site.running["a"].log if "roof-1" in line]
        (row,) = await asyncio.to_thread(control.ask, site.data("a"), do="boards")
        assert (row["name"], row["interval_s"], row["set"]) == ("roof-1", 0.1, True)


async def test_the_next_gateway_tells_of_a_board_when_the_first_is_dead(tmp_path: Path) -> None:
    """The problem is reported once, even after a restart. The settings that a person makes
    meanwhile survive the restart, too.
    """
    async with gateways(tmp_path, "a", "b", program=IMPATIENT) as site:
        await site.connect("b", "roof-2")
        await site.kill("a")
        with closing(Registry(site.data("b") / "registry.db")) as registry:
            for name in ("roof-1", "roof-2", "roof-3"):
                registry.admit(name)
        await becomes(site, "b", ["roof-1", "roof-2", "roof-3"])
        log = site.running["b"].log
        await site.running["b"].logged("roof-1: this gateway has received no reading")
        told = [line for line in log if "roof-1" in line]
        assert len([line for line in told if "this gateway has received no reading" in line]) == 1
        ask = control.ask
        await asyncio.to_thread(ask, site.data("b"), do="pause", client="roof-3", interval="3d")
        await asyncio.to_thread(ask, site.data("b"), do="expect", client="roof-1", interval="0.1s")
        await becomes(site, "b", ["roof-1", "roof-2"])
        assert await site.running["b"].end() == 0
        await site.start("b")
        await becomes(site, "b", ["roof-1", "roof-2"])
        assert not [line for line in site.running["b"].log if "roof-1" in line]
        found: dict[str, control.Row] = {}
        async with asyncio.timeout(SOON_S):
            while "roof-3" not in found:
                rows = await asyncio.to_thread(ask, site.data("b"), do="boards")
                found = {row["name"]: row for row in rows}
        assert found["roof-3"]["state"] == "paused"
        assert (found["roof-1"]["interval_s"], found["roof-1"]["set"]) == (0.1, True)
