"""Links of members that start, over real TLS on loopback: knocks, and the time of the next dial."""

import asyncio
import json
import logging
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.site.framing import Kind, pack_number, unpack_number
from gateway.site.links import dialling
from gateway.site.links import net as net_module
from gateway.site.links.link import SILENT
from gateway.site.pki.authority import membership
from gateway.site.pki.tls import serving
from tests.service.process import free_port
from tests.site.members import Peer, Site, as_member, dialled, joined, running, until

LONG_S = 600.0
"""A time that no test reaches, in seconds."""


@pytest.fixture(scope="module", params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Return the policy of asyncio's event loop, or that of uvloop, which the gateway uses. The TLS
    code of the two differs.
    """
    return request.param()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "gateway.site")
    return caplog


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the pause after a failed dial so long that a member does not dial again by itself."""
    monkeypatch.setattr(dialling, "_FIRST_WAIT_S", LONG_S)
    monkeypatch.setattr(dialling, "MOST_WAIT_S", LONG_S)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, "attic", "barn")


async def still(peer: Peer) -> None:
    await asyncio.sleep(LONG_S)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("member", "comes"),
    [("attic", "cellar"), ("cellar", "attic")],
    ids=["dials", "knocks"],
)
async def test_when_a_member_joins_the_other_absent_ones_are_tried_at_once(
    tmp_path: Path, member: str, comes: str
) -> None:
    """After one link is back, the member dials the other absent members at once, because the
    network may be back. barn listens, but sends nothing and does not knock.
    """
    site = Site(tmp_path, "attic", "barn", "cellar")
    nowhere = site.addresses | {"barn": f"127.0.0.1:{free_port()}"}
    async with running(site.config(member)) as (one,):
        await until(lambda: member == "cellar" or one.row("barn")["problem"])
        await asyncio.sleep(0.3)
        other = site.config(comes, members=nowhere)
        async with answering(site, "barn", still) as came, running(other):
            await until(lambda: one.linked(comes))
            await until(lambda: came)


@asynccontextmanager
async def answering(
    site: Site, name: str, talk: Callable[[Peer], object]
) -> AsyncIterator[list[Peer]]:
    """Run a server at a member's address. The coroutine `talk` handles each connection. Yield the
    list of connections, which grows.
    """
    came: list[Peer] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(Peer(reader, writer))
        try:
            await talk(came[-1])  # type: ignore[misc]
        except (OSError, AssertionError):
            pass
        finally:
            writer.transport.abort()

    host, _, port = site.addresses[name].rpartition(":")
    context = serving(site.of(name), membership(site.of(name)))
    server = await asyncio.start_server(serve, host, int(port), ssl=context)
    try:
        yield came
    finally:
        server.close()
        for peer in came:
            peer.writer.transport.abort()


def greeted(peer: Peer, generation: str = "0" * 16) -> None:
    greeting = {
        "version": 1,
        "oldest": 1,
        "generation": generation,
        "clock": time.time(),
        "removed": [],
    }
    peer.say(Kind.GREETING, json.dumps(greeting).encode())


async def knock(site: Site, by: str, at: str) -> bytes:
    """Knock at a member. Return the reason in its BYE."""
    async with dialled(site.addresses[at], as_member(site, by)) as peer:
        said = await peer.hear(Kind.BYE)
        await peer.ended()
        return said


@pytest.mark.usefixtures("patient")
async def test_a_member_that_starts_is_dialled_at_once(
    site: Site, log: pytest.LogCaptureFixture
) -> None:
    async with running(site.config("attic")) as (attic,):
        await until(lambda: attic.row("barn")["problem"])
        async with running(site.config("barn")) as (barn,):
            await until(lambda: attic.linked("barn") and barn.linked("attic"))
    assert "barn: not joined: it is attic" not in log.text
    assert "was refused" not in log.text, "a knock is nothing that goes wrong"


@pytest.mark.usefixtures("patient")
async def test_members_that_start_together_have_one_link(site: Site) -> None:
    async with joined(*map(site.config, site.addresses)) as (attic, barn):
        await asyncio.sleep(0.3)
        assert attic.events == [("joined", "barn")]
        assert barn.events == [("joined", "attic")]


async def test_a_knock_changes_nothing_about_a_link_that_is_alive(site: Site) -> None:
    async with joined(*map(site.config, site.addresses)) as (attic, barn):
        for _ in range(10):
            assert b"the knock is heard" in await knock(site, "barn", "attic")
        await asyncio.sleep(0.3)
        assert attic.events == [("joined", "barn")]
        assert barn.events == [("joined", "attic")]


