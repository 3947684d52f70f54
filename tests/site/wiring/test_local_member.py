"""Gateways as members of a site: three of them, on one clock, with links in memory."""

import asyncio
import logging
import re
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.config import SiteSection
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.reason import ReasonCode
from gateway.service.gateway import _membership
from gateway.site.forwarding.messages import FIRST as FORWARDING
from gateway.site.replication.messages import FIRST as COPIES
from gateway.site.shared_state.retained import FIRST as RETAINED
from gateway.site.wiring.forwarding import Forwarding
from gateway.site.wiring.local_member import Site
from gateway.site.wiring.replicas import SiteCopies
from gateway.site.wiring.retained import SiteRetained
from gateway.store.move_out import StoredParts
from gateway.store.recovery import recover
from gateway.store.uptime import save_axis
from tests.broker.harness import FOREVER, Client, World

MOMENT = 0.01


class Member:
    """A gateway and its parts for the site. copies: folder for the copies; None: the gateway has no
    parts for copies.
    """

    def __init__(self, sites: "Sites", name: str, copies: Path | None, **limits: int) -> None:
        self.sites = sites
        self.name = name
        addresses = {other: f"{other}:1" for other in ("gateway", *sites.names)}
        self.world = World(site=SiteSection(members=addresses), **limits)
        self.world.database.execute("UPDATE meta SET value = ? WHERE key = 'gateway'", (name,))
        self.folder = copies and copies / name
        self.section = SiteSection(members={name: "h:1"}, copies=2)
        self.disk = Disk()
        self.restored = False
        self.returned = False
        self.start()

    def start(self) -> None:
        world = self.world
        world.loop.now = self.sites.now
        self._build()
        self.lost: list[str] = []
        self.retained = SiteRetained(
            world.engine,
            self._send,
            cast(asyncio.AbstractEventLoop, world.loop),
            self.lost.append,
        )
        self.copies = None
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True, parents=True)
            self.copies = SiteCopies(
                world.engine,
                self.section,
                self.folder,
                self._send,
                cast(asyncio.AbstractEventLoop, world.loop),
                restored=self.restored,
                executor=self.disk,
                opened=lambda: world.database,
            )

    def change(self) -> None:
        """Continue with other members, as `Membership._change` does. The links must be down."""
        engine = self.world.engine
        engine.begin()
        with engine.broker.step:
            self.forwarding.close()
            waiting = self.site.hand_on()
            self._build()
            self.site.take_on(*waiting)

    def _build(self) -> None:
        world = self.world
        self.site = Site(
            world.engine,
            self.name,
            self.sites.names,
            self._send,
            lambda key: StoredParts(world.database, key, lambda: int(world.broker.now * 1000)),
            cast(asyncio.AbstractEventLoop, world.loop),
            returned=self.returned,
        )
        self.forwarding = Forwarding(
            world.engine,
            self.name,
            self.sites.names,
            self._send,
            cast(asyncio.AbstractEventLoop, world.loop),
        )

    def joined(self, member: str) -> None:
        for part in filter(None, (self.site, self.forwarding, self.retained, self.copies)):
            part.joined(member)

    def link_ended(self, member: str) -> None:
        for part in filter(None, (self.site, self.forwarding, self.retained, self.copies)):
            part.link_ended(member)

    def received(self, member: str, frame: bytes) -> None:
        parts = {
            COPIES: self.copies,
            RETAINED: self.retained,
            FORWARDING: self.forwarding,
            0: self.site,
        }
        part = next(part for first, part in parts.items() if part and frame[0] >= first)
        part.received(member, frame)

    def _send(self, member: str, frame: bytes) -> None:
        self.sites.frames.append((self.name, member, frame))

    def power_cut(self) -> None:
        for other in list(self.sites.members):
            if other != self.name:
                self.sites.part(self.name, other)
        self.disk.waiting.clear()
        if self.copies is not None and self.copies._shelf is not None:
            self.copies._shelf.close()
        self.world.power_cut()
        self.start()


