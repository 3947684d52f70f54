"""All gateways of a site have the same retained messages, whatever happens between them."""

import logging
import random
import sqlite3
from dataclasses import replace

import pytest

from gateway.boards.shared_settings import share
from gateway.broker.retained import Retained
from gateway.broker.retained_changes import DELETION_S
from gateway.broker.store_rows import Commit
from gateway.mirror.announce import announce
from gateway.mqtt.packets import Connack, Connect, Publish, Subscription, Version, Will
from gateway.mqtt.properties import PropertyId
from gateway.runtime.internal_client import InternalClient
from gateway.site.shared_state.retained import FIRST
from gateway.site.shared_state.retained_entry import MOST_VERSION
from gateway.site.wiring.retained import take
from gateway.store.apply import apply
from tests.broker.harness import Client
from tests.site.wiring.test_forwarding import SOON_S, Peer, publisher, reader
from tests.site.wiring.test_local_member import Sites

NOON = 1_800_000_000_000_000
"""Microseconds since 1970, UTC."""


@pytest.fixture
def sites() -> Sites:
    return Sites("a", "b", "c")


def held(sites: Sites, name: str) -> dict[str, bytes]:
    messages = sites[name].broker.retained.everything()
    return {item.topic: item.payload for item in messages if item.payload}


def know_the_time(sites: Sites, *names: str) -> None:
    for name in names:
        clock = sites[name].clock
        clock.utc = lambda: NOON + int(sites.now * 1_000_000)  # type: ignore[method-assign]
    sites.pass_time(1)


def restart(sites: Sites, name: str) -> None:
    sites.members[name].power_cut()
    for other in sites.names:
        if other != name:
            sites.join(name, other)
    sites.pass_time(SOON_S)


def apart(sites: Sites, name: str) -> None:
    for other in sites.names:
        sites.part(name, other)


def together(sites: Sites) -> None:
    for name in sites.names:
        for other in sites.names:
            if name < other and frozenset((name, other)) not in sites.links:
                sites.join(name, other)
    sites.pass_time(2)


def retain(sites: Sites, name: str, topic: str, payload: str, qos: int = 1, **more: object) -> None:
    client = publisher(sites, name)
    client.publish(topic, payload, qos, wait=SOON_S, retain=True, **more)
    client.client.break_line()
    sites.settle()


def source(sites: Sites, name: str) -> Client:
    """Return a publisher for whose session no other member is asked."""
    world = sites[name]
    client = world.open(answers=True, policy=replace(world.policy, never_moves=True))
    client.send(Connect("source", Version.V5))
    client.take(Connack)
    return client


def test_later_subscriber_gets_retained_messages_of_another_gateway(sites: Sites) -> None:
    more = {PropertyId.USER_PROPERTY: [("k", "v")]}
    retain(sites, "a", "t/1", "m", 2, properties=more)
    retain(sites, "a", "t/2", "n", 0)
    first, second = reader(sites, "b", "t/#").client.take_all(Publish)
    assert (first.topic, first.payload, first.qos, first.retain) == ("t/1", b"m", 2, True)
    assert first.properties == more
    assert (second.topic, second.payload, second.qos, second.retain) == ("t/2", b"n", 0, True)


def test_connected_subscriber_gets_a_message_once(sites: Sites) -> None:
    clients = [reader(sites, name, Subscription("t", 2, retain_as_published=True)) for name in "bc"]
    retain(sites, "a", "t", "m")
    for client in clients:
        assert client.payloads == [b"m"]


def test_deletion_goes_to_all_members_even_without_the_message(sites: Sites) -> None:
    retain(sites, "a", "t", "m")
    apart(sites, "c")
    retain(sites, "a", "u", "m")
    retain(sites, "c", "u", "")
    retain(sites, "b", "t", "")
    together(sites)
    for name in sites.names:
        assert held(sites, name) == {}
    assert reader(sites, "c", "#").payloads == []


def test_expiry_is_shared_and_expired_messages_stay_away(sites: Sites) -> None:
    more = {PropertyId.MESSAGE_EXPIRY_INTERVAL: 10}
    retain(sites, "a", "t", "m", properties=more)
    sites.pass_time(3)
    (packet,) = reader(sites, "b", "t").client.take_all(Publish)
    assert 5 <= packet.properties[PropertyId.MESSAGE_EXPIRY_INTERVAL] <= 7
    sites.pass_time(9)
    for _ in range(3):
        for name in sites.names:
            restart(sites, name)
    for name in sites.names:
        assert held(sites, name) == {}


