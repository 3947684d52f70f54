"""A pause and an expected interval of a board apply at all gateways of its site."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

from gateway.commands import control_client as control
from gateway.mqtt.packets import Puback, Publish, Suback, Subscribe, Subscription
from provisioning.registry import Registry
from tests.site.gateways import SOON_S, Gateways, gateways
from tests.site.test_boards_nowhere import becomes, impatient, missing


async def ask(site: Gateways, gateway: str, **request: str) -> dict[str, Any]:
    (row,) = await asyncio.to_thread(control.ask, site.data(gateway), **request)
    return row


async def with_board(site: Gateways) -> None:
    """Register a board that is connected to b and silent."""
    # the board connects before it is registered, so it needs no serial line
    board, _ = await site.connect("b", "roof-1")
    board.send(Subscribe(7, [Subscription("commands/roof-1", 1)]))
    await board.take(Suback)
    with closing(Registry(site.data("a") / "registry.db")) as registry:
        registry.admit("roof-1")
    await becomes(site, "b", ["roof-1"])
    assert await missing(site, "a") == []


async def row_at(site: Gateways, gateway: str, **wanted: object) -> None:
    """Wait until a gateway shows the board with these values."""
    async with asyncio.timeout(SOON_S):
        row: dict[str, Any] = {}
        while {key: row.get(key) for key in wanted} != wanted:
            row = await ask(site, gateway, do="boards")


async def test_settings_hold_at_all_gateways_and_only_a_person_sets_them(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b", program=impatient()) as site:
        await with_board(site)
        await _pauses(site)
        await _is_commanded_elsewhere(site)
        await _sets_as_a_client(site)
        await _learns_later(site)
        await _forgets(site)


async def _pauses(site: Gateways) -> None:
    row = await ask(site, "a", do="pause", client="roof-1", interval="3d")
    assert (row["state"], row["site"], round(row["paused_s"], -2)) == ("paused", True, 259_200)
    await becomes(site, "b", [])
    (there,) = await asyncio.to_thread(control.ask, site.data("b"), do="boards")
    assert abs(there["paused_s"] - row["paused_s"]) < 60
    row = await ask(site, "a", do="pause", client="roof-1", interval="0")
    assert (row["state"], row["paused_s"]) == ("elsewhere", None)
    await becomes(site, "b", ["roof-1"])


async def _is_commanded_elsewhere(site: Gateways) -> None:
    """At gateway a, send commands that set the board's interval, until b, where the board is,
    expects this interval.
    """
    phone, _ = await site.connect("a", "phone")
    number, row = 0, await ask(site, "b", do="boards")
    async with asyncio.timeout(SOON_S):
        while row["interval_s"] != 5400.0:  # a moment later, a knows the board's filter
            number += 1
            phone.send(Publish("commands/roof-1", b"interval 90 min", 1, number))
            await phone.take(Puback)
            row = await ask(site, "b", do="boards")


async def _sets_as_a_client(site: Gateways) -> None:
    wire, _ = await site.connect("b", "somebody")
    wire.send(Publish("$onceway/boards/roof-1/interval", b"0", 1, 1, retain=True))
    await wire.take(Puback)
    await ask(site, "a", do="pause", client="roof-1", interval="3d")
    await row_at(site, "b", state="paused", never=False, set=False)


async def _learns_later(site: Gateways) -> None:
    """Check that a gateway learns settings that were made while it was away."""
    await ask(site, "a", do="expect", client="roof-1", interval="20m")
    await row_at(site, "b", interval_s=1200.0, set=True)
    assert await site.running["b"].end() == 0
    await ask(site, "a", do="expect", client="roof-1", interval="never")
    await site.start("b")
    await site.joined()
    await row_at(site, "b", never=True, set=True, state="paused")
    await ask(site, "a", do="expect", client="roof-1", interval="learn")
    await row_at(site, "b", never=False, set=False, interval_s=5400.0)


async def _forgets(site: Gateways) -> None:
    """Revoke the board and admit it again. Check that its pause is then forgotten, so that b
    reports it as missing.
    """
    with closing(Registry(site.data("a") / "registry.db")) as registry:
        registry.revoke("roof-1")
        async with asyncio.timeout(SOON_S):
            while await asyncio.to_thread(control.ask, site.data("b"), do="boards"):
                pass
        registry.admit("roof-1")
    await becomes(site, "b", ["roof-1"])
