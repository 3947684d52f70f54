"""Members that one command at the first gateway adds, moves or removes, without a restart of any
other member.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.config import load
from gateway.config.site_members import FILE, unlike
from gateway.doctor.finding import State
from gateway.doctor.site import site as doctor
from gateway.errors import OncewayError
from gateway.mqtt.packets import Publish, Suback, Subscribe, Subscription
from gateway.site.cli import app
from gateway.site.errors import SiteError
from gateway.site.links.link import Greeting
from gateway.site.pki.authority import membership
from gateway.site.pki.invitation import invite
from gateway.site.pki.joining import join
from gateway.site.pki.member_list import Lists, MemberList, change, sign
from gateway.site.strict import parse
from tests.service.process import free_port
from tests.site.gateways import SOON_S, Gateways, end, gateways
from tests.site.members import Site

TWO = {"a": "h:1", "b": "h:2"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, "a", "b")


def lists(site: Site, name: str) -> Lists:
    return Lists(site.of(name), membership(site.of(name)))


def test_signed_list_is_taken_over_and_kept(site: Site) -> None:
    made = sign(site.of("a"), {**TWO, "c": "h:3"})
    known = lists(site, "b")
    assert known.heard(MemberList.model_validate_json(made.model_dump_json()))
    assert not known.heard(made), "it is known"
    known.save()
    again = lists(site, "b")
    assert again.refresh()
    assert again.newest == made
    assert not again.refresh(), "the file is the same"


def test_later_list_is_newer_at_any_clock(site: Site) -> None:
    numbers = [sign(site.of("a"), TWO).number for _ in range(5)]
    assert numbers == sorted(set(numbers))


def test_two_lists_of_one_second_end_as_one_at_all_members(site: Site) -> None:
    """Two machines with the same authority sign different lists with the same number in one second.
    For example, one is a restored copy of the other.
    """
    one = sign(site.of("a"), TWO)
    (site.of("a") / FILE).unlink()
    while (two := sign(site.of("a"), {**TWO, "c": "h:3"})).number != one.number:
        (site.of("a") / FILE).unlink()
        one = sign(site.of("a"), TWO)
        (site.of("a") / FILE).unlink()
    found = set()
    for made in ((one, two), (two, one)):
        (site.of("b") / FILE).unlink(missing_ok=True)
        for item in made:
            known = lists(site, "b")
            known.heard(item)
            known.save()
        found.add((site.of("b") / FILE).read_text())
    assert len(found) == 1


def test_older_list_undoes_nothing(site: Site) -> None:
    old, new = sign(site.of("a"), TWO), sign(site.of("a"), {**TWO, "c": "h:3"})
    known = lists(site, "b")
    assert known.heard(new)
    known.save()
    assert not known.heard(old)
    stale = lists(site, "b")
    assert stale.heard(old)
    stale.save()
    assert json.loads((site.of("b") / FILE).read_bytes())["members"] == new.members


@pytest.mark.parametrize(
    "forged",
    [
        {"members": {**TWO, "thief": "h:9"}},
        {"members": {"a": "h:1"}},
        {"members": {"a": "h:2", "b": "h:1"}},
        {"number": (1 << 53) - 1},
        {"signature": ""},
        {"signature": "§"},
        {"signature": "AAAA"},
    ],
)
def test_list_that_the_authority_did_not_sign_changes_nothing(
    site: Site, forged: dict[str, Any]
) -> None:
    made = sign(site.of("a"), TWO).model_copy(update={"number": 1 << 40} | forged)
    known = lists(site, "b")
    with pytest.raises(SiteError, match="did not sign"):
        known.heard(made)
    assert known.newest is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"members": 3}', b"\xff", b"[" * 100_000])
def test_damaged_file_is_named_and_not_used(site: Site, text: bytes, tmp_path: Path) -> None:
    (site.of("b") / FILE).write_bytes(text)
    with pytest.raises(OncewayError, match=FILE):
        lists(site, "b").refresh()
    config = tmp_path / "b.toml"
    config.write_text(
        f'[gateway]\nname = "b"\ndata = "{tmp_path / "b"}"\n[site.members]\na = "h:1"\nb = "h:2"\n'
    )
    assert load(config).site.members == TWO  # type: ignore[union-attr]
    sign(site.of("a"), TWO)  # a damaged file of the first gateway is replaced


def test_file_that_differs_from_the_list_is_named(site: Site, tmp_path: Path) -> None:
    config = tmp_path / "b.toml"
    text = f'[gateway]\nname = "b"\ndata = "{tmp_path / "b"}"\n[site.members]\n'
    config.write_text(text + 'a = "h:1"\nb = "h:2"\nd = "h:4"\n')
    assert unlike(load(config)) is None, "there is no list"
    known = lists(site, "b")
    known.heard(sign(site.of("a"), {"a": "h:9", "b": "h:2", "c": "h:3"}))
    known.save()
    told = unlike(load(config)) or ""
    assert (
        "c is only in the list, d is only in the file, the file has a at h:1, and the list has it"
        " at h:9" in told
    )
    (finding,) = [found for found in doctor(load(config)) if "signed" in found.what]
    assert (finding.what, finding.state) == (told, State.WARNING)
    output = CliRunner().invoke(app, ["status", "--config", str(config)]).output
    assert told in output
    config.write_text(text + 'a = "h:9"\nb = "h:2"\nc = "h:3"\n')
    assert unlike(load(config)) is None
    assert "signed" not in CliRunner().invoke(app, ["status", "--config", str(config)]).output


def test_list_without_this_gateway_changes_nothing(site: Site, tmp_path: Path) -> None:
    config = tmp_path / "b.toml"
    config.write_text(
        f'[gateway]\nname = "b"\ndata = "{tmp_path / "b"}"\n[site.members]\na = "h:1"\nb = "h:2"\n'
    )
    known = lists(site, "b")
    for members, used in (
        ({"a": "h:1", "c": "h:3"}, TWO),
        ({"a": "h:7", "b": "h:8", "c": "h:3"}, {"a": "h:7", "b": "h:8", "c": "h:3"}),
    ):
        known.heard(sign(site.of("a"), members))
        known.save()
        assert load(config).site.members == used  # type: ignore[union-attr]


def test_other_gateways_cannot_change_the_members(site: Site) -> None:
    with pytest.raises(OncewayError, match="authority is on another gateway"):
        change(site.of("b"), TWO)


@pytest.mark.parametrize("wrong", [{"a": "h:1", "b": "h:1"}, {"a": "h"}, {}, {"a" * 65: "h:1"}])
def test_impossible_members_are_refused(site: Site, wrong: dict[str, str]) -> None:
    with pytest.raises(OncewayError):
        change(site.of("a"), wrong)
    assert not (site.of("a") / FILE).exists()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "-1", "0", "1e300"])
@pytest.mark.parametrize("field", ["lease", "promise", "copies", "clock"])
def test_impossible_number_in_a_greeting_is_refused(field: str, number: str) -> None:
    fields = {"version": "1", "oldest": "1", "generation": '""', "clock": "0", "removed": "[]"}
    text = ",".join(f'"{key}":{value}' for key, value in (fields | {field: number}).items())
    if number == "0" and field in ("copies", "clock"):
        parse(Greeting, f"{{{text}}}".encode(), 1000)
        return
    with pytest.raises(SiteError):
        parse(Greeting, f"{{{text}}}".encode(), 1000)


async def begin(found: Gateways, name: str, address: str) -> None:
    """Invite a gateway at this address, let it join, and start it."""
    config = load(found.config("a"))
    assert config.site is not None
    made = invite(found.site.of("a"), config.site, "a", name, 24, address)
    data = found.site.folder / name
    data.mkdir()
    members = await asyncio.to_thread(join, data / "site", made, name)
    assert members[name] == address
    lines = "\n".join(f'{other} = "{at}"' for other, at in members.items())
    found.config(name).write_text(
        f'[gateway]\nname = "{name}"\ndata = "{data}"\n'
        '[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\nrefuse = "reason code"\n'
        f'[site]\nbind = "{address}"\n[site.members]\n{lines}\n'
    )
    await found.start(name)


async def names(found: Gateways, name: str, *wanted: str) -> None:
    """Wait until the status of the gateway `name` lists exactly the other members `wanted`, and the
    gateway has a lease from each.
    """
    async with asyncio.timeout(SOON_S):
        while True:
            rows = (await found.rows(name))[1:]
            if (
                sorted(row["name"] for row in rows if row["lease"])
                == sorted(wanted)
                == sorted(row["name"] for row in rows)
            ):
                return
            await asyncio.sleep(0.05)


@pytest.mark.soak
async def test_member_comes_moves_and_goes_without_a_restart(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as found, AsyncExitStack() as stack:
        stack.push_async_callback(end, found, "c")
        stays, _ = await found.connect("b", "stays")
        stays.send(Subscribe(1, [Subscription("t", 1)]))
        await stays.take(Suback)
        at = f"127.0.0.1:{free_port()}"
        await begin(found, "c", at)
        for name, others in (("a", "bc"), ("b", "ac"), ("c", "ab")):
            await names(found, name, *others)
        await found.running["b"].logged("[site.members] in the configuration file differs")
        hops, _ = await found.connect("b", "hops")
        hops.send(Subscribe(1, [Subscription("t", 1)]))
        await hops.take(Suback)
        hops.writer.close()
        hops, present = await found.connect("c", "hops")
        assert present
        hops.send(Publish("t", b"m", 0))
        assert (await stays.take(Publish)).payload == b"m", "its connection is the same"

        await found.running["c"].end(15)
        elsewhere = f"127.0.0.1:{free_port()}"
        change(found.site.of("a"), {**found.site.addresses, "c": elsewhere})
        text = found.config("c").read_text().replace(f'bind = "{at}"', f'bind = "{elsewhere}"')
        found.config("c").write_text(text)
        await found.start("c")
        for name, others in (("a", "bc"), ("b", "ac"), ("c", "ab")):
            await names(found, name, *others)
        assert load(found.config("c")).site.members["c"] == elsewhere  # type: ignore[union-attr]

        found.remove("c")
        change(found.site.of("a"), found.site.addresses)
        await names(found, "a", "b")
        await names(found, "b", "a")
        hops, present = await found.connect("a", "stays")
        assert present