async def test_a_knock_ends_a_link_on_which_nothing_comes(
    site: Site, log: pytest.LogCaptureFixture
) -> None:
    """The machine of barn had a power cut. It is running again before attic's timeout for the old
    link has passed.
    """
    async with joined(*map(site.config, site.addresses)) as (attic, _):
        link = attic.net._far["barn"].link
        assert link is not None
        knocking = asyncio.create_task(knock(site, "barn", "attic"))
        while not knocking.done():
            link.heard = asyncio.get_running_loop().time() - 1.0
            await asyncio.sleep(0)
        await until(lambda: len(attic.events) == 3)
        assert attic.events[1:] == [("left", "barn"), ("joined", "barn")]
    assert f"barn: lost: {SILENT}" in log.text


@pytest.mark.usefixtures("patient")
async def test_a_flood_of_knocks_has_a_bound(site: Site) -> None:
    """attic dials barn at most once in each _KNOCK_S, however many knocks arrive."""

    async def refuse(peer: Peer) -> None:
        peer.say(Kind.BYE, b"not now")

    async with answering(site, "barn", refuse) as came, running(site.config("attic")):
        await until(lambda: came)
        begun = time.monotonic()
        for _ in range(30):
            await knock(site, "barn", "attic")
        await until(lambda: len(came) > 1)
        bound = 2 + (time.monotonic() - begun) / dialling._KNOCK_S
        assert len(came) <= bound


@pytest.mark.usefixtures("patient")
async def test_a_knock_ends_an_attempt_that_waits_for_a_machine_that_was_off(
    site: Site, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dialling, "DIAL_S", LONG_S)
    monkeypatch.setattr(dialling, "_SLOW_S", 0.0)
    monkeypatch.setattr(dialling, "_KNOCK_S", 0.0)
    came: list[asyncio.StreamWriter] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)
        while await reader.read(4096):
            pass

    host, _, port = site.addresses["barn"].rpartition(":")
    server = await asyncio.start_server(hang, host, int(port))
    async with running(site.config("attic")):
        await until(lambda: len(came) == 1)
        await knock(site, "barn", "attic")
        await until(lambda: len(came) == 2)
        await knock(site, "barn", "attic")
        await asyncio.sleep(0.3)
        assert len(came) == 2, "one that follows a knock goes on"
    server.close()
    for writer in came:
        writer.transport.abort()
    assert "barn: not joined" not in log.text


async def test_a_knock_ends_no_attempt_that_is_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer accepts the connection, but sends its greeting only after _SLOW_S, as on a busy
    machine.
    """
    monkeypatch.setattr(dialling, "_SLOW_S", 0.0)
    monkeypatch.setattr(dialling, "_KNOCK_S", 0.0)
    rested = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.hear(Kind.GREETING)
        await rested.wait()
        greeted(peer)
        await peer.ended()

    async with answering(site, "barn", slow) as came, running(site.config("attic")) as (attic,):
        await until(lambda: came)
        for _ in range(3):
            await knock(site, "barn", "attic")
        await asyncio.sleep(0.2)
        rested.set()
        await until(lambda: attic.events)
        assert (attic.events, len(came)) == ([("joined", "barn")], 1)


async def test_attempt_that_joins_as_it_ends_is_a_link(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, a knock may end an attempt that has just joined."""
    connect = dialling.Dialling._connect

    async def late(self: dialling.Dialling, *arguments: Any) -> None:
        await connect(self, *arguments)
        raise TimeoutError

    monkeypatch.setattr(dialling.Dialling, "_connect", late)
    async with joined(*map(site.config, site.addresses)) as (attic, barn):
        await asyncio.sleep(0.5)
        assert attic.events == [("joined", "barn")]
        assert barn.events == [("joined", "attic")]


