"""Messages published at one gateway of a site reach subscribers at another gateway exactly once."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from gateway.config import MEMBER, Config, QueueSection
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.runtime.internal_client import InternalClient, forget_members
from gateway.runtime.sys_topics import take_figures
from gateway.site.forwarding.messages import FIRST
from gateway.store.move_rows import name_of
from tests.broker.harness import FOREVER
from tests.site.wiring.test_local_member import Sites

SOON_S = 0.2


@pytest.fixture
def sites() -> Sites:
    return Sites("a", "b", "c")


class Peer:
    """A client that acknowledges all messages."""

    def __init__(self, sites: Sites, name: str, client_id: str, *, clean: bool = False) -> None:
        self._sites = sites
        self.client = sites[name].open(answers=True)
        self.say(Connect(client_id, Version.V5, clean, properties=FOREVER))
        if not self.client.received:
            sites.pass_time(1)  # a member is silent
        self.client.take(Connack)

    def say(self, *packets: Packet, wait: float = SOON_S) -> None:
        self._sites.say(self.client, *packets, wait=wait)

    def publish(self, topic: str, payload: object, qos: int, wait: float = 0, **more: Any) -> None:
        self.client._next_id += 1
        body = str(payload).encode()
        self.say(Publish(topic, body, qos, self.client._next_id if qos else 0, **more), wait=wait)

    @property
    def payloads(self) -> list[bytes]:
        """Payloads of the messages that arrived since the last call."""
        return [packet.payload for packet in self.client.take_all(Publish)]


def reader(sites: Sites, name: str, *filters: str | Subscription, client: str = "") -> Peer:
    found = Peer(sites, name, client or f"reader-{name}")
    wanted = [item if isinstance(item, Subscription) else Subscription(item, 2) for item in filters]
    found.say(Subscribe(1, wanted))
    return found


def publisher(sites: Sites, name: str) -> Peer:
    return Peer(sites, name, f"publisher-{name}", clean=True)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publication_reaches_a_subscriber_at_another_gateway(sites: Sites, qos: int) -> None:
    client = reader(sites, "b", "t/#")
    publisher(sites, "a").publish("t/1", "m", qos)
    sites.pass_time(SOON_S)
    (packet,) = client.client.take_all(Publish)
    assert (packet.payload, packet.qos, packet.topic) == (b"m", qos, "t/1")
    assert sites.members["a"].forwarding.figures()["forward_waiting"] == 0


def waiting(sites: Sites, name: str) -> int:
    return sites.members[name].forwarding.figures()["forward_waiting"]


def test_topic_without_remote_subscribers_costs_no_byte(sites: Sites) -> None:
    here = reader(sites, "a", "t")
    client = publisher(sites, "a")
    sites.frames.clear()
    client.publish("other", "m", 1)
    client.publish("t", "m", 1)
    assert here.payloads == [b"m"]
    assert not [frame for frame in sites.frames if frame[2][0] >= FIRST]


def test_each_subscriber_gets_a_message_once_and_it_goes_in_no_circle(sites: Sites) -> None:
    readers = [reader(sites, name, "t", "t/#", "#") for name in sites.names]
    for number, name in enumerate(sites.names):
        publisher(sites, name).publish("t", str(number), 2)
    sites.pass_time(1)
    for client in readers:
        assert sorted(client.payloads) == [b"0", b"1", b"2"]


def test_removed_filter_is_reported(sites: Sites) -> None:
    client = reader(sites, "b", "t")
    client.say(Unsubscribe(1, ["t"]))
    sites.pass_time(SOON_S)
    sites.frames.clear()
    publisher(sites, "a").publish("t", "m", 1)
    assert waiting(sites, "a") == 0
    assert sites.members["a"].forwarding.figures()["filters"] == 0


def test_publications_wait_on_disk_for_an_absent_member(sites: Sites) -> None:
    client = reader(sites, "b", "t")
    sites.part("a", "b")
    source = publisher(sites, "a")
    for number in range(3):
        source.publish("t", str(number), 1 + number % 2)
    assert waiting(sites, "a") == 3
    sites.members["a"].power_cut()
    assert waiting(sites, "a") == 3
    sites.join("a", "b")
    sites.pass_time(1)
    assert client.payloads == [b"0", b"1", b"2"]
    assert waiting(sites, "a") == 0


def test_a_filter_that_goes_while_the_members_are_apart_is_forgotten(sites: Sites) -> None:
    client = reader(sites, "b", "t", "u")
    sites.part("a", "b")
    client.say(Unsubscribe(1, ["t"]))
    sites.pass_time(SOON_S)
    sites.members["a"].power_cut()
    sites.join("a", "b")
    sites.pass_time(SOON_S)
    assert sites.members["a"].forwarding.figures()["filters"] == 1


def test_a_session_that_is_kept_at_another_gateway_gets_its_messages(sites: Sites) -> None:
    client = reader(sites, "b", "t", client="c")
    client.client.break_line()
    publisher(sites, "a").publish("t", "m", 2)
    sites.pass_time(SOON_S)
    sites.members["b"].power_cut()
    sites.join("b", "a")
    sites.join("b", "c")
    client = Peer(sites, "b", "c")
    sites.pass_time(SOON_S)
    assert client.payloads == [b"m"]


def test_local_member_of_a_shared_subscription_is_preferred(sites: Sites) -> None:
    group = [reader(sites, name, "$share/g/t") for name in sites.names]
    source = publisher(sites, "b")
    for number in range(6):
        source.publish("t", str(number), 1)
    sites.pass_time(1)
    assert [len(client.payloads) for client in group] == [0, 6, 0]
    for client in group[1:2]:
        client.say(Unsubscribe(1, ["$share/g/t"]))
    for number in range(6):
        source.publish("t", str(number), 1)
    sites.pass_time(1)
    got = [client.payloads for client in group]
    assert not got[1]
    assert sorted(got[0] + got[2]) == [b"%d" % number for number in range(6)]
    assert got[0], "they take turns"
    assert got[2], "they take turns"


def leaves(sites: Sites, member: Peer) -> None:
    member.client.bring(encode(Unsubscribe(9, ["$share/g/t"]), Version.V5))


def ends(sites: Sites, member: Peer) -> None:
    packet = Disconnect(properties={PropertyId.SESSION_EXPIRY_INTERVAL: 0})
    member.client.bring(encode(packet, Version.V5))


def is_ended(sites: Sites, member: Peer) -> None:
    sites["a"].end_session("reader-a")


def begins_anew(sites: Sites, member: Peer) -> None:
    sites.connect("c", "reader-a", clean=True, wait=0)


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("end", [leaves, ends, is_ended, begins_anew])
def test_shared_message_for_a_member_that_has_just_left_goes_to_another_one(
    sites: Sites, end: Callable[[Sites, Peer], None], connected: bool
) -> None:
    """The publisher's gateway, b, learns only after its first messages that the group has no member
    at a any more.
    """
    first, other = (reader(sites, name, "$share/g/t") for name in "ac")
    source = publisher(sites, "b")
    if not connected:
        other.client.break_line()
        sites.settle()
    end(sites, first)
    for number in range(1, 21):
        source.publish("t", str(number), 1)
        sites.tick()
    sites.pass_time(1)
    again = Peer(sites, "c", "reader-c")
    got = [*first.payloads, *other.payloads, *again.payloads]
    assert sorted(got) == sorted(b"%d" % number for number in range(1, 21))


def test_user_properties_and_expiry_and_retain_go_along(sites: Sites) -> None:
    client = reader(sites, "b", Subscription("t", 1, retain_as_published=True), "$share/g/t")
    more = {PropertyId.USER_PROPERTY: [("k", "v")], PropertyId.MESSAGE_EXPIRY_INTERVAL: 60}
    publisher(sites, "a").publish("t", "m", 1, retain=True, properties=more)
    sites.pass_time(SOON_S)
    plain, shared = client.client.take_all(Publish)
    assert plain.properties == shared.properties == more
    assert plain.retain


@pytest.mark.parametrize("victim", ["a", "b"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_cut_at_any_frame_loses_nothing_and_doubles_nothing(
    sites: Sites, qos: int, victim: str
) -> None:
    """The link breaks after a number of steps that grows from 0 to 11. For each number, there is
    one run with a broken link, and one in which a gateway loses its power.
    """
    client = reader(sites, "b", "t", client="c")
    source = publisher(sites, "a")
    got: list[bytes] = []
    for number in range(24):
        if source.client.closed:
            source = publisher(sites, "a")
        source.publish("t", str(number), qos)
        for _ in range(number // 2):
            sites.step()
        if number % 2:
            got += client.payloads
            sites.members[victim].power_cut()
            if victim == "b":
                client.client.break_line()
        else:
            sites.part("a", "b")
        for other in {"a", "c"} if victim == "b" else {"b", "c"}:
            sites.part(victim, other)
            sites.join(victim, other)
        sites.pass_time(1)
        if victim == "b" and number % 2:
            got += client.payloads
            client = Peer(sites, "b", "c")
        sites.pass_time(2.5)
    got += client.payloads
    assert got == [b"%d" % number for number in range(24)]
    assert waiting(sites, "a") == 0


def test_message_is_forwarded_after_its_commit(sites: Sites) -> None:
    client = reader(sites, "b", "t")
    source = publisher(sites, "a")
    sites["a"].slow_disk = True
    source.publish("t", "m", 1, wait=1)
    assert not client.payloads, "its number might be given again after a power cut"
    sites["a"].slow_disk = False
    sites.pass_time(SOON_S)
    assert client.payloads == [b"m"]


def test_forwarded_messages_without_room_are_kept_and_sent_again(sites: Sites) -> None:
    client = reader(sites, "b", "t")
    source = publisher(sites, "a")
    sites["b"].disk_full(True)
    source.publish("t", "m", 1, wait=10)
    assert not client.payloads
    assert waiting(sites, "a") == 3, "with two notices, however often the exchange begins again"
    sites["b"].disk_full(False)
    sites.pass_time(3)
    assert client.payloads == [b"m"]
    assert waiting(sites, "a") == 0


def test_a_restored_member_forgets_its_numbers_and_loses_nothing(sites: Sites) -> None:
    client = reader(sites, "b", "t")
    source = publisher(sites, "a")
    backup = sqlite3.connect(":memory:")
    sites["a"].database.backup(backup)
    source.publish("t", "before", 1, wait=SOON_S)
    backup.backup(sites["a"].database)
    with sites["a"].database as database:
        database.execute("DELETE FROM mark")  # as the start of a restored store does
        database.execute("INSERT INTO meta VALUES ('mistrusted', '1')")
    sites.members["a"].power_cut()
    here = sites.members["a"].site
    doubted = {key for key in here.holder.unsettled() if name_of(key).startswith(MEMBER)}
    assert here.holder.places.in_doubt
    assert not doubted
    sites.join("a", "b")
    sites.join("a", "c")
    publisher(sites, "a").publish("t", "after", 1, wait=1)
    assert client.payloads == [b"before", b"after"]


def test_a_queue_for_a_member_that_is_away_for_long_drops_the_oldest() -> None:
    sites = Sites("a", "b", queue_messages=10)
    client = reader(sites, "b", "t")
    sites.part("a", "b")
    source = publisher(sites, "a")
    for number in range(25):
        source.publish("t", str(number), 1)
    figures = sites.members["a"].forwarding.figures()
    assert figures["forward_waiting"] + figures["forward_dropped"] == 25
    sites.join("a", "b")
    sites.pass_time(1)
    assert client.payloads[-5:] == [b"20", b"21", b"22", b"23", b"24"]


def test_a_queue_for_a_member_stops_no_publisher_unless_a_section_is_meant_for_it() -> None:
    config = Config(queue=[QueueSection(full="refuse the publisher")])
    assert config.queueing("onceway-site:a:b").full == "drop the oldest"
    config = Config(queue=[QueueSection(clients="onceway-site:*", messages=5)])
    assert config.queueing("onceway-site:a:b").messages == 5


def test_sessions_for_members_end_when_they_are_members_no_more(sites: Sites) -> None:
    assert {"onceway-site:a:b", "onceway-site:a:c"} <= sites["a"].broker.sessions.keys()
    forget_members(sites["a"].broker, {"onceway-site:a:b"})
    assert "onceway-site:a:b" in sites["a"].broker.sessions
    assert "onceway-site:a:c" not in sites["a"].broker.sessions


def test_bridges_and_pages_see_what_is_published_at_their_gateway(sites: Sites) -> None:
    heard: list[bytes] = []
    InternalClient(sites["b"].engine, ["t"], lambda packet: heard.append(packet.payload))
    sites.pass_time(SOON_S)
    client = reader(sites, "b", "t")
    publisher(sites, "a").publish("t", "there", 1, wait=SOON_S)
    publisher(sites, "b").publish("t", "here", 1, wait=SOON_S)
    assert client.payloads == [b"there", b"here"]
    assert heard == [b"here"]


@pytest.mark.parametrize("up", [True, False])
def test_ended_session_of_a_member_begins_again(sites: Sites, up: bool) -> None:
    client = reader(sites, "b", "t")
    source = publisher(sites, "a")
    source.publish("t", "before", 1, wait=SOON_S)
    if not up:
        sites.part("a", "b")
    sites["a"].broker.end_session(sites["a"].broker.sessions["onceway-site:a:b"])
    sites.pass_time(2)
    if not up:
        sites.join("a", "b")
        sites.pass_time(SOON_S)
    source.publish("t", "after", 1, wait=SOON_S)
    assert client.payloads == [b"before", b"after"]


def test_members_do_not_count_as_clients(sites: Sites) -> None:
    before = take_figures(sites["b"].broker)
    assert (before.sessions, before.connected) == (0, 0)
    reader(sites, "b", "t")
    sites.pass_time(1)
    found = take_figures(sites["b"].broker)
    assert (found.sessions, found.connected, found.durable) == (1, 1, 1)
