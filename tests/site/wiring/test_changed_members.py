"""A gateway continues with other members, without a restart (`Membership._change`)."""

import logging

import pytest

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connack, Connect, Publish, Version
from gateway.site.wiring.sessions import is_busy
from tests.broker.harness import FOREVER
from tests.site.wiring.test_forwarding import SOON_S, Peer, publisher, reader
from tests.site.wiring.test_local_member import Member, Sites


@pytest.fixture
def sites() -> Sites:
    """Return a site of a, b and c. a and b do not know c yet."""
    found = Sites("a", "b")
    found.names = "a", "b", "c"
    found.members["c"] = Member(found, "c", None)
    return found


def change(sites: Sites) -> None:
    """Let all members apply the changed list of members, and link them again."""
    pairs = [{name, other} for name in sites.members for other in sites.members if name < other]
    for pair in map(sorted, pairs):
        sites.part(*pair)
    for name in ("a", "b"):
        while is_busy(sites.members[name].site.holder):
            sites[name].turn(0)
        sites.members[name].change()
    for pair in map(sorted, pairs):
        sites.join(*pair)
    sites.pass_time(2)


def test_clients_and_their_messages_stay(sites: Sites) -> None:
    stays, away = reader(sites, "a", "t", client="stays"), reader(sites, "b", "t", client="away")
    away.client.break_line()
    publisher(sites, "a").publish("t", "before", 1)
    change(sites)
    publisher(sites, "c").publish("t", "after", 1)
    sites.pass_time(SOON_S)
    assert stays.payloads == [b"before", b"after"], "its connection is the same"
    assert Peer(sites, "c", "away").payloads == [b"before", b"after"], "its session moved to c"
    assert not any(member.site.suspect_answers for member in sites.members.values())


def test_messages_that_wait_for_a_member_come_once(sites: Sites) -> None:
    client = reader(sites, "b", "t")
    source = publisher(sites, "a")
    sites.part("a", "b")
    for number in range(20):
        source.publish("t", number, 1 + number % 2)
    change(sites)
    assert client.payloads == [b"%d" % number for number in range(20)]


def test_session_that_is_on_its_way_arrives(sites: Sites) -> None:
    client = reader(sites, "a", "t", client="c1")
    client.client.break_line()
    publisher(sites, "b").publish("t", "m", 1)
    sites.pass_time(SOON_S)
    moved = sites["b"].open(answers=True)
    moved.bring(encode(Connect("c1", Version.V5, False, properties=FOREVER), Version.V5))
    while not sites.members["a"].site.holder.given_to():
        sites.step() or sites.tick()
    change(sites)
    sites.pass_time(3)
    assert moved.take(Connack).session_present
    assert [packet.payload for packet in moved.take_all(Publish)] == [b"m"]
    assert "c1" not in sites["a"].broker.sessions


def test_records_are_kept(sites: Sites) -> None:
    for name in ("a", "b", "a"):
        reader(sites, name, "t", client="c1").client.break_line()
        sites.pass_time(1)
    before = sites.members["a"].site.holder.record("c1")
    assert before is not None
    assert before.epoch == 2
    change(sites)
    after = sites.members["a"].site.holder.record("c1")
    assert after is not None
    assert (after.epoch, after.session) == (2, True)


def test_client_that_waits_for_the_members_is_answered(sites: Sites) -> None:
    sites.part_silently("a", "b")
    client = sites.connect("a", "c1", wait=0.2)
    assert not client.received
    change(sites)
    assert not client.take(Connack).session_present
    assert not sites.members["a"].site.suspect_answers


def test_sessions_are_suspect_if_a_member_goes(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    change(sites)
    stays = reader(sites, "a", "t", client="stays")
    sites.names = "a", "b"
    gone = sites.members.pop("c")
    sites.links = {frozenset("ab")}
    with caplog.at_level(logging.WARNING):
        change(sites)
    assert "no longer in [site.members]: c" in caplog.text
    assert gone.name not in sites["a"].broker.sessions
    assert sites.members["a"].site.figures()["in_doubt"] > 0
    publisher(sites, "b").publish("t", "m", 1)
    sites.pass_time(SOON_S)
    assert stays.payloads == [b"m"]