def test_an_expired_message_leaves_no_room_for_an_older_one(sites: Sites) -> None:
    retain(sites, "a", "t", "old")
    apart(sites, "b")
    retain(sites, "a", "t", "new", properties={PropertyId.MESSAGE_EXPIRY_INTERVAL: 5})
    sites.pass_time(10)
    assert held(sites, "b") == {"t": b"old"}
    together(sites)
    for name in sites.names:
        assert held(sites, name) == {}
    before = [set(sites[name].broker.retained.deletions) for name in sites.names]
    assert before == [{"t"}] * 3


def test_after_a_partition_the_later_one_by_the_clock_holds_at_all(sites: Sites) -> None:
    know_the_time(sites, *sites.names)
    apart(sites, "a")
    for number in range(5):
        retain(sites, "a", "t", f"a{number}")
    retain(sites, "a", "u", "old")
    sites.pass_time(1)
    retain(sites, "b", "t", "b, later")
    retain(sites, "b", "u", "")
    together(sites)
    for name in sites.names:
        assert held(sites, name) == {"t": b"b, later"}


def told(sites: Sites, name: str) -> str:
    """Return the reports of a member about lost changes since the last call."""
    lost = sites.members[name].lost
    text = "\n".join(lost)
    lost.clear()
    return text


def test_lost_setting_of_a_board_is_reported(sites: Sites) -> None:
    """During a partition, two people set the same value at both sides."""
    know_the_time(sites, *sites.names)
    apart(sites, "a")
    for name, seconds in (("a", 300.0), ("b", 600.0)):
        share(sites[name].engine, "roof-1", "interval", seconds)
        sites.pass_time(1)
    together(sites)
    for name, where in (("a", "here"), ("b", "at a")):
        assert f"'$onceway/boards/roof-1/interval' of a person {where}" in told(sites, name)


def test_lost_change_of_a_topic_that_was_changed_on_both_sides_is_reported(sites: Sites) -> None:
    know_the_time(sites, *sites.names)
    retain(sites, "a", "both", "before")
    retain(sites, "b", "mine", "before")
    apart(sites, "a")
    retain(sites, "a", "both", "a")
    retain(sites, "a", "mine", "a")
    retain(sites, "b", "both", "b")
    assert not any(told(sites, name) for name in sites.names)
    together(sites)
    assert "link to b; the older change is lost: 'both' of 'publisher-a' here" in told(sites, "a")
    assert "link to a; the older change is lost: 'both' of 'publisher-a' at a" in told(sites, "b")
    retain(sites, "b", "both", "later")
    retain(sites, "a", "both", "latest")
    apart(sites, "a")
    retain(sites, "a", "both", "one side")
    together(sites)
    assert not any(told(sites, name) for name in "ab")


def test_lost_changes_of_gateways_that_ran_in_turn_are_reported(sites: Sites) -> None:
    know_the_time(sites, *sites.names)
    retain(sites, "a", "t", "before")
    apart(sites, "a")
    retain(sites, "b", "t", "b")
    sites.members["a"].power_cut()
    know_the_time(sites, "a")
    retain(sites, "a", "t", "a")
    together(sites)
    assert "'t' of 'publisher-b' at b" in told(sites, "a")
    assert "'t' of 'publisher-b' here" in told(sites, "b")


def test_replaced_message_without_a_loss_is_not_reported(sites: Sites) -> None:
    """No change is lost if the same client published both messages, if the older message has
    expired, or if both messages are equal.
    """
    know_the_time(sites, *sites.names)
    retain(sites, "a", "short", "m", properties={PropertyId.MESSAGE_EXPIRY_INTERVAL: 30})
    apart(sites, "a")
    sites.pass_time(31)
    retain(sites, "b", "short", "new")
    for name in "ab":
        client = Peer(sites, name, "hops", clean=True)
        client.publish("t", name, 1, wait=SOON_S, retain=True)
        client.client.break_line()
        sites.settle()
        retain(sites, name, "same", "online")
    together(sites)
    assert not any(told(sites, name) for name in sites.names)


def test_replacement_wins_with_any_clock(sites: Sites) -> None:
    know_the_time(sites, "a")
    retain(sites, "a", "t", "a")
    retain(sites, "b", "t", "b, without a clock, has heard of it")
    for name in sites.names:
        assert held(sites, name) == {"t": b"b, without a clock, has heard of it"}


