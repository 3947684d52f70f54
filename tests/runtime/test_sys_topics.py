"""`$SYS`: the broker's figures as topics, only for clients that subscribe to them."""

import pytest

from gateway.config import AclSection, ConfigError, GatewaySection, QueueSection, parse
from gateway.mqtt.packets import Connack, Puback, Publish, Pubrec, Subscription, Version, Will
from gateway.mqtt.reason import ReasonCode as R
from gateway.runtime.sys_topics import SystemTopics
from tests.broker.harness import World


def figures(packets: list[Publish]) -> dict[str, str]:
    return {
        packet.topic.removeprefix("$SYS/broker/"): packet.payload.decode() for packet in packets
    }


def test_a_new_subscriber_gets_every_figure_as_a_retained_message() -> None:
    world = World()
    world.durable("away").disconnect()
    publisher = world.accepted(answers=True)
    publisher.publish("spool/a", "12345", qos=2, retain=True)
    world.sleep(1)
    client = world.accepted()
    client.subscribe("$SYS/#")
    packets = client.take_all(Publish)
    assert all((packet.retain, packet.qos) == (True, 0) for packet in packets)
    found = figures(packets)
    assert found["version"].startswith("onceway version ")
    assert found["uptime"] == "1 seconds"
    assert (found["clients/total"], found["clients/connected"], found["clients/disconnected"]) == (
        "3",
        "2",
        "1",
    )
    assert (found["messages/received"], found["publish/messages/received"]) == ("1", "1")
    assert (found["retained messages/count"], found["spool/messages/count"]) == ("1", "1")
    assert int(found["bytes/received"]) > 0 < int(found["bytes/sent"])


def test_a_subscriber_hears_what_has_changed_each_interval() -> None:
    world = World()
    world.sleep(1)
    client = world.accepted()
    client.subscribe("$SYS/broker/uptime", "$SYS/broker/version")
    client.take_all(Publish)
    world.sleep(9)
    assert not client.take_all(Publish)
    world.sleep(1)
    (packet,) = client.take_all(Publish)
    assert (packet.topic, packet.payload, packet.retain) == (
        "$SYS/broker/uptime",
        b"11 seconds",
        False,
    )


@pytest.mark.parametrize("version", list(Version))
def test_wildcards_in_first_place_do_not_get_them(version: Version) -> None:
    world = World()
    world.sleep(1)
    client = world.accepted("c", version=version)
    client.subscribe("#", "+/broker/uptime", "+/#")
    world.sleep(10)
    assert not client.take_all(Publish)


def test_sys_topics_reach_neither_disk_nor_spool() -> None:
    world = World(queue=[QueueSection(qos_0=True)])
    world.durable("away").subscribe("$SYS/#")
    next(iter(world.clients.values())).disconnect()
    shared = world.durable("shared")
    shared.subscribe("$share/s/$SYS/#")
    world.broker.router.reconfigure(["#"], 128, 10_000_000)
    commits = len(world.commits)
    world.sleep(10)
    assert shared.take_all(Publish)
    assert len(world.commits) == commits
    assert (
        world.rows("SELECT count(*) FROM spool")
        == world.rows("SELECT count(*) FROM retained")
        == [(0,)]
    )
    assert world.broker.retained.count == 0
    with pytest.raises(ConfigError, match="are not kept for the uplink"):
        parse({"spool": {"topics": ["$SYS/#"]}}, "here")


def test_acl_decides_who_reads_sys_topics_and_no_client_writes_there() -> None:
    acl = [
        AclSection(clients=["admin"], read=["$SYS/#"], write=["#", "$SYS/#"]),
        AclSection(clients=["guest"], read=["#"]),
    ]
    world = World(acl=acl)
    world.sleep(1)
    admin, guest = world.accepted("admin"), world.accepted("guest")
    assert admin.subscribe("$SYS/#").reasons == [R.GRANTED_QOS_2]
    assert guest.subscribe("$SYS/#").reasons == [R.NOT_AUTHORIZED]
    known = figures(admin.take_all(Publish))
    admin.publish("$SYS/broker/uptime", "for ever", qos=1, retain=True)
    assert admin.received.pop(0).reason == R.NOT_AUTHORIZED
    world.sleep(10)
    assert figures(admin.take_all(Publish))["uptime"] == "11 seconds" != known["uptime"]
    assert not guest.take_all(Publish)


@pytest.mark.parametrize("version", [Version.V3_1_1, Version.V5])
def test_state_of_a_mosquitto_bridge_is_acknowledged_and_dropped(
    version: Version, caplog: pytest.LogCaptureFixture
) -> None:
    """mosquitto's bridge publishes its state below `$SYS` and has a will there by default, although
    its user has no right to do so. Other topics below `$SYS` are refused as before.
    """
    topic = "$SYS/broker/connection/host.b/state"
    reads = AclSection(clients=["r"], read=["$SYS/#"])
    world = World(acl=[AclSection(clients=["host.b"], write=["up/#"]), reads])
    reader = world.accepted("r")
    assert reader.subscribe("$SYS/broker/connection/#").reasons == [R.GRANTED_QOS_2]
    bridge = world.accepted("host.b", version=version, will=Will(topic, b"0", 1, True))
    assert not world.broker.wills
    for qos, answer in ((0, None), (1, Puback), (2, Pubrec)):
        bridge.publish(topic, "1", qos=qos, retain=True)
        if answer is not None:
            told = R.SUCCESS if version < Version.V5 else R.NO_MATCHING_SUBSCRIBERS
            assert bridge.take(answer).reason is told
    bridge.drop()
    world.sleep(60)
    reader.subscribe("$SYS/broker/connection/#")
    assert not reader.take_all(Publish)
    assert not caplog.records
    assert not world.broker.statistics.refused("publish")
    refused = world.connect("host.c", version=version, will=Will("$SYS/broker/load", b"0", 1, True))
    assert refused.take(Connack).reason == R.NOT_AUTHORIZED


def test_few_allowed_topic_levels_do_not_matter() -> None:
    world = World(topic_levels=1)
    world.sleep(1)
    client = world.accepted()
    client.subscribe(Subscription("$SYS/broker/publish/messages/received", 0))
    assert len(client.take_all(Publish)) == 1


def test_sys_topics_are_not_updated_without_a_subscriber(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.accepted()
    client.subscribe("#")
    monkeypatch.setattr("gateway.runtime.sys_topics.figures", lambda broker: pytest.fail("looked"))
    world.sleep(100)


def test_an_interval_of_0_makes_none() -> None:
    world = World()
    world.broker.config = world.config.model_copy(
        update={"gateway": GatewaySection(sys_interval_s=0)}
    )
    world.engine.system = SystemTopics(world.broker)
    client = world.accepted()
    client.subscribe("$SYS/#")
    world.sleep(100)
    assert not client.take_all(Publish)
