"""Sessions and retained messages as the commands show them. A closed store shows the same as the
running broker.
"""

from pathlib import Path

import pytest

from gateway.mqtt.packets import Puback, Publish, Pubrec, Will
from gateway.mqtt.properties import PropertyId
from gateway.runtime.session_rows import details, view
from gateway.store import views
from gateway.store.schema import FILE, StoreError, make_folder, open_store
from tests.broker.harness import World

EXPIRES_SOON = {PropertyId.SESSION_EXPIRY_INTERVAL: 300}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world whose store is a file in `tmp_path`."""
    make_folder(tmp_path)
    world = World(inflight=4)
    world.database.close()
    world.database = open_store(tmp_path, "test")
    world.start()
    return world


def a_mixed_lot(world: World) -> None:
    """Create three clients: one without messages, a publisher, and a subscriber. Some messages of
    the subscriber are queued, some are in flight, and some are released by PUBREL.
    """
    world.durable("quiet", properties=EXPIRES_SOON)
    busy = world.durable("busy")
    busy.subscribe("a/#", "$share/s/b", qos=2, subscription_identifier=[7])
    publisher = world.durable("publisher")
    for number in range(4):
        publisher.publish("a/b", f"payload {number}", qos=2)
    for number in range(3):
        publisher.publish("a/c", b"x" * number, qos=1)
    sent = busy.take_all(Publish)
    assert [packet.qos for packet in sent] == [2] * 4
    busy.send(Pubrec(sent[0].packet_id))
    busy.send(Pubrec(sent[1].packet_id, 0x80))
    (later,) = busy.take_all(Publish)
    busy.send(Puback(later.packet_id))
    world.commit()


def test_the_store_shows_a_session_as_the_broker_did(world: World, tmp_path: Path) -> None:
    a_mixed_lot(world)
    for client in list(world.clients.values()):
        client.drop()
    world.sleep(10)
    world.commit()
    live = [view(session, world.broker.now) for session in world.broker.sessions.values()]
    stored = views.sessions(tmp_path, None)
    assert [(item.client, item.expiry_s) for item in stored] == [
        ("quiet", 300),
        ("busy", None),
        ("publisher", None),
    ]
    assert [item.away_s is not None for item in stored] == [True] * 3
    without_time = [
        [getattr(item, name) for name in type(item).__slots__ if name != "away_s"] for item in live
    ]
    assert [
        [getattr(item, name) for name in type(item).__slots__ if name != "away_s"]
        for item in stored
    ] == without_time
    busy, publisher = stored[1:]
    assert (busy.queued, busy.inflight, busy.subscriptions) == (4, 4, 2)
    assert (publisher.receiving, publisher.queued) == (4, 0)


def test_a_connected_session_shows_its_connection(world: World) -> None:
    client = world.durable("c", properties=EXPIRES_SOON)
    client.subscribe("a", qos=1)
    found = details(world.broker.sessions["c"], world.broker.now)
    assert (found["connected"], found["address"], found["version"], found["away_s"]) == (
        True,
        "memory",
        "5.0",
        None,
    )
    (wanted,) = found["subscriptions"]
    assert (wanted["topic_filter"], wanted["qos"], wanted["identifier"]) == ("a", 1, None)


def test_the_subscriptions_in_the_store_are_those_of_the_broker(
    world: World, tmp_path: Path
) -> None:
    a_mixed_lot(world)
    found = views.session(tmp_path, "busy", None)
    assert found is not None
    live = details(world.broker.sessions["busy"], world.broker.now)
    assert sorted(found["subscriptions"], key=str) == sorted(live["subscriptions"], key=str)
    assert {item["topic_filter"]: item["identifier"] for item in found["subscriptions"]} == {
        "a/#": 7,
        "$share/s/b": 7,
    }
    assert views.session(tmp_path, "nobody", None) is None


def test_a_session_that_was_ordered_to_end_ends_at_the_next_start_with_everything_due(
    world: World, tmp_path: Path
) -> None:
    other = world.durable("other")
    other.subscribe("wills/#", qos=1)
    one = world.durable(
        "one", will=Will("wills/one", b"gone", 1, properties={PropertyId.WILL_DELAY_INTERVAL: 1000})
    )
    one.subscribe("t", "$share/s/work", qos=1)
    other.drop()
    one.drop()
    world.accepted(answers=True).publish("work", "to do", qos=1)
    world.accepted("late").drop()
    assert views.end_session(world.database, "one")
    assert not views.end_session(world.database, "one")
    assert not views.end_session(world.database, "nobody")
    assert [item.client for item in views.sessions(tmp_path, None)] == ["other"]
    world.power_cut()
    world.sleep(1)
    assert list(world.broker.sessions) == ["other"]
    assert world.rows("SELECT client FROM session") == [("other",)]
    assert world.rows(
        "SELECT count(*) FROM queue JOIN session ON session = id WHERE client = 'one'"
    ) == [(0,)]
    again = world.durable("other")
    assert [packet.payload for packet in again.take_all(Publish)] == [b"gone"]


def test_retained_messages_are_listed_by_topic(world: World, tmp_path: Path) -> None:
    client = world.accepted("p", answers=True)
    client.publish(
        "b", "12345", qos=1, retain=True, properties={PropertyId.MESSAGE_EXPIRY_INTERVAL: 60}
    )
    client.publish("a", "1", qos=2, retain=True)
    world.commit()
    a, b = views.retained(tmp_path, None)
    assert (a.topic, a.client, a.qos, a.bytes, a.expires_s) == ("a", "p", 2, 1, None)
    assert (b.topic, b.bytes) == ("b", 5)
    assert b.expires_s is not None
    assert 0 < b.expires_s <= 60


def test_folder_without_a_store_is_reported_in_words(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        views.sessions(tmp_path, None)
    (tmp_path / FILE).write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match="cannot be read"):
        views.retained(tmp_path, None)
