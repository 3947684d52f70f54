"""Large payloads for many clients: one copy is in memory, and few bytes are encoded in advance."""

import pytest

from gateway.broker.connection import Connection
from gateway.mqtt.packets import Disconnect, Publish, Version
from gateway.mqtt.runs import LARGE
from gateway.runtime.client_link import ClientLink
from tests.broker.harness import Client, World

BIG = bytes(range(256)) * 1200
"""A payload that is too large for a transport's buffer."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes | memoryview]:
    """Return a list that receives the data of each write to a client's link."""
    found: list[bytes | memoryview] = []
    write = ClientLink.write

    def note(link: ClientLink, data: bytes | memoryview) -> None:
        found.append(data)
        write(link, data)

    monkeypatch.setattr(ClientLink, "write", note)
    return found


def receivers(world: World, qos: int) -> list[Client]:
    versions = (Version.V5, Version.V3_1_1, Version.V5)
    clients = [
        world.accepted(f"c{number}", version=version, answers=True)
        for number, version in enumerate(versions)
    ]
    for number, client in enumerate(clients):
        more = {"subscription_identifier": [7]} if number == 2 else {}
        client.subscribe("t", qos=qos, **more)
    return clients


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [LARGE - 1, LARGE, len(BIG)])
def test_all_receivers_of_a_large_payload_share_one_copy(
    qos: int, size: int, written: list[bytes | memoryview]
) -> None:
    world = World()
    clients = receivers(world, qos)
    sender = world.accepted("sender", answers=True)
    payload = BIG[:size]
    for _ in range(2):
        sender.publish("t", payload, qos)
    views = [data for data in written if isinstance(data, memoryview)]
    assert len(views) == (6 if size >= LARGE else 0)
    assert len({id(view.obj) for view in views}) == (2 if views else 0)
    for client in clients:
        found = client.take_all(Publish)
        assert [(item.payload, item.qos) for item in found] == [(payload, qos)] * 2


def test_a_link_that_does_not_read_holds_no_copy_and_each_payload_counts_once() -> None:
    world = World()
    clients = receivers(world, 0)
    for client in clients:
        client.reads = False
    world.accepted("sender").publish("t", BIG)
    links = [world.engine._links[client.connection] for client in clients]
    assert all(client.unsent <= client.high_water + LARGE * 2 for client in clients)
    assert [
        link.waiting + client.unsent > len(BIG) for link, client in zip(links, clients, strict=True)
    ] == [True] * 3
    assert len(world.engine.output._payloads) == 1
    for client in clients:
        client.reads = True
        client.read_on()
        assert [item.payload for item in client.take_all(Publish)] == [BIG]
    assert not world.engine.output._payloads
    assert world.engine.output.bytes == 0


@pytest.mark.parametrize("end", ["the client goes", "the broker closes", "the engine gives up"])
def test_memory_of_a_departed_client_is_freed(end: str) -> None:
    world = World(memory_bytes=1_000_000)
    client = receivers(world, 0)[0]
    client.reads = False
    sender = world.accepted("sender")
    sender.publish("t", BIG)
    assert world.engine.output._payloads
    if end == "the client goes":
        client.drop()
    elif end == "the broker closes":
        world.end_session("c0")
    else:
        for _ in range(9):
            sender.publish("t", BIG)
    assert end == "the client goes" or client.closed
    assert not world.engine.output._payloads
    assert world.engine.output.bytes == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_fast_client_gets_output_beyond_the_limit(qos: int) -> None:
    """The client reads so quickly that its transport never pauses writing. So no callback of the
    transport tells the engine to send more.
    """
    world = World(outgoing_bytes=2 * len(BIG))
    away = world.durable("away")
    away.subscribe("t", qos=qos)
    away.drop()
    sender = world.accepted("sender", answers=True)
    for _ in range(12):
        sender.publish("t", BIG, qos)
    client = world.durable("away", answers=True)
    world.turn()
    assert [item.payload for item in client.take_all(Publish)] == [BIG] * 12
    assert not world.engine._links[client.connection].stuck


def test_packets_behind_a_large_payload_stay_behind_it() -> None:
    world = World()
    client = receivers(world, 0)[0]
    client.reads = False
    sender = world.accepted("sender")
    for number in range(3):
        sender.publish("t", BIG)
        sender.publish("t", b"%d" % number)
    client.reads = True
    client.read_on()
    assert client.payloads == [BIG, b"0", BIG, b"1", BIG, b"2"]


@pytest.mark.parametrize("lingers", [False, True])
def test_a_small_rest_of_a_large_payload_is_sent_before_the_end(
    lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    client = receivers(world, 0)[0]
    if lingers:
        monkeypatch.setattr(Connection, "lingers", True)
        monkeypatch.setattr(Client, "linger", Client.close, raising=False)
    client.reads = False
    payload = BIG[: client.high_water + 40_000]
    world.accepted("sender").publish("t", payload)
    assert world.engine._links[client.connection].waiting > 0
    client.read_a_little()
    while client.unsent > 20_000:
        client.read_a_little()
    client.reads = True
    world.end_session("c0")
    while client._unread:
        client.read_a_little()
    world.turn()
    assert client.closed
    assert [type(item) for item in client.received] == [Publish, Disconnect]