async def test_a_member_of_0_2_0_refuses_a_knock_and_is_left_alone(
    site: Site, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause, the old member at attic dials barn itself."""
    monkeypatch.setattr(dialling, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(dialling, "MOST_WAIT_S", 0.01)

    async def refuse(peer: Peer) -> None:
        peer.say(Kind.REMOVED, b"[]")
        peer.say(Kind.BYE, b"it is attic that dials barn, not the other way round")
        peer.writer.close()
        await peer.ended()

    async with answering(site, "attic", refuse) as came, running(site.config("barn")) as (barn,):
        await until(lambda: came)
        await asyncio.sleep(0.5)
        assert len(came) == 1
        assert barn.row("attic")["problem"] is None
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            await attic.join()
            await until(lambda: barn.linked("attic"))
    assert "not joined" not in log.text


async def test_a_knock_at_a_member_that_does_not_know_us_tells_both(
    site: Site, log: pytest.LogCaptureFixture
) -> None:
    alone = {"attic": site.addresses["attic"]}
    configs = site.config("attic", members=alone), site.config("barn")
    async with running(*configs) as (attic, barn):
        await until(lambda: barn.row("attic")["problem"])
        assert "'barn' is not in [site.members] of attic" in barn.row("attic")["problem"]
        await until(lambda: "of barn from 127.0.0.1" in log.text)
        assert attic.events == barn.events == []


async def test_a_stranger_cannot_knock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stranger has no certificate, or one of another site."""
    site = Site(tmp_path / "ours", "attic", "barn")
    other = Site(tmp_path / "theirs", "attic", "barn")
    heard: list[str] = []
    monkeypatch.setattr(
        dialling.Dialling, "knocked", lambda self, far, late: heard.append(far.name)
    )
    async with running(site.config("attic")):
        stranger = as_member(other, "barn")
        stranger.verify_mode = ssl.CERT_NONE
        for context in (None, stranger):
            async with dialled(site.addresses["attic"], context) as peer:
                peer.say(Kind.GREETING, b"{}")
                await peer.ended()
        assert not heard
        await knock(site, "barn", "attic")
        assert heard == ["barn"]


async def test_knock_of_a_removed_member_is_ignored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(
        dialling.Dialling, "knocked", lambda self, far, late: heard.append(far.name)
    )
    async with running(site.config("attic")) as (attic,):
        monkeypatch.setattr(attic.net._removed, "covers", lambda certificate: True)
        assert b"removed from the site" in await knock(site, "barn", "attic")
        assert not heard


async def _answers(peer: Peer) -> None:
    """Join, answer one echo request, and end the connection."""
    await peer.hear(Kind.GREETING)
    greeted(peer, secrets.token_hex(8))
    await peer.hear(Kind.ALIVE)  # sent by joining
    question = await peer.hear(Kind.ALIVE)
    peer.writer.write(pack_number(Kind.ECHO, unpack_number(question)))
    await asyncio.sleep(0.05)


async def _says_nothing(peer: Peer) -> None:
    """Join, and end the connection."""
    await peer.hear(Kind.GREETING)
    greeted(peer, secrets.token_hex(8))
    await peer.hear(Kind.ALIVE)


@pytest.mark.parametrize(("talk", "forgiven"), [(_answers, True), (_says_nothing, False)])
async def test_backoff_is_forgiven_by_an_answered_question(
    site: Site, monkeypatch: pytest.MonkeyPatch, talk: Callable[[Peer], object], forgiven: bool
) -> None:
    """The link breaks soon after each dial. The pauses between dials grow, unless a query was
    answered on the link. forgiven: whether the pauses stay short.
    """
    waits: list[float] = []
    monkeypatch.setattr(net_module, "TICK_S", 0.02)
    timeout = asyncio.timeout

    def noted(seconds: float) -> asyncio.Timeout:
        if seconds < dialling.DIAL_S / 2:
            waits.append(seconds)
            seconds = 0.01
        return timeout(seconds)

    monkeypatch.setattr(dialling.asyncio, "timeout", noted)
    async with answering(site, "barn", talk), running(site.config("attic")) as (attic,):
        await until(lambda: attic.events.count(("left", "barn")) >= 6)
    monkeypatch.undo()
    longest = max(waits[:5])
    assert (longest <= 0.12) is forgiven, waits


async def test_a_member_that_has_stopped_is_distinguished_from_one_that_is_lost(site: Site) -> None:
    async with running(site.config("barn")) as (barn,):
        async with running(site.config("attic")):
            await until(lambda: barn.linked("attic"))
            assert not barn.net.has_stopped("attic")
        await until(lambda: not barn.linked("attic"))
        assert barn.net.has_stopped("attic")
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as peer:
            await peer.join(generation="0b")
            await until(lambda: barn.linked("attic"))
            assert not barn.net.has_stopped("attic")
        await until(lambda: not barn.linked("attic"))
        assert not barn.net.has_stopped("attic"), "its connection broke"
