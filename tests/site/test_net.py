"""Links between members, over real TLS on loopback: the members that are admitted or refused, and
the log lines about links.
"""

import asyncio
import logging
import socket
import ssl
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop

from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.framing import Kind, pack, pack_number
from gateway.site.links import listening
from gateway.site.links import net as net_module
from gateway.site.links.link import MOST_UNSENT
from gateway.site.links.listening import MOST_HANDSHAKES
from gateway.site.pki.authority import authority_of, membership
from gateway.site.pki.removed import Removed
from gateway.site.pki.tls import expected_authority
from tests.service.process import free_port
from tests.site.members import SOON_S, Member, Site, as_member, dialled, joined, running, until
from tests.system.test_dial import silent

SILENT_S = 2.0
"""Time after which a member counts as silent, in seconds, as `[site]` promises."""
LOOK_S = 0.01
"""Pause between checks, in seconds. Time is counted in checks: if this event loop does not run, the
time without a check proves nothing about the member.
"""


@pytest.fixture(scope="module", params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Return the policy of asyncio's event loop or of uvloop's. The gateway uses uvloop. The two
    differ in their TLS code.
    """
    return request.param()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "gateway.site")
    return caplog


def said(log: pytest.LogCaptureFixture, *words: str) -> int:
    """Return the number of log lines that contain all these words."""
    return sum(all(word in line for word in words) for line in log.messages)


def remove(site: Site, name: str) -> None:
    """Remove a member as `onceway site remove` does."""
    folder = site.of(site.first)
    authority = authority_of(folder)
    assert authority is not None
    removed = Removed(folder, membership(folder))
    removed.heard([authority.remove(name, int(time.time()))])
    removed.save()


async def test_three_members_send_each_other_frames(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn", "cellar")
    async with joined(*map(site.config, site.addresses)) as (attic, barn, cellar):
        attic.net.send("barn", b"to the barn")
        cellar.net.send("attic", b"x" * (1 << 20))
        await until(lambda: barn.frames and attic.frames)
        assert barn.frames == [("attic", b"to the barn")]
        assert attic.frames == [("cellar", b"x" * (1 << 20))]
        assert sorted(barn.events) == [("joined", "attic"), ("joined", "cellar")]
        await until(lambda: attic.row("barn")["lag_ms"] is not None)
        row = attic.row("barn")
        assert (row["protocol"], row["problem"]) == (1, None)
        assert abs(row["clock_s"]) < 5
        assert row["until"] > f"{datetime.now(UTC) + timedelta(days=3600):%Y-%m-%d}"
        with pytest.raises(ValueError, match="a frame of"):
            attic.net.send("barn", b"x" * ((1 << 20) + 1))
    assert said(log, "barn: joined from 127.0.0.1:") == 2
    assert barn.events.count(("left", "attic")) == 1, "goodbye is left, too"


async def test_members_meet_past_a_silent_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, look_up = Site(tmp_path, "attic", "barn"), socket.getaddrinfo
    with silent("::1") as dead:
        row = (socket.AF_INET6, socket.SOCK_STREAM, 0, "", dead)

        def both(host: str, port: int, **more: int) -> list[object]:
            return [row, *look_up(host, port, **more)]

        monkeypatch.setattr(socket, "getaddrinfo", both)
        async with running(site.config("barn")), running(site.config("attic")) as (attic,):
            await until(lambda: attic.linked("barn"))


async def test_a_member_that_stops_is_lost_at_once_and_comes_back(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with joined(site.config("attic")) as (attic,):
            await until(lambda: barn.linked("attic"))
        await until(lambda: not barn.linked("attic"))
        assert said(log, "attic: lost: it has stopped") == 1
        barn.net.send("attic", b"dropped")
        async with running(site.config("attic")) as (attic,):
            await until(lambda: barn.linked("attic"))
            attic.net.send("barn", b"again")
            await until(lambda: barn.frames)
    assert barn.frames == [("attic", b"again")]


async def test_dialling_continues_without_a_listener(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("attic")) as (attic,):
        await until(lambda: attic.row("barn")["problem"])
        await asyncio.sleep(1)
        assert said(log, "barn: not joined: no program listens there") == 1
        async with running(site.config("barn")):
            await until(lambda: attic.linked("barn"))


async def test_a_member_that_hangs_is_silent_within_two_seconds(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            await attic.join()
            await until(lambda: barn.linked("attic"))
            looks = 0
            while barn.linked("attic"):
                await asyncio.sleep(LOOK_S)
                looks += 1
                assert looks * LOOK_S < SILENT_S + 0.3
        assert barn.events == [("joined", "attic"), ("left", "attic")]
        assert said(log, "attic: lost: it is silent") == 1
        assert barn.row("attic")["problem"] == "it is silent"
        assert barn.row("attic")["heard_s"] >= 1


async def test_a_member_that_never_reads_loses_its_link(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            wire = attic.writer.get_extra_info("socket")
            wire.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16
            )  # otherwise it grows to 32 MB
            await attic.join()
            await until(lambda: barn.linked("attic"))
            sent = 0
            while barn.linked("attic"):
                barn.net.send("attic", b"x" * (1 << 18))
                sent += 1 << 18
                if sent % (1 << 20) == 0:
                    attic.writer.write(pack_number(Kind.ALIVE, 2))
                    await asyncio.sleep(0.01)
                assert sent < 4 * MOST_UNSENT
        assert said(log, "attic: lost: it does not read what this gateway sends") == 1


async def test_a_second_connection_takes_the_place_of_the_first(tmp_path: Path) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        address, context = site.addresses["barn"], as_member(site, "attic")
        async with dialled(address, context) as old, dialled(address, context) as new:
            await old.join()
            await until(lambda: barn.linked("attic"))
            await new.join()
            await old.ended()
            await until(lambda: len(barn.events) == 3)
        assert barn.events[:3] == [("joined", "attic"), ("left", "attic"), ("joined", "attic")]


async def test_two_gateways_that_run_with_one_name_are_named(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        address, context = site.addresses["barn"], as_member(site, "attic")
        async with AsyncExitStack() as stack:
            for generation in ("0a", "0b", "0b", "0c", "0b"):  # a restart, then a second machine
                assert "two running gateways have its name" not in log.text
                last = await stack.enter_async_context(dialled(address, context))
                await last.join(generation=generation)
                await until(lambda it=generation: barn.row("attic")["generation"] == it)
        await until(lambda: said(log, "attic: lost: two running gateways have its name"))


async def test_another_sites_certificate_is_refused_on_both_sides(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path / "ours", "attic", "barn")
    other = Site(tmp_path / "theirs", "attic", "barn")
    other.addresses = site.addresses
    async with running(site.config("barn"), other.config("attic")) as (barn, attic):
        await until(lambda: attic.row("barn")["problem"])
        assert attic.row("barn")["problem"] == "it shows another site's certificate"
        async with dialled(site.addresses["barn"], _blind(as_member(other, "attic"))) as peer:
            await peer.ended()
        await until(lambda: said(log, "a connection from 127", "another site's certificate"))
        assert barn.events == attic.events == []


def _blind(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let the context accept any certificate."""
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize(
    ("days", "words"),
    [(3, "its certificate is not valid yet, by this gateway's clock"), (-4000, "has expired")],
)
async def test_a_clock_that_is_off_is_named(
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    days: int,
    words: str,
) -> None:
    # the first one could renew its own certificate
    site = Site(tmp_path, "cellar", "attic", "barn")
    with monkeypatch.context() as patch:
        wrong = datetime.now(UTC) + timedelta(days=days)
        patch.setattr("gateway.site.pki.authority._now", lambda: wrong)
        site.issue("barn")
    async with running(*map(site.config, ("attic", "barn"))) as (attic, _):
        await until(lambda: attic.row("barn")["problem"])
        assert words in attic.row("barn")["problem"]
        assert said(log, "barn: not joined", words) == 1
    site.issue("barn")
    with monkeypatch.context() as patch:
        patch.setattr("gateway.site.pki.authority._now", lambda: wrong)
        site.issue("attic")
    async with running(*map(site.config, ("attic", "barn"))):
        await until(lambda: said(log, "a connection from 127", words))


async def test_clocks_that_differ_are_reported(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            attic.greet(clock=time.time() - 500)
            await attic.hear(Kind.GREETING)
            attic.writer.write(pack_number(Kind.ALIVE, 1))
            await until(lambda: barn.linked("attic"))
        assert said(log, "attic: its clock is 50", " s behind this gateway's") == 1
        assert "behind this gateway's" in barn.row("attic")["problem"]


async def test_a_clock_that_is_set_is_compared_again(tmp_path: Path) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with joined(*map(site.config, site.addresses)) as (attic, barn):
        link = attic.net._far["barn"].link
        assert link is not None
        link.set_off -= net_module.CLOCK_S
        await until(lambda: barn.events.count(("joined", "attic")) == 2)
        await until(lambda: attic.linked("barn"))
        assert barn.events.count(("left", "attic")) == 1
        assert attic.row("barn")["problem"] in (None, "this gateway's clock was set")


async def test_members_with_other_lists_are_silent_to_one_another(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """attic, barn and den list den; cellar does not. cellar gets a link to none of them."""
    site = Site(tmp_path, "attic", "barn", "cellar", "den")
    fewer = {name: at for name, at in site.addresses.items() if name != "den"}
    full = [site.config(name) for name in ("attic", "barn", "den")]
    words = "[site.members] differs: only {} has den. Make it the same at all members"
    async with joined(*full) as (attic, barn, den):
        async with running(site.config("cellar", members=fewer)) as (cellar,):
            for one in (attic, barn):
                text = words.format(one.name)
                await until(lambda: text in (cellar.row(one.name)["problem"] or ""))  # noqa: B023
                await until(lambda: text in (one.row("cellar")["problem"] or ""))  # noqa: B023
                assert said(log, "cellar: not joined: ", text) == 1
                assert said(log, f"{one.name}: not joined: ", text) == 1
            await until(lambda: "not in [site.members]" in (den.row("cellar")["problem"] or ""))
            assert cellar.events == []
            assert attic.linked("barn")
        async with joined(site.config("cellar")) as (cellar,):
            for one in (attic, barn, den):
                await until(lambda: cellar.linked(one.name) and one.linked("cellar"))  # noqa: B023


async def test_different_copies_are_named_at_both_ends(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with joined(site.config("attic", copies=2), site.config("barn")) as (attic, barn):
        text = "[site] copies differs: {} has {}, {} {}. Make it the same at all members"
        assert attic.row("barn")["problem"] == text.format("attic", 2, "barn", 1)
        assert barn.row("attic")["problem"] == text.format("barn", 1, "attic", 2)
        assert said(log, "copies differs") == 2


async def test_two_differences_of_one_link_are_both_named(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with (
        running(site.config("barn", copies=2)) as (barn,),
        dialled(site.addresses["barn"], as_member(site, "attic")) as attic,
    ):
        await attic.join(copies=1, clock=time.time() - 500)
        await until(lambda: barn.linked("attic"))
        for words in ("barn has 2, attic 1.", " s behind this gateway's"):
            assert words in barn.row("attic")["problem"]
            assert said(log, words) == 1


async def test_leases_that_do_not_fit_make_silent(tmp_path: Path) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            attic.greet(members=["attic", "barn"], lease=0.9, promise=1.0)
            assert b"update Onceway at all members" in await attic.hear(Kind.BYE)
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            await attic.join(members=["barn", "attic"], lease=0.5, promise=1.0)
            await until(lambda: barn.linked("attic"))


async def test_address_that_answers_with_another_name(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn", "cellar")
    wrong = site.addresses | {"barn": site.addresses["cellar"], "cellar": "127.0.0.1:1"}
    async with running(site.config("attic", members=wrong), site.config("cellar")) as (attic, _):
        await until(lambda: said(log, "barn: not joined", "is 'cellar', not 'barn'"))
        assert attic.events == []


async def test_an_address_that_is_no_name_of_a_machine(tmp_path: Path) -> None:
    site = Site(tmp_path, "attic", "barn")
    wrong = site.addresses | {"barn": "a..b:8884"}
    async with running(site.config("attic", members=wrong)) as (attic,):
        await until(lambda: attic.row("barn")["problem"])
        assert "no valid host name" in attic.row("barn")["problem"]


async def test_a_name_that_the_configuration_does_not_have(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn", "cellar")
    fewer = {name: site.addresses[name] for name in ("barn", "cellar")}
    async with running(site.config("barn", members=fewer)) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            assert b"'attic' is not in [site.members] of barn" in await attic.hear(Kind.BYE)
        await until(lambda: said(log, "of attic from 127", "not in [site.members]"))
        assert "gateways that try to join: attic" in barn.row("barn")["problem"]
        async with dialled(site.addresses["barn"], as_member(site, "cellar")) as cellar:
            assert b"it is barn that dials cellar" in await cellar.hear(Kind.BYE)
        async with dialled(site.addresses["barn"], as_member(site, "barn")) as copy:
            assert b"a copy of this machine is running" in await copy.hear(Kind.BYE)
        assert barn.events == []


async def test_an_older_protocol_is_named(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            attic.greet(version=0, oldest=0)
            words = b"barn speaks version 1, attic 0. Update Onceway at attic"
            assert words in await attic.hear(Kind.BYE)
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            attic.greet(version=9, oldest=2)
            assert b"Update Onceway at barn" in await attic.hear(Kind.BYE)
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as attic:
            attic.greet(version=2, oldest=1, something="new")
            await attic.hear(Kind.GREETING)
        assert barn.events == []
    assert said(log, "attic: not joined", "barn speaks version 1, attic 0") == 1


async def test_a_removed_member_can_do_nothing_at_any_member_that_has_heard_of_it(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn", "cellar")
    async with joined(*map(site.config, site.addresses)) as (attic, barn, cellar):
        remove(site, "cellar")
        await until(lambda: not attic.linked("cellar") and not barn.linked("cellar"))
        await until(lambda: said(log, "cellar: lost: it was removed from the site") == 2)
        # on a busy machine, a link may have begun twice before that
        before = [member.events.count(("joined", "cellar")) for member in (attic, barn)]
        assert ("left", "cellar") in barn.events
        await until(lambda: "removed" in (cellar.row("attic")["problem"] or ""))
        await until(lambda: said(log, "the other members refuse this gateway"))
        await asyncio.sleep(0.5)  # the others still dial it
        assert cellar.row("cellar")["problem"]
        after = [member.events.count(("joined", "cellar")) for member in (attic, barn)]
        assert after == before, "a removed member has joined again"
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as peer:
            await peer.join()  # the first gateway sends no list now: barn has its own
            assert not barn.net._removed.covers(membership(site.of("attic")).certificate)
        assert barn.net._removed.covers(membership(site.of("cellar")).certificate)
    site.issue("cellar", after=int(time.time()))
    async with joined(*map(site.config, site.addresses)):
        pass


async def test_a_removal_is_heard_of_at_the_next_greeting_and_cannot_be_forged(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn", "cellar")
    authority = authority_of(site.of("attic"))
    assert authority is not None
    word = authority.remove("cellar", int(time.time())).to_json()
    async with joined(site.config("barn"), site.config("cellar")) as (barn, cellar):
        context = as_member(site, "attic")
        async with dialled(site.addresses["barn"], context) as attic:
            attic.greet(removed=[word | {"name": "barn"}])
            assert b"did not say that 'barn' is removed" in await attic.hear(Kind.BYE)
        assert barn.linked("cellar")
        async with dialled(site.addresses["barn"], context) as attic:
            attic.greet(removed=[word])
            await attic.hear(Kind.GREETING)
            await until(lambda: not cellar.linked("barn"))
    gone = membership(site.of("cellar")).certificate
    assert Removed(site.of("barn"), membership(site.of("barn"))).covers(gone), "it is on the disk"


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 70_000, b"\x16\x03\x01\xff"])
async def test_garbage_before_the_handshake(
    tmp_path: Path, log: pytest.LogCaptureFixture, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_S", 0.5)
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], None) as peer:
            peer.writer.write(data)
            async with asyncio.timeout(SOON_S):
                await _end_of(peer.reader)
        await until(lambda: said(log, "a connection from 127", "was refused"))
        async with running(site.config("attic")):
            await until(lambda: barn.linked("attic"))


async def _end_of(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff" * 100, "a frame of 4294967295 bytes"),
        (pack(Kind.GREETING, b"{}")[:4] + b"\x63{}", "a frame of the unknown kind 99"),
        (pack(Kind.GREETING, b"not JSON"), "JSON"),
        (pack(Kind.GREETING, b"[" * 100_000), "JSON"),
        (pack(Kind.FRAME, b"too early"), "a frame of kind FRAME where none is expected"),
    ],
)
async def test_garbage_in_place_of_a_greeting(
    tmp_path: Path, log: pytest.LogCaptureFixture, data: bytes, words: str
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as peer:
            peer.writer.write(data)
            assert words.encode() in await peer.hear(Kind.BYE)
        await until(lambda: said(log, "attic: not joined", words))
        assert barn.events == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("generation", "\x1b[2Jowned"),
        ("clock", float("nan")),
        ("clock", 1e300),
        ("version", 10**400),
        ("oldest", -1),
    ],
)
async def test_a_greeting_that_people_could_not_be_shown_is_refused(
    tmp_path: Path, log: pytest.LogCaptureFixture, field: str, value: object
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as peer:
            peer.greet(**{field: value})
            assert field.encode() in await peer.hear(Kind.BYE)
        await until(lambda: said(log, "attic: not joined", field))
        assert all(len(record.getMessage()) < 500 for record in log.records)
        assert barn.events == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x20\x00\x00\x03", "a frame of 2097152 bytes"),
        (pack(Kind.ALIVE, b"odd"), "a keep-alive of 3 bytes"),
        (pack(Kind.REMOVED, b"{}"), "not a list of removed members"),
        (pack(Kind.GREETING, b"{}"), "kind GREETING where none is expected"),
        (pack(Kind.FRAME, b"what the core refuses"), "a bad frame"),
    ],
)
async def test_garbage_from_a_member_ends_its_link_with_one_line(
    tmp_path: Path, log: pytest.LogCaptureFixture, data: bytes, words: str
) -> None:
    site = Site(tmp_path, "attic", "barn", "cellar")
    async with joined(site.config("barn"), site.config("cellar")) as (barn, cellar):
        barn.refuse = SiteError("a bad frame")
        async with dialled(site.addresses["barn"], as_member(site, "attic")) as peer:
            await peer.join()
            peer.writer.write(data)
            assert words.encode() in await peer.hear(Kind.BYE)
        await until(lambda: ("left", "attic") in barn.events)
        assert said(log, "attic: lost", words) == 1
        assert barn.linked("cellar")
        assert ("left", "barn") not in cellar.events


async def test_strangers_cost_a_handshake_and_keep_no_member_out(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    async with running(site.config("barn")) as (barn,):
        strangers = [
            await asyncio.open_connection("127.0.0.1", barn.net.port)
            for _ in range(MOST_HANDSHAKES * 2)
        ]
        await until(lambda: len(barn.net._listener.handshakes) == MOST_HANDSHAKES)
        for reader, _ in strangers[:MOST_HANDSHAKES]:
            await asyncio.wait_for(_end_of(reader), 5)
        async with running(site.config("attic")):
            await until(lambda: barn.linked("attic"))
        for _, writer in strangers:
            writer.transport.abort()
        await until(lambda: not barn.net._listener.handshakes)
    assert len(log.messages) < 10


@pytest.mark.parametrize("absent", ["192.0.2.1", "[2001:db8::1]", "[fe80::1%none0]"])
async def test_a_member_whose_own_address_is_absent_runs_and_logs_it(
    absent: str, tmp_path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "AGAIN_S", 0.01)
    site = Site(tmp_path, "attic", "barn")
    late = site.config("attic", bind=f"{absent}:{free_port()}")
    async with running(late, site.config("barn")) as (attic, barn):
        await until(lambda: attic.linked("barn") and barn.linked("attic"))
        assert attic.row("attic")["problem"].startswith(absent)
        assert "does not have that address" in attic.row("attic")["problem"]
        assert barn.row("barn")["problem"] is None
        assert said(log, absent, "the rest of the gateway runs") == 1
        if "%" in absent:  # the network interface appears
            attic.net._listener._config = site.config("attic")
            await until(lambda: attic.net.port > 0)
            assert attic.row("attic")["problem"] is None


async def test_guests_without_an_invitation_and_garbage_are_some_lines(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "attic", "barn")
    guest = expected_authority(membership(site.of("attic")).authority)
    async with running(site.config("attic")) as (attic,):
        for number in range(40):
            async with dialled(site.addresses["attic"], guest) as peer:
                peer.say(Kind.JOIN, b'{"id": "%d", "name": "%s"}' % (number, b"x" * number * 100))
                await peer.ended()
            async with dialled(site.addresses["attic"], None) as peer:
                peer.writer.write(b"GET /%d HTTP/1.1\r\n\r\n" % number)
                await _end_of(peer.reader)
        await until(lambda: not attic.net._listener.handshakes)
    assert said(log, "an invited gateway at 127.0.0.1", "refused") == 1
    assert len(log.messages) <= 8, log.messages
    assert all(len(message) < 400 for message in log.messages)


@pytest.mark.parametrize("guest", [True, False])
async def test_silent_peer_after_the_handshake_is_dropped(
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    guest: bool,
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_S", 0.5)
    site = Site(tmp_path, "attic", "barn")
    own = membership(site.of("attic"))
    context = expected_authority(own.authority) if guest else as_member(site, "attic")
    async with running(site.config("barn")) as (barn,):
        async with dialled(site.addresses["barn"], context) as peer:
            await peer.ended()
        await until(lambda: said(log, "it does not answer"))
        assert not barn.net._listener.handshakes
        if guest:
            async with dialled(site.addresses["barn"], context) as peer:
                peer.greet()
                assert b"it shows no certificate" in await peer.hear(Kind.BYE)


async def test_requirements_of_a_member_start(tmp_path: Path) -> None:
    site = Site(tmp_path, "attic", "barn")
    member = Member(site.config("attic", folder=str(tmp_path / "empty")))
    with pytest.raises(OncewayError, match="no certificate of a site") as caught:
        await member.net.start()
    assert "onceway site init" in str(caught.value)
    with pytest.raises(OncewayError, match="belongs to 'barn', but this gateway is 'attic'"):
        await Member(site.config("attic", folder=str(site.of("barn")))).net.start()
    port = free_port()
    async with running(site.config("barn", bind=f"127.0.0.1:{port}")):
        with pytest.raises(OncewayError, match="cannot listen for the site's other members"):
            await Member(site.config("attic", bind=f"127.0.0.1:{port}")).net.start()
    (site.of("attic") / "removed.json").write_text("{")
    with pytest.raises(OncewayError, match="removed members is not JSON"):
        await Member(site.config("attic")).net.start()
    (site.of("barn") / "member.pem").write_text("no PEM")
    with pytest.raises(OncewayError, match="damaged"):
        await Member(site.config("barn")).net.start()