class Disk(Executor):
    """An executor that runs each call at once, or if it is `stuck`, when the test calls `work`."""

    def __init__(self) -> None:
        self.stuck = False
        self.waiting: deque[Callable[[], object]] = deque()

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
        self.waiting.append(partial(call, *args))
        self.work()

    def work(self) -> None:
        while self.waiting and not self.stuck:
            self.waiting.popleft()()


class Sites:
    """The members of a site, the frames between them, and the simulated time."""

    def __init__(self, *names: str, copies: Path | None = None, **limits: int) -> None:
        self.now = 1000.0
        self.names = names
        self.frames: deque[tuple[str, str, bytes]] = deque()
        self.links: set[frozenset[str]] = set()
        self.members = {name: Member(self, name, copies, **limits) for name in names}
        for name in names:
            for other in names:
                if name < other:
                    self.join(name, other)
        self.pass_time(2)

    def __getitem__(self, name: str) -> World:
        return self.members[name].world

    def join(self, *pair: str) -> None:
        self.links.add(frozenset(pair))
        for name, other in (pair, pair[::-1]):
            self.members[name].joined(other)
        self.settle()

    def part(self, *pair: str) -> None:
        if frozenset(pair) in self.links:
            self.links.remove(frozenset(pair))
            on_the_way = [item for item in self.frames if {*item[:2]} != {*pair}]
            self.frames = deque(on_the_way)
            for name, other in (pair, pair[::-1]):
                self.members[name].link_ended(other)

    def part_silently(self, *pair: str) -> None:
        """Stop the transfer of data on the link. Neither member gets an event."""
        self.links.discard(frozenset(pair))

    def settle(self) -> None:
        while self.step():
            pass

    def step(self) -> bool:
        """Give each member a turn, then deliver one frame. Return False if there was none."""
        for member in self.members.values():
            member.world.turn(0)
        if not self.frames:
            return False
        name, other, frame = self.frames.popleft()
        if frozenset((name, other)) in self.links:
            self.members[other].received(name, frame)
        return True

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.tick()
            self.settle()

    def tick(self) -> None:
        """Let MOMENT seconds pass, in which no frame arrives."""
        self.now += MOMENT
        for member in self.members.values():
            loop = member.world.loop
            loop.now = self.now
            for timer in loop._later:
                timer.delay -= MOMENT

    def connect(
        self,
        name: str,
        client_id: str = "c",
        wait: float = 0.2,
        *,
        clean: bool = False,
        device: DeviceIdentity | None = None,
        version: Version = Version.V5,
    ) -> Client:
        """Send CONNECT, and return the client after `wait` simulated seconds."""
        client = self[name].open(device=device, version=version)
        properties = FOREVER if version is Version.V5 else None
        self.say(client, Connect(client_id, version, clean, properties=properties), wait=wait)
        return client

    def say(self, client: Client, *packets: Packet, wait: float = 0.2) -> None:
        client.bring(b"".join(encode(packet, client.version) for packet in packets))
        self.settle()
        self.pass_time(wait)


@pytest.fixture
def sites() -> Sites:
    return Sites("a", "b", "c3")


def test_a_client_that_comes_back_elsewhere_finds_its_session(sites: Sites) -> None:
    client = sites.connect("a")
    assert not client.take(Connack).session_present
    sites.say(client, Publish("x", b"m", 2, 9))
    assert client.take(Pubrec).packet_id == 9
    client.break_line()
    client = sites.connect("b")
    assert client.take(Connack).session_present
    sites.say(client, Pubrel(9))
    assert client.take(Pubcomp) == Pubcomp(9), "it was published at the other gateway"
    assert "c" not in sites["a"].broker.sessions
    assert sites.members["a"].site.figures()["moved_out"] == 1


def test_unknown_session_begins_after_the_window(sites: Sites) -> None:
    client = sites.connect("a", wait=0.1)
    assert not client.take(Connack).session_present
    assert sites.members["a"].site.suspect_answers == 0


