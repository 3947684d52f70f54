"""Two gateways of a site as processes: a client moves between them."""

import asyncio
import json
import random
import shutil
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.commands import control_client as control
from gateway.config import load
from gateway.mqtt.packets import (
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.service import session_cli
from gateway.site.pki.folder import RETURNED
from gateway.site.pki.invitation import invite
from gateway.site.pki.joining import join
from gateway.store import doubts
from gateway.store.schema import connect_to_read, existing
from tests.service.wire import Wire
from tests.site.gateways import SOON_S, Gateways, gateways


async def published(wire: Wire, packet_id: int = 9, payload: bytes = b"m") -> None:
    """Publish a message at QoS 2, and wait for its PUBREC."""
    wire.send(Publish("x", payload, 2, packet_id))
    assert (await wire.take(Pubrec)).reason == 0


@pytest.mark.mqtt("MQTT-4.3.3-8")
async def test_a_client_moves_between_pubrec_and_pubrel(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, present = await site.connect("a")
        assert not present
        await published(client)
        moved, present = await site.connect("b")
        assert present
        assert (await client.take(Disconnect)).reason == 0x8E
        moved.send(Pubrel(9))
        assert await moved.take(Pubcomp) == Pubcomp(9)
        assert await until_one_place(site) == "b"


async def test_queued_messages_come_along_once_each_and_in_order(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        client.send(Subscribe(1, [Subscription("t", 1)]))
        await client.take(Suback)
        client.writer.close()
        publisher, _ = await site.connect("a", "p", clean=True)
        for number in range(500):
            publisher.send(Publish("t", b"%04d" % number, 1, number + 1))
        for _ in range(500):
            await publisher.take(Puback)
        moved, present = await site.connect("b")
        assert present
        for number in range(500):
            packet = await moved.take(Publish)
            assert packet.payload == b"%04d" % number
            moved.send(Puback(packet.packet_id))
        with pytest.raises(TimeoutError):
            await moved.take(Publish, within=0.3)


async def test_a_silent_member_costs_a_second_and_is_marked(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        site.running["b"].process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        _, present = await site.connect("a")
        took = time.monotonic() - begun
        assert not present
        assert took < 20, "a second, and what the machine needs"
        await site.running["a"].logged("b did not answer")
        assert (await site.figures("a"))["marked"] == 1
        site.running["b"].process.send_signal(signal.SIGCONT)
        await site.running["a"].end()
    (doubt,) = doubts.read(site.data("a"))
    assert (doubt.client, doubt.silent) == ("c", ["b"]), "`onceway where` says it"


async def test_all_sessions_of_the_site_are_listed_with_their_holders(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        await site.connect("a", "c1")
        await site.connect("b", "c2")
        code, found, _ = await listed(site)
        assert code == 0
        where = {row["client"]: row["member"] for row in found["sessions"]}
        assert (where["c1"], where["c2"], found["silent"]) == ("a", "b", [])
        own = await asyncio.to_thread(control.ask, site.data("b"), do="session", client="c2")
        (told,) = (row for row in found["sessions"] if row["client"] == "c2")
        assert told.keys() - {"member"} == own[0].keys(), "nothing is lost on the way"
        site.running["b"].process.send_signal(signal.SIGSTOP)
        code, found, _ = await listed(site)
        assert (code, found["silent"]) == (1, ["b"])
        assert (
            "b does not answer: some or all of its sessions are missing"
            in (await listed(site, ()))[2]
        )
        assert "c1" in [row["client"] for row in found["sessions"]]


async def listed(site: Gateways, options: tuple[str, ...] = ("--json",)) -> tuple[int, Any, str]:
    """Run `onceway session list --site` on a. Return the exit code, the JSON (None without
    `--json`), and the output.
    """
    words = ["list", "--site", "--data", str(site.data("a")), *options]
    done = await asyncio.to_thread(CliRunner().invoke, session_cli.app, words)
    found = json.loads(done.stdout) if options else None
    return done.exit_code, found, done.output


async def leave_a_stale_session(site: Gateways) -> None:
    """Leave a stale session at a: while a is paused (SIGSTOP), the client begins another session at
    b.
    """
    client, _ = await site.connect("a")
    await published(client, 7, b"old")
    client.writer.close()
    site.running["a"].process.send_signal(signal.SIGSTOP)
    moved, present = await site.connect("b")
    assert not present
    moved.writer.close()


async def test_a_stale_holder_swallows_no_publish(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        await leave_a_stale_session(site)
        site.running["b"].process.send_signal(signal.SIGSTOP)
        site.running["a"].process.send_signal(signal.SIGCONT)
        listener, _ = await site.connect("a", "listener", clean=True)
        listener.send(Subscribe(1, [Subscription("x", 0)]))
        await listener.take(Suback)
        back, present = await site.connect("a")
        assert not present, "its identifiers may stand for other messages by now"
        await published(back, 7, b"new")
        assert (await listener.take(Publish)).payload == b"new"
        site.running["b"].process.send_signal(signal.SIGCONT)
        await site.joined()
        await until_one_place(site)


async def test_a_gateway_with_a_new_card_puts_all_into_doubt(tmp_path: Path) -> None:
    """The store of b is lost. Only b knew that the session at a is stale."""
    async with gateways(tmp_path, "a", "b") as site:
        await leave_a_stale_session(site)
        await site.kill("b")
        site.running["a"].process.send_signal(signal.SIGCONT)
        site.remove("b")
        shutil.rmtree(site.data("b"))
        site.data("b").mkdir()
        await asyncio.to_thread(_join_again, site, "b")
        assert (site.site.of("b") / RETURNED).exists()
        await site.start("b")
        await site.joined()
        back, present = await site.connect("a")
        assert not present, "its identifiers may stand for other messages by now"
        await published(back, 7, b"new")
        await until_settled(site)


def _join_again(site: Gateways, name: str) -> None:
    config = load(site.config("a"))
    assert config.site is not None
    invitation = invite(config.site_folder, config.site, "a", name, 1)
    join(site.site.of(name), invitation, name)


async def until_one_place(site: Gateways, client: str = "c") -> str:
    """Wait until exactly one gateway has the session. Return its name."""
    async with asyncio.timeout(SOON_S):
        while True:
            places = [name for name in site.names if client in await site.sessions(name)]
            given = [await site.figures(name) for name in site.names]
            if len(places) == 1 and not any(figures["given"] for figures in given):
                return places[0]
            await asyncio.sleep(0.1)


async def until_settled(site: Gateways) -> None:
    """Wait until one gateway has the session, and no disk says that another gateway may have an
    older one. If a gateway is killed before that, the records of both members become suspect.
    """
    await until_one_place(site)
    async with asyncio.timeout(SOON_S):
        while True:
            if not any(_names_others(site.data(name)) for name in site.names):
                return
            await asyncio.sleep(0.05)


def _names_others(data: Path) -> bool:
    with closing(connect_to_read(existing(data))) as store:
        return bool(store.execute("SELECT 1 FROM place WHERE older != '[]'").fetchone())


@pytest.mark.parametrize("victim", ["a", "b"])
async def test_a_kill_in_the_middle_of_a_move_leaves_the_session_in_one_place(
    tmp_path: Path, step: int, victim: str
) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        for delay_ms in range(0, 80, 8)[::step]:
            client, _ = await site.connect("a")
            await published(client)  # so that a knows of the session
            await until_settled(site)
            client.writer.close()
            moving = asyncio.create_task(site.connect("b"))
            await asyncio.sleep((delay_ms + random.random() * 8) / 1000)
            await site.kill(victim)
            await asyncio.wait([moving])
            told_that_it_is_gone = moving.exception() is None and not moving.result()[1]
            await site.start(victim)
            await site.joined()
            if not told_that_it_is_gone:
                moved, present = await site.connect("b")
                assert present
                moved.send(Pubrel(9))
                assert await moved.take(Pubcomp) == Pubcomp(9)
                moved.writer.close()
            assert await until_one_place(site) == "b"


async def test_clean_start_ends_the_session_at_the_other_gateway(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        _, present = await site.connect("b", clean=True)
        assert not present
        assert (await client.take(Disconnect)).reason == 0x8E
        assert await until_one_place(site) == "b"


async def test_a_client_that_stays_costs_no_call(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        before = [await site.figures(name) for name in site.names]
        for number in range(1, 300):
            client.send(Publish("x", b"m", 2, number))
            await client.take(Pubrec)
            client.send(Pubrel(number))
            await client.take(Pubcomp)
        client.writer.close()
        _, present = await site.connect("a")
        assert present
        assert [await site.figures(name) for name in site.names] == before


async def test_a_member_that_was_removed_gets_no_session(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        client.writer.close()
        site.remove("b")
        await site.running["a"].logged("b: lost")
        _, present = await site.connect("b")
        assert not present
        assert await site.sessions("a") == ["c"]


async def test_status_and_log_of_two_gateways(tmp_path: Path) -> None:
    """The test reads `site status`, `session list`, /healthz and /metrics."""
    async with gateways(tmp_path, "a", "b", web=True) as site:
        (await site.connect("a"))[0].writer.close()
        await site.connect("b")
        metrics = await site.get("b", "/metrics")
        assert 'onceway_site_member_connected{member="a"} 1.0' in metrics
        assert "onceway_site_moved_in_total 1.0" in metrics
        assert "onceway_site_moved_out_total 1.0" in await site.get("a", "/metrics")
        await site.kill("b")
        await site.running["a"].logged("b: lost")
        health = await site.get("a", "/healthz")
        assert '"part": "site"' in health
        assert health.count('"what": "b: ') == 1
        found = await asyncio.to_thread(site.examined, "a")
        assert len([item for item in found if "b: " in item.what or item.part == "member b"]) == 1
        await site.connect("a", "other")
        assert 'onceway_site_silent_total{member="b"} 1.0' in await site.get("a", "/metrics")
