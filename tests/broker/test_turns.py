"""The work in one turn of the event loop, and in one commit."""

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Puback, Publish, Version
from tests.broker.harness import Client, World

V5 = Version.V5


def bring(world: World, client: Client, packet_id: int) -> None:
    """Publish from a client, and run only the work that is ready."""
    client.bring(encode(Publish("t", b"%d" % packet_id, 1, packet_id), V5))
    world.turn(moment=0)


def let_go_together(world: World) -> tuple[Client, list[Client]]:
    """Return a subscriber, and clients that have all received PUBACK after the same commit."""
    reader = world.durable("reader")
    reader.subscribe("t", qos=1)
    first, *clients = [world.accepted(f"c{number}") for number in range(6)]
    world.slow_disk = True
    for client in (first, *clients):
        bring(world, client, 1)
    world.slow_disk = False
    world.turn(moment=0)
    assert [client.take_all() for client in clients] == [[Puback(1)]] * 5
    reader.take_all()
    return reader, clients


def test_packets_of_clients_released_together_share_one_commit() -> None:
    """A commit takes about as long for a hundred messages as for one, and so does a turn. So the
    broker waits a moment for packets of all released clients.
    """
    world = World()
    reader, clients = let_go_together(world)
    commits = len(world.commits)
    for client in clients[:-1]:
        bring(world, client, 2)
    assert (len(world.commits), reader.payloads) == (commits, [])
    bring(world, clients[-1], 2)
    assert (len(world.commits), reader.payloads) == (commits + 1, [b"2"] * 5)
    assert [client.take_all() for client in clients] == [[Puback(2)]] * 5


def test_a_client_that_sends_nothing_is_waited_for_a_moment_only() -> None:
    world = World()
    reader, clients = let_go_together(world)
    for client in clients[:-1]:
        bring(world, client, 2)
    assert [client.received for client in clients] == [[]] * 5
    world.turn()
    assert [client.received for client in clients] == [[Puback(2)]] * 4 + [[]]
    assert reader.payloads == [b"2"] * 4


def test_lone_client_does_not_wait() -> None:
    world = World()
    world.durable("reader").subscribe("t", qos=1)
    client = world.accepted("c")
    for packet_id in (1, 2, 3):
        bring(world, client, packet_id)
        assert client.take_all() == [Puback(packet_id)]


def test_messages_queued_in_one_turn_leave_in_one_write() -> None:
    world = World()
    reader = world.durable("reader")
    reader.subscribe("#", qos=1)
    written: list[bytes] = []
    reader.write = written.append  # type: ignore[method-assign]
    clients = [world.accepted(f"c{number}") for number in range(5)]
    for number, client in enumerate(clients):
        client.bring(encode(Publish(f"t/{number}", b"x", 1, 1), V5))
        assert written == []
    world.turn()
    (data,) = written
    assert [data.count(b"t/%d" % number) for number in range(5)] == [1] * 5