def test_a_client_that_stays_costs_no_byte(sites: Sites) -> None:
    client = sites.connect("a")
    sites.pass_time(1)
    before = {name: member.site.member.statistics.calls for name, member in sites.members.items()}
    for number in range(1, 200):
        sites.say(client, Publish("x", b"m", 2, number), wait=0)
        sites.say(client, Pubrel(number), wait=0)
    client.break_line()
    client = sites.connect("a", wait=0.02)
    assert client.take(Connack).session_present
    after = {name: member.site.member.statistics.calls for name, member in sites.members.items()}
    assert after == before


def test_a_silent_member_costs_a_second_at_most_and_is_marked(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    sites.part_silently("a", "b")
    with caplog.at_level(logging.WARNING):
        client = sites.connect("a", wait=0.5)
        assert not client.received
        sites.pass_time(0.6)
    assert not client.take(Connack).session_present
    assert sites.members["a"].site.suspect_answers == 1
    assert re.search(
        r"^c got a suspect session: b did not answer\.", "\n".join(caplog.messages), re.M
    )


def test_a_stale_session_swallows_no_publish(sites: Sites) -> None:
    """The client published at a, then began another session at b while a was silent. Now it returns
    to a, which is still cut off and still has the first session.
    """
    client = sites.connect("a")
    client.take(Connack)
    sites.say(client, Publish("x", b"old", 2, 7))
    client.break_line()
    sites.settle()
    for other in ("b", "c3"):
        sites.part("a", other)
    sites.pass_time(1)
    client = sites.connect("b", wait=1.5)
    assert not client.take(Connack).session_present, "the one that has it is silent"
    client.break_line()
    sites.settle()
    client = sites.connect("a", wait=1.5)
    assert not client.take(Connack).session_present, "it may be stale"
    sites.say(client, Publish("x", b"new", 2, 7))
    client.take(Pubrec)
    assert sites["a"].broker.statistics.repeated == 0
    for other in ("b", "c3"):
        sites.join("a", other)
    sites.pass_time(2)
    holders = [name for name in sites.names if sites.members[name].site.holder.session("c")]
    assert len(holders) == 1, "when they meet, one place is left"


def copy_of(member: World) -> sqlite3.Connection:
    backup = sqlite3.connect(":memory:", isolation_level=None)
    member.database.backup(backup)
    return backup


def leave_an_identifier(sites: Sites, at: str) -> None:
    """Publish a message at QoS 2, and break the connection before PUBREL."""
    client = sites.connect(at)
    client.take(Connack)
    sites.say(client, Publish("x", b"old", 2, 7))
    client.break_line()


def test_state_forgotten_by_a_restore_swallows_no_publish(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    """b, the only member that knew that the session at a is over, is restored from an earlier
    backup.
    """
    backup = copy_of(sites["b"])
    leave_an_identifier(sites, "a")
    for other in ("b", "c3"):
        sites.part("a", other)
    sites.pass_time(1)
    client = sites.connect("b", wait=1.5)
    assert not client.take(Connack).session_present
    recover(backup, None, 10, forget=True)
    sites["b"].database = backup
    sites.members["b"].power_cut()
    for pair in (("a", "b"), ("a", "c3"), ("b", "c3")):
        sites.join(*pair)
    sites.pass_time(2)
    assert "another member does not know whether sessions of this gateway have ended" in caplog.text
    comes_back_unknown(sites, "c3")
    assert not sites.members["b"].site.holder.places, "all have heard of it"


@pytest.mark.parametrize("way", ["it joins again", "its file is gone"])
def test_state_of_a_lost_store_swallows_no_publish(sites: Sites, way: str) -> None:
    """b, the only member that knew that the session at a is over, begins with an empty store."""
    empty = copy_of(sites["b"])
    leave_an_identifier(sites, "a")
    for other in ("b", "c3"):
        sites.part("a", other)
    sites.pass_time(1)
    sites.connect("b", wait=1.5).break_line()
    if way == "its file is gone":
        recover(empty, None, 10, forget=True)
    else:
        empty.execute("DELETE FROM meta WHERE key = 'members'")
    sites["b"].database = empty
    sites.members["b"].returned = way == "it joins again"
    sites.members["b"].power_cut()
    for pair in (("a", "b"), ("a", "c3"), ("b", "c3")):
        sites.join(*pair)
    sites.pass_time(2)
    comes_back_unknown(sites, "c3")


def test_state_of_a_departed_member_swallows_no_publish(sites: Sites) -> None:
    """b, the only member that knew that the session at a is over, leaves the site. When the client
    connects at c3, c3 must not use the old session of a.
    """
    leave_an_identifier(sites, "a")
    for other in ("b", "c3"):
        sites.part("a", other)
    sites.pass_time(1)
    sites.connect("b", wait=1.5).break_line()
    sites.names = ("a", "c3")
    del sites.members["b"]
    sites.members["c3"].power_cut()
    sites.join("a", "c3")
    sites.pass_time(2)
    comes_back_unknown(sites, "c3")


@pytest.mark.parametrize("meanwhile", ["it is off", "it runs alone", "both run alone"])
def test_state_of_a_returning_member_swallows_no_publish(meanwhile: str) -> None:
    """b was not a member of the site for a time. Meanwhile, its old state of the client became
    invalid, but no record named b.
    """
    sites = Sites("a", "b")
    leave_an_identifier(sites, "b")
    sites.part("a", "b")
    away = sites.members.pop("b")
    if meanwhile == "both run alone":
        run_alone(sites.members["a"])
    else:
        sites.names = ("a",)
        sites.members["a"].power_cut()
    comes_back_unknown(sites, "a")
    if meanwhile != "it is off":
        run_alone(away)
    sites.names = ("a", "b")
    sites.members["a"].power_cut()
    away.power_cut()
    sites.members["b"] = away
    sites.join("a", "b")
    sites.pass_time(1)
    comes_back_unknown(sites, "b")


def run_alone(member: Member) -> None:
    """Restart the gateway of a member without the section [site]."""
    world = member.world
    world.power_cut()
    alone = world.config.model_copy(update={"site": None})
    assert _membership(alone, world.engine, False) is None
    world.turn()


def test_last_member_of_a_site_still_suspects_its_session(sites: Sites) -> None:
    leave_an_identifier(sites, "a")
    sites.names = ("a",)
    sites.members = {"a": sites.members["a"]}
    sites.members["a"].power_cut()
    sites.pass_time(2)
    comes_back_unknown(sites, "a")


def comes_back_unknown(sites: Sites, at: str) -> None:
    """Let the client connect and publish a new message with its old identifier. Assert that the
    message counts as new.
    """
    client = sites.connect(at, wait=1.5)
    assert not client.take(Connack).session_present, "it may be stale"
    sites.say(client, Publish("x", b"new", 2, 7))
    client.take(Pubrec)
    assert sites[at].broker.statistics.repeated == 0


def test_a_session_that_is_on_its_way_hears_the_word_of_a_restore(sites: Sites) -> None:
    """The client's session moves from c3 to b, but b's disk is slow. Meanwhile the client begins a
    newer session at a, and a is restored from a backup. Its report of the restore reaches b while
    the older session is still on its way to b's disk. c3 has no link to a.
    """
    backup = copy_of(sites["a"])
    leave_an_identifier(sites, "c3")
    sites.settle()
    sites["b"].slow_disk = True
    client = sites.connect("b", wait=0.5)
    assert not client.received, "its session comes"
    client.break_line()
    sites.settle()
    for other in ("b", "c3"):
        sites.part("a", other)
    sites.pass_time(1)
    client = sites.connect("a", wait=1.5)
    assert not client.take(Connack).session_present
    client.break_line()
    recover(backup, None, 10, forget=True)
    sites["a"].database = backup
    sites.members["a"].power_cut()
    sites.join("a", "b")
    sites.pass_time(1)
    sites["b"].slow_disk = False
    sites.pass_time(1)
    sites.join("a", "c3")
    sites.pass_time(1)
    comes_back_unknown(sites, "b")


def test_a_restored_store_starts_although_sessions_have_expired_since(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of 300 sessions expire before the start. The start discards only their records."""
    member = sites["a"]
    policy = replace(member.policy, never_moves=True)
    short = dict.fromkeys(FOREVER, 5)
    for number in range(300):
        lasts = short if number < 3 else FOREVER
        member.connect(f"s{number}", clean=False, properties=lasts, policy=policy).drop()
    member.commit()
    recover(member.database, None, 10, forget=True)

    def start_later() -> None:
        for client in member.clients.values():
            client.closed = True
        member.clients.clear()
        save_axis(member.database, int((member.broker.now + 60) * 1000), None)
        member.start()

    monkeypatch.setattr(member, "power_cut", start_later)
    sites.members["a"].power_cut()
    assert sites.members["a"].site.holder.record("") is not None
    assert sites.members["a"].site.holder.record("s3") is not None
    assert sites.members["a"].site.holder.record("s0") is None


def test_an_answer_waits_for_the_commit_under_way_and_for_no_other(sites: Sites) -> None:
    sites.connect("a").break_line()
    other = sites.connect("a", "other")
    sites.pass_time(1)
    sites["a"].slow_disk = True
    sites.say(other, Publish("spool/x", b"m", 2, 1))
    client = sites.connect("b", wait=0.1)
    assert not client.received, "what the answer says is not on disk yet"
    sites["a"].slow_disk = False
    sites.pass_time(0.1)
    assert client.take(Connack).session_present, "nothing else comes to disk at the holder"


def test_clean_start_ends_the_session_of_another_member(sites: Sites) -> None:
    sites.connect("a").break_line()
    sites.settle()
    client = sites.connect("b", clean=True)
    assert not client.take(Connack).session_present
    sites.pass_time(1)
    assert "c" not in sites["a"].broker.sessions


def test_later_of_two_waiting_connections_counts(sites: Sites) -> None:
    sites.connect("a").break_line()
    sites.settle()
    first = sites.connect("b", wait=0)
    second = sites.connect("b", wait=0.3)
    assert first.closed
    assert not first.received
    assert second.take(Connack).session_present


def test_a_client_that_goes_while_it_waits_leaves_its_session_whole(sites: Sites) -> None:
    client = sites.connect("a")
    sites.say(client, Publish("x", b"m", 2, 9))
    client.break_line()
    sites.settle()
    client = sites.connect("b", wait=0)
    client.break_line()
    sites.pass_time(0.5)
    client = sites.connect("b")
    assert client.take(Connack).session_present
    sites.say(client, Pubrel(9))
    assert client.take(Pubcomp) == Pubcomp(9)


def test_departed_client_gets_no_decision(sites: Sites) -> None:
    """The client leaves before the decision. Without a decision, the gateway creates no session,
    because the silent member may have a newer one.
    """
    sites.connect("a").break_line()
    sites.pass_time(1)
    sites.part_silently("a", "b")
    client = sites.connect("b", wait=0.5)
    assert not client.received, "it waits for a"
    client.break_line()
    sites.pass_time(2)
    member = sites.members["b"].site
    assert member.suspect_answers == len(member.holder.places) == 0
    assert not member._waiting


def test_pubrel_is_answered_by_the_member_that_knows_it(sites: Sites) -> None:
    client = sites.connect("a")
    sites.say(client, Publish("x", b"m", 2, 9))
    other = sites.connect("b", "other")
    other.take(Connack)
    sites.say(other, Pubrel(9))
    assert other.take(Pubcomp) == Pubcomp(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    answers: list[bool] = []
    site = sites.members["b"].site
    site.member.want_release("c", 9, sites.now, lambda known, silent: answers.append(known))
    sites.pass_time(0.2)
    assert answers == [True]


@pytest.mark.parametrize("version", [Version.V3_1, Version.V3_1_1, Version.V5])
def test_no_success_is_forged_while_a_member_is_silent(sites: Sites, version: Version) -> None:
    """Before MQTT 5, every PUBCOMP means success. So the gateway closes the connection as long as a
    member is silent. It sends PUBCOMP when all members have replied that they do not know the
    identifier.
    """
    client = sites.connect("b", version=version, wait=2)
    client.take(Connack)
    sites.part_silently("a", "b")
    sites.say(client, Pubrel(9), wait=3)
    if version is Version.V5:
        assert client.take(Pubcomp).reason == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        return
    assert client.closed
    assert not client.received
    assert sites.members["b"].site.suspect_answers == 1
    sites.join("a", "b")
    sites.pass_time(2)
    client = sites.connect("b", version=version, wait=2)
    client.take(Connack)
    sites.say(client, Pubrel(9), wait=3)
    assert client.take(Pubcomp) == Pubcomp(9)


@pytest.mark.parametrize("version", [Version.V3_1_1, Version.V5])
def test_no_success_is_forged_when_too_many_pubrels_wait(
    sites: Sites, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.site.wiring.local_member.MOST_RELEASES", 0)
    client = sites.connect("b", version=version)
    client.take(Connack)
    sites.say(client, Pubrel(9))
    if version is Version.V5:
        assert client.take(Pubcomp).reason == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    else:
        assert client.closed
        assert not client.received
    assert sites.members["b"].site.suspect_answers == 1


def test_a_board_moves_with_its_marks(sites: Sites) -> None:
    client = sites.connect("a", "roof", device=DeviceIdentity("roof", 7, 1, proved=True))
    client.take(Connack)
    sites.say(client, Publish("spool/x", b"1", 2, 1))
    client.break_line()
    sites.settle()
    client = sites.connect("b", "roof", device=DeviceIdentity("roof", 7, 2, proved=True))
    assert client.take(Connack).session_present
    sites.say(client, Publish("spool/x", b"1", 2, 1, dup=True), Pubrel(1))
    assert client.take_all(Pubcomp) == [Pubcomp(1)]
    assert sites["b"].rows("SELECT * FROM spool") == []


@pytest.mark.parametrize("victim", ["a", "b"])
@pytest.mark.parametrize("after", range(8))
def test_a_power_cut_at_any_commit_of_a_move_leaves_the_session_in_one_place(
    victim: str, after: int
) -> None:
    sites = Sites("a", "b")
    client = sites.connect("a")
    sites.say(client, Publish("x", b"m", 2, 9))
    client.break_line()
    sites.settle()
    world = sites[victim]
    world.commit()
    done = len(world.commits)
    cut: list[bool] = []

    def look() -> None:
        if len(world.commits) - done >= after:
            cut.append(True)
            world.slow_disk = True  # from here on, nothing is written

    world.on_commit = look
    if not after:
        world.slow_disk = True
    sites.connect("b", wait=0.3)
    world.on_commit = lambda: None
    world.slow_disk = False
    sites.members[victim].power_cut()
    sites.join("a", "b")
    sites.pass_time(2)
    client = sites.connect("b", wait=2.5)
    assert client.take(Connack).session_present
    sites.say(client, Pubrel(9))
    assert client.take(Pubcomp) == Pubcomp(9)
    sites.pass_time(1)
    assert "c" not in sites["a"].broker.sessions
    assert sites["a"].rows("SELECT * FROM given_part") == []


@pytest.mark.parametrize(("every", "order", "least"), [(0.01, "ab", 60), (0.03, "ab", 30)])
def test_one_identifier_at_two_gateways_is_answered_and_causes_no_doubt(
    sites: Sites, caplog: pytest.LogCaptureFixture, every: float, order: str, least: int
) -> None:
    """every: seconds between two CONNECTs. order: the gateways of the CONNECTs, in turn. least: in
    five seconds, more than this number of CONNECTs must get an answer.
    """
    clients = []
    for number in range(round(5 / every)):
        client = sites[order[number % len(order)]].open()
        clients.append(client)
        sites.say(client, Connect("c", Version.V5, False, properties=FOREVER), wait=every)
    sites.pass_time(1)
    answered = [client for client in clients if client.received]
    assert len(answered) > least
    assert clients[-1] in answered
    present = [client.take(Connack).session_present for client in answered]
    assert present == [False] + [True] * (len(answered) - 1)
    assert [sites.members[name].site.suspect_answers for name in "ab"] == [0, 0]
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) <= 2
    superseded = sum(sites.members[name].site.figures()["superseded"] for name in "ab")
    assert len(answered) + superseded == len(clients)


@pytest.mark.parametrize("order", ["ab", ["a", "b", "c3"]])
def test_fight_for_an_identifier_at_several_gateways_is_named(
    sites: Sites, caplog: pytest.LogCaptureFixture, order: Sequence[str]
) -> None:
    for number in range(20):
        sites.connect(order[number % len(order)])
    for name in order:
        (text,) = sites[name].broker.fights.present.values()
        assert "'c': two clients fight for this client identifier" in text
        assert "and one at " in text
    assert sum("two clients fight" in line for line in caplog.messages) == len(order)


def test_client_that_hops_is_in_no_fight(sites: Sites) -> None:
    for number in range(20):
        sites.connect("ab"[number % 2]).break_line()
        sites.settle()
    assert not any(sites[name].broker.fights.present for name in "ab")


def test_a_session_that_is_replaced_tells_how_many_messages_are_lost(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    """Three messages wait in a session at a. While a is cut off, the client starts one at b."""
    client = sites.connect("a")
    sites.say(client, Subscribe(1, [Subscription("t", 1)]))
    client.break_line()
    publisher = sites.connect("a", "publisher")
    for number in range(3):
        sites.say(publisher, Publish("t", b"m", 1, 1 + number))
    for other in ("b", "c3"):
        sites.part("a", other)
    client = sites.connect("b", wait=2)
    assert not client.take(Connack).session_present
    assert sites.members["a"].site.figures()["lost"] == 0
    for other in ("b", "c3"):
        sites.join("a", other)
    sites.pass_time(1)
    assert "c" not in sites["a"].broker.sessions
    assert sites.members["a"].site.figures()["lost"] == 3
    lines = [line for line in caplog.messages if "3 waiting messages are lost" in line]
    assert len(lines) == 1
    assert lines[0].startswith("c: the session here ends, because its client has a newer session")


def test_a_clean_start_loses_nothing_that_its_client_wants(sites: Sites) -> None:
    client = sites.connect("a")
    sites.say(client, Subscribe(1, [Subscription("t", 1)]))
    client.break_line()
    sites.say(sites.connect("a", "publisher"), Publish("t", b"m", 1, 1))
    for name in ("b", "a", "a"):
        sites.connect(name, clean=True).break_line()
        sites.pass_time(1)
    assert [sites.members[name].site.figures()["lost"] for name in "ab"] == [0, 0]


@pytest.mark.parametrize("commits", [0, 1])
def test_session_that_is_given_while_the_gateway_stops_is_not_read(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """commits: whether the commit of the move ends before the site closes the store's reader (1) or
    after it (0).
    """
    sites.connect("a").break_line()
    sites.settle()
    holder, read = sites.members["a"].site.holder, []
    give = holder.give

    def give_slowly(*arguments: Any) -> None:
        sites["a"].slow_disk = True
        give(*arguments)

    monkeypatch.setattr(holder, "give", give_slowly)
    monkeypatch.setattr(holder, "_parts", lambda key: read.append(key) or [])
    client = sites.connect("b", wait=0.3)
    assert "c" in holder._moved_out
    if not commits:
        sites.members["a"].site.close()
    sites["a"].slow_disk = False
    sites["a"].commit()
    sites.settle()
    assert len(read) == commits
    assert client.received == []
