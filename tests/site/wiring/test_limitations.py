"""The limitations in docs/limitations.md: each test demonstrates one."""

from pathlib import Path

import pytest

from gateway.mqtt.packets import (
    Connack,
    Connect,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.site.rules.messages import Part
from gateway.site.rules.outbound_moves import OutboundMoves
from gateway.site.wiring.membership import Membership
from tests.broker.harness import FOREVER
from tests.site.wiring.test_forwarding import SOON_S, Peer, publisher, reader, waiting
from tests.site.wiring.test_local_member import Member, Sites
from tests.site.wiring.test_replicas import kept
from tests.site.wiring.test_retained import apart, know_the_time, retain, together, told


@pytest.fixture
def sites() -> Sites:
    return Sites("a", "b", "c")


@pytest.mark.parametrize("retain", [False, True])
def test_filter_is_known_elsewhere_within_a_tenth_of_a_second(sites: Sites, retain: bool) -> None:
    early, later = publisher(sites, "a"), publisher(sites, "c")
    client = reader(sites, "b", "other")
    client.say(Subscribe(9, [Subscription("t", 1)]), wait=0)
    early.publish("t", "early", 1, retain=retain)
    sites.pass_time(0.1)
    later.publish("t", "later", 1)
    sites.pass_time(SOON_S)
    assert client.payloads == [b"later"]


def test_client_that_comes_back_after_a_third_of_a_second_is_in_no_doubt(sites: Sites) -> None:
    for wait in (0.05, 0.1, 0.35, 0.5):
        for name in "aba":
            client = sites.connect(name, wait=wait)
            client.break_line()
            sites.settle()
        sites.pass_time(2)
        doubts = sum(member.site.suspect_answers for member in sites.members.values())
        assert doubts == 0 or wait < 0.3, f"after {wait} s"


def test_member_that_never_gives_a_session_makes_its_client_wait(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.connect("a", wait=1).break_line()
    sites.settle()
    nothing = lambda self, wanted, parts: Part(wanted.client, wanted.epoch, 0, 0, b"")  # noqa: E731
    monkeypatch.setattr(OutboundMoves, "_part", nothing)
    for _ in range(2):
        client = sites.connect("b", wait=9)
        assert client.received == []
        sites.pass_time(3)
        assert client.take(Connack).reason == 0x89
    monkeypatch.undo()
    assert sites.connect("b", wait=5).take(Connack).session_present


def test_session_that_goes_on_in_doubt_may_get_a_message_again(sites: Sites) -> None:
    sites.connect("a", wait=1).break_line()
    sites.settle()
    for other in ("b", "c"):
        sites.part("a", other)
    for name, present in (("b", False), ("a", True)):
        client = sites.connect(name, wait=20)
        assert client.take(Connack).session_present == present
        sites.say(client, Publish("t", b"m", 2, 7))
        client.take(Pubrec)
        assert sites[name].broker.statistics.repeated == 0
        client.break_line()
        sites.settle()


def test_session_in_doubt_may_send_a_message_again(sites: Sites) -> None:
    """The session moves from a to b, and b delivers the message. b is cut off before a hears that
    the move is finished. So a still has the session, with the message.
    """
    reader(sites, "a", "t", client="c").client.break_line()
    publisher(sites, "a").publish("t", "m", 2)
    sites.settle()
    client = sites["b"].open(answers=True)
    client.send(Connect("c", Version.V5, False, properties=FOREVER))
    while not client.received:
        if not sites.step():
            sites.tick()
    sites.part("a", "b")
    sites.part("b", "c")
    sites.pass_time(SOON_S)
    assert client.take(Connack).session_present
    (first,) = client.take_all(Publish)
    client.break_line()
    again = sites.connect("a", wait=20)
    assert again.take(Connack).session_present
    (second,) = again.take_all(Publish)
    assert (first.payload, first.dup) == (second.payload, second.dup) == (b"m", False)


def test_session_in_doubt_may_use_an_identifier_again(sites: Sites) -> None:
    """Member a is silent. Only a knows which packet identifiers the client has received."""
    client = sites.connect("a", wait=1)
    sites.say(client, Subscribe(1, [Subscription("t", 2)]))
    publisher(sites, "a").publish("t", "one", 2)
    sites.settle()
    (first,) = client.take_all(Publish)
    client.break_line()
    sites.part("a", "b")
    sites.part("a", "c")
    client = sites.connect("b", wait=20)
    assert not client.take(Connack).session_present, "the session with identifier 1 is at a"
    sites.say(client, Subscribe(1, [Subscription("t", 2)]))
    publisher(sites, "b").publish("t", "two", 2)
    sites.settle()
    (second,) = client.take_all(Publish)
    assert second.packet_id == first.packet_id


def test_qos_0_message_during_a_move_may_be_lost_and_comes_once_at_most() -> None:
    counts = set()
    for steps in range(0, 20, 4):
        sites = Sites("a", "b")
        before = sites.connect("a")
        sites.say(before, Subscribe(1, [Subscription("t", 0)]))
        other = publisher(sites, "a")
        after = sites["b"].open()
        after.send(Connect("c", Version.V5, False, properties=FOREVER))
        for _ in range(steps):
            if not sites.step():
                sites.tick()
        other.client.send(Publish("t", b"m", 0))
        sites.pass_time(SOON_S)
        counts.add(len(before.take_all(Publish)) + len(after.take_all(Publish)))
    assert counts == {0, 1}


def test_third_member_may_have_its_messages_delivered_by_both_of_two_sessions(
    sites: Sites,
) -> None:
    """Gateway c has links to a and b, which have no link to each other. Both have a session of the
    client, so a message from c is delivered by each of them.
    """
    client = sites.connect("a", wait=1)
    sites.say(client, Subscribe(1, [Subscription("t", 1)]))
    client.break_line()
    sites.part("a", "b")
    client = sites.connect("b", wait=20)
    assert not client.take(Connack).session_present
    sites.say(client, Subscribe(1, [Subscription("t", 1)]), wait=SOON_S)
    publisher(sites, "c").publish("t", "m", 1)
    sites.pass_time(SOON_S)
    client.take(Suback)
    assert [packet.payload for packet in client.take_all(Publish)] == [b"m"]
    client.break_line()
    client = sites.connect("a", wait=20)
    assert client.take(Connack).session_present
    assert [packet.payload for packet in client.take_all(Publish)] == [b"m"]
    assert [sites.members[name].site.suspect_answers for name in "ab"] == [1, 1]


def joins(self: Member, member: str) -> None:
    """Begin a link to `member` as a running gateway does: messages to it may wait until the links
    to the other members are back.
    """
    self.site.joined(member)
    self.retained.joined(member)
    gateway = Membership.__new__(Membership)
    gateway._site, gateway._forwarding = self.site, self.forwarding
    gateway._begin_forwarding(member)


@pytest.mark.parametrize("holds", [False, True])
def test_a_partition_that_ends_link_by_link_doubles_no_message_of_a_third_member(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, holds: bool
) -> None:
    """While c is cut off, the client of a session at c connects to a and receives the message
    there. Then the client returns to c. The link from c to b comes back before the link from c to
    a.
    """
    if holds:
        monkeypatch.setattr(Member, "joined", joins)
    session = reader(sites, "c", "t", client="c")
    session.client.break_line()
    sites.settle()
    apart(sites, "c")
    newer = Peer(sites, "a", "c")
    newer.say(Subscribe(1, [Subscription("t", 2)]))
    source = publisher(sites, "b")
    source.publish("t", "m", 2)
    assert newer.payloads == [b"m"]
    newer.client.break_line()
    session = Peer(sites, "c", "c")
    sites.join("b", "c")
    sites.pass_time(0.5)
    sites.join("a", "c")
    sites.pass_time(2)
    assert session.client.closed, "its client gets Session Present 0 next"
    assert session.payloads == ([] if holds else [b"m"])
    again = reader(sites, "c", "t", client="c")
    source.publish("t", "later", 2, wait=SOON_S)
    assert again.payloads == [b"later"]


@pytest.mark.parametrize("doubt", [False, True])
def test_messages_wait_for_an_absent_member_only_after_a_doubt(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, doubt: bool
) -> None:
    """c is gone for good. After a doubt about its sessions, messages from b wait at most a second
    for c.
    """
    monkeypatch.setattr(Member, "joined", joins)
    reader(sites, "a", "t", client="c").client.break_line()
    source = publisher(sites, "b")
    apart(sites, "c")
    sites.part("a", "b")
    source.publish("t", "m", 2)
    if doubt:
        Peer(sites, "a", "c")
    sites.join("a", "b")
    sites.pass_time(0.5)
    assert waiting(sites, "b") == doubt
    sites.pass_time(1)
    assert waiting(sites, "b") == 0


def test_copies_hold_the_spool_and_no_queue(tmp_path: Path) -> None:
    """The session of a dead gateway is lost with its queue, even with `copies = 2`."""
    pair = Sites("a", "b", copies=tmp_path)
    session = reader(pair, "a", "t")
    session.client.break_line()
    pair.settle()
    client = publisher(pair, "a")
    client.publish("t", "for the session", 1)
    client.publish("spool/x", "for the table", 1)
    pair.pass_time(SOON_S)
    assert kept(pair, "b") == [b"for the table"]
    pair.part("a", "b")
    assert not pair.connect("b", wait=20).take(Connack).session_present


@pytest.mark.parametrize("restarted", [False, True])
def test_lost_retained_message_is_not_reported_after_a_restart(
    sites: Sites, restarted: bool
) -> None:
    know_the_time(sites, *sites.names)
    apart(sites, "a")
    retain(sites, "a", "t", "a")
    retain(sites, "b", "t", "b")
    if restarted:
        sites.members["a"].power_cut()
        know_the_time(sites, "a")
    together(sites)
    assert bool(told(sites, "a")) != restarted
    assert told(sites, "b")


def test_gateway_without_its_site_trusts_its_sessions(sites: Sites) -> None:
    """Gateway b has a newer session of the client. Gateway a has started without a section [site],
    so it asks no other member and continues its old session.
    """
    sites.connect("a", wait=1).break_line()
    sites.settle()
    apart(sites, "a")
    assert not sites.connect("b", wait=20).take(Connack).session_present
    sites["a"].power_cut()  # as a start without the section [site], which creates no `Site`
    client = sites["a"].open()
    client.send(Connect("c", Version.V5, False, properties=FOREVER))
    answer = client.take(Connack)
    assert (answer.reason, answer.session_present) == (0, True)