def test_a_version_at_its_end_costs_no_link_and_all_agree(sites: Sites) -> None:
    """A faulty member has sent a retained message with the highest version number."""
    mad = Retained("t", "c", 0, b"mad", version=MOST_VERSION)
    sites["c"].broker.changes.urgent = take(sites["c"].broker, mad)
    sites.pass_time(1)
    retain(sites, "c", "u", "so that there is a commit")
    assert held(sites, "a")["t"] == b"mad"
    retain(sites, "a", "t", "not mad")
    restart(sites, "a")
    assert held(sites, "a") == held(sites, "b") == held(sites, "c")


def test_a_member_that_has_restarted_goes_on_where_it_was(sites: Sites) -> None:
    retain(sites, "a", "t", "1")
    retain(sites, "a", "gone", "1")
    retain(sites, "a", "gone", "")
    sites.pass_time(2)
    before = [set(sites[name].broker.retained.everything()) for name in sites.names]
    for name in sites.names:
        restart(sites, name)
    assert [held(sites, name) for name in sites.names] == [{"t": b"1"}] * 3
    after = [set(sites[name].broker.retained.everything()) for name in sites.names]
    assert [{item.version for item in found} for found in after] == [
        {item.version for item in found} for found in before
    ]
    sites.frames.clear()
    sites.part("a", "b")
    sites.join("a", "b")
    sites.pass_time(SOON_S)
    assert not sites.members["a"].retained.sharing.owed["b"]


def test_a_restored_store_brings_nothing_back(sites: Sites) -> None:
    retain(sites, "a", "changed", "old")
    retain(sites, "a", "deleted", "old")
    backup = sqlite3.connect(":memory:")
    sites["a"].database.backup(backup)
    retain(sites, "a", "changed", "new")
    retain(sites, "b", "deleted", "")
    backup.backup(sites["a"].database)
    restart(sites, "a")
    for name in sites.names:
        assert held(sites, name) == {"changed": b"new"}


def test_retained_messages_from_before_the_site_are_shared_as_oldest(
    sites: Sites,
) -> None:
    retain(sites, "a", "t", "new")
    apart(sites, "b")
    commit = Commit(9, retained=[(topic, "c", 1, b"", None, b"\1", None) for topic in "tu"])
    apply(sites["b"].database, commit)
    sites.members["b"].power_cut()
    together(sites)
    for name in sites.names:
        assert held(sites, name) == {"t": b"new", "u": b"\1"}


def test_a_will_that_is_retained_is_shared(sites: Sites) -> None:
    client = sites["a"].open()
    sites.say(client, Connect("w", Version.V5, True, will=Will("t", b"gone", 1, True)), wait=0.5)
    client.take(Connack)
    client.break_line()
    sites.pass_time(SOON_S)
    assert held(sites, "c") == {"t": b"gone"}


def test_retained_messages_of_the_gateway_itself_are_not_shared(sites: Sites) -> None:
    retain(sites, "b", "said", "by a client")
    announce(sites["a"].broker, "said", b"by a")
    announce(sites["a"].broker, "mine", b"by a")
    retain(sites, "b", "said", "by a client again")
    together(sites)
    assert held(sites, "a") == {"said": b"by a", "mine": b"by a"}
    assert held(sites, "b") == held(sites, "c") == {"said": b"by a client again"}


def test_bridges_get_nothing_by_it(sites: Sites) -> None:
    heard: list[bytes] = []
    InternalClient(sites["b"].engine, ["t"], lambda packet: heard.append(packet.payload))
    sites.pass_time(SOON_S)
    retain(sites, "a", "t", "m")
    assert held(sites, "b") == {"t": b"m"}
    assert heard == []


def test_a_message_without_retain_costs_no_byte(sites: Sites) -> None:
    sites.frames.clear()
    publisher(sites, "a").publish("t", "m", 1)
    assert not [frame for frame in sites.frames if frame[2][0] >= FIRST]


def test_retained_message_is_forwarded_after_its_commit(sites: Sites) -> None:
    source = publisher(sites, "a")
    sites["a"].slow_disk = True
    source.publish("spool/x", "the commit before", 1, wait=0.1)
    source.publish("t", "m", 1, wait=0.5, retain=True)
    assert held(sites, "b") == {}
    sites["a"]._writer.work(commits=True)
    sites.pass_time(0.1)
    assert held(sites, "b") == {}
    sites["a"].slow_disk = False
    sites.pass_time(SOON_S)
    assert held(sites, "b") == {"t": b"m"}


def test_a_topic_that_changes_often_costs_the_other_a_commit_a_second() -> None:
    sites = Sites("a", "b")
    source = publisher(sites, "a")
    before = len(sites["b"].commits)
    for number in range(100):
        source.publish("t", str(number), 1, wait=0.02, retain=True)
    sites.pass_time(1.5)
    assert held(sites, "b") == {"t": b"99"}
    assert len(sites["b"].commits) - before <= 5
    (row,) = sites["b"].rows("SELECT payload FROM retained")
    assert row == (b"99",)


def test_each_member_keeps_its_own_bounds(sites: Sites, caplog: pytest.LogCaptureFixture) -> None:
    world = sites["b"]
    world.broker.limits = world.broker.limits.model_copy(update={"retained_bytes": 200})
    retain(sites, "a", "t", "fits")
    assert held(sites, "b") == {"t": b"fits"}
    with caplog.at_level(logging.WARNING):
        retain(sites, "a", "t", "x" * 300)
    assert held(sites, "b") == {}, "the one that it replaces is over"
    assert "it is beyond a limit" in caplog.text
    assert sites.members["b"].retained.figures()["retained_left_out"]
    assert held(sites, "c") == {"t": b"x" * 300}


def test_a_full_disk_makes_the_others_wait(sites: Sites) -> None:
    sites["b"].disk_full(True)
    retain(sites, "a", "t", "m")
    sites.pass_time(3)
    assert held(sites, "b") == {}
    assert sites.members["a"].retained.figures()["retained_waiting"] == 1
    sites["b"].disk_full(False)
    sites.pass_time(3)
    assert held(sites, "b") == {"t": b"m"}
    assert sites.members["a"].retained.figures()["retained_waiting"] == 0


def test_entries_that_wait_for_the_disk_are_dropped_with_the_link(sites: Sites) -> None:
    """The member sends the entries again over the next link. If waiting entries outlived their
    link, memory would grow with each link that ends.
    """
    sites["b"].disk_full(True)
    retain(sites, "a", "t", "m")
    sites.pass_time(1)
    timers = len(sites["b"].loop._later)
    for _ in range(10):
        sites.part("a", "b")
        sites.join("a", "b")
        sites.pass_time(1)
    assert len(sites["b"].loop._later) < timers + 5
    sites["b"].disk_full(False)
    sites.pass_time(3)
    assert held(sites, "b") == {"t": b"m"}


def test_deletions_have_a_bound_and_an_end() -> None:
    sites = Sites("a", "b", retained_bytes=16 * 1000)
    for number in range(20):
        retain(sites, "a", f"t{number}", "")
    for name in sites.names:
        retained = sites[name].broker.retained
        assert [*retained.deletions] == ["t16", "t17", "t18", "t19"]
        assert retained.deletion_bytes <= 1000
    sites.pass_time(2)
    assert len(sites["b"].rows("SELECT * FROM retained")) == 4
    restart(sites, "b")
    for name in sites.names:
        world = sites[name]
        world.broker.now += DELETION_S + 10
        world.broker.advance()
        assert not world.broker.retained.deletions
        assert world.broker.retained.deletion_bytes == 0
        world.turn()
    sites.pass_time(2)
    assert not sites["b"].rows("SELECT * FROM retained")


@pytest.mark.parametrize("seed", range(12))
def test_members_agree_after_any_order_of_cuts_and_restarts(seed: int) -> None:
    rng = random.Random(seed)
    sites = Sites("a", "b", "c")
    if seed % 2:
        know_the_time(sites, *rng.sample(sites.names, 2))
    sources = {name: source(sites, name) for name in sites.names}
    last: dict[str, str] = {}
    for step in range(60):
        do, name = rng.randrange(8), rng.choice(sites.names)
        pair = rng.sample(sites.names, 2)
        if do == 0:
            sites.part(*pair)
        elif do == 1 and frozenset(pair) not in sites.links:
            sites.join(*pair)
        elif do == 2 and rng.random() < 0.3:
            sites.members[name].power_cut()
            sources[name] = source(sites, name)
        elif do == 3:
            for _ in range(rng.randrange(5)):
                sites.step()
        else:
            topic = rng.choice("tuvw")
            last[topic] = "" if rng.random() < 0.3 else f"{topic}{step}"
            sources[name].publish(topic, last[topic], rng.randrange(3), retain=True)
    together(sites)
    assert held(sites, "a") == held(sites, "b") == held(sites, "c"), seed
    for topic in "tuvw":  # a change that all members get is the last one
        retain(sites, rng.choice(sites.names), topic, "last")
    assert [held(sites, name) for name in sites.names] == [dict.fromkeys("tuvw", b"last")] * 3
