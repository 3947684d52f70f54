"""The part of a shared bound that one origin (a user, or else an address) may use, and the room
that the broker makes by ending empty sessions.
"""

from typing import Any

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Version, Will
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World
from tests.broker.test_quotas import NAMED

HOUR_S = 3601.0
USERS = (None, "alice")


def arrive(world: World, name: str, address: str, user: str | None = None, **more: Any) -> R:
    client, connack = greet(world, name, address, user, **more)
    if connack.reason == R.SUCCESS:
        client.drop()
    return connack.reason


def greet(
    world: World, name: str, address: str, user: str | None = None, **more: Any
) -> tuple[Client, Connack]:
    """Connect a client from an address. Return the client and its CONNACK."""
    client = world.open(address=f"{address}:1", policy=NAMED if user else None)
    client.send(Connect(name, Version.V5, False, properties=FOREVER, username=user, **more))
    return client, client.take(Connack)


def fill(world: World, address: str, user: str | None = None, most: int = 200) -> int:
    for number in range(most):
        if arrive(world, f"{address}-{number}", address, user) != R.SUCCESS:
            return number
    return most


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("restart", [False, True])
def test_one_origin_leaves_a_fifth_of_the_sessions_to_others(
    user: str | None, restart: bool
) -> None:
    world = World(sessions=50)
    assert fill(world, "10.0.0.1", user) == 40
    if restart:
        world.commit()
        world.power_cut()
    addresses = ["10.0.0.1", "10.0.0.2"] if user else ["10.0.0.1"]
    for address in addresses:
        assert arrive(world, f"more-{address}", address, user) == R.QUOTA_EXCEEDED
    assert arrive(world, "10.0.0.1-3", "10.0.0.1", user) == R.SUCCESS, "its own session"
    assert fill(world, "10.0.0.9") == 10
    assert arrive(world, "x", "10.0.0.9", "bob") == R.QUOTA_EXCEEDED, "now there is no room at all"


def test_user_and_address_of_the_same_name_are_two_origins() -> None:
    world = World(sessions=50)
    assert fill(world, "10.0.0.1") == 40
    assert arrive(world, "x", "10.0.0.1", "10.0.0.1") == R.SUCCESS
    assert arrive(world, "y", "10.0.0.1", "alice") == R.SUCCESS


def test_a_board_is_let_in_when_sessions_are_full() -> None:
    world = World(sessions=10)
    assert fill(world, "10.0.0.1") == 8
    assert fill(world, "10.0.0.2") == 2
    world.accepted("board", device=DeviceIdentity("board", 7, 1))


@pytest.mark.parametrize("restart", [False, True])
def test_sessions_that_hold_nothing_make_room_after_an_hour_the_oldest_first(
    restart: bool,
) -> None:
    world = World(sessions=10)
    assert fill(world, "10.0.0.2") == 8
    world.sleep(10)
    assert fill(world, "10.0.0.1") == 2
    if restart:
        world.power_cut()
    world.sleep(HOUR_S - 15)
    assert arrive(world, "early", "10.0.0.3") == R.QUOTA_EXCEEDED
    world.sleep(6)
    for number in range(8):
        assert arrive(world, f"new-{number}", "10.0.0.3") == R.SUCCESS
        assert f"10.0.0.2-{number}" not in world.broker.sessions
    assert len(world.broker.sessions) == 10
    assert "10.0.0.1-0" in world.broker.sessions
    world.sleep(20)
    assert arrive(world, "last", "10.0.0.4") == R.SUCCESS
    assert "10.0.0.1-0" not in world.broker.sessions


def test_an_origin_makes_room_among_its_own_sessions() -> None:
    world = World(sessions=50)
    assert arrive(world, "other", "10.0.0.2") == R.SUCCESS
    assert fill(world, "10.0.0.1") == 40
    world.sleep(HOUR_S)
    assert arrive(world, "one more", "10.0.0.1") == R.SUCCESS
    assert "10.0.0.1-0" not in world.broker.sessions
    assert "other" in world.broker.sessions


@pytest.mark.parametrize(
    "holds", ["subscription", "message", "identifier", "sent", "will", "connection"]
)
def test_a_session_that_holds_something_makes_no_room(holds: str) -> None:
    world = World(sessions=1)
    delay = {PropertyId.WILL_DELAY_INTERVAL: 90_000}
    will = Will("w", b"x", properties=delay) if holds == "will" else None
    client, connack = greet(world, "a", "10.0.0.1", will=will)
    assert connack.reason == R.SUCCESS
    if holds in ("subscription", "message", "sent"):
        client.subscribe("t", qos=2)
    if holds == "identifier":
        client.send(Publish("t", b"x", 2, 7))
    if holds in ("message", "sent"):
        if holds == "message":
            client.drop()
        world.accepted("p", device=DeviceIdentity("p", 7, 1)).publish("t", b"x", 1, 1)
        session = world.broker.sessions["a"]
        assert session.send_flow.holds_messages
        if holds == "message":
            world.broker.router.unsubscribe(session, "t")
        world.end_session("p")
    if holds != "connection":
        client.drop()
    world.sleep(2 * HOUR_S)
    assert arrive(world, "b", "10.0.0.2") == R.QUOTA_EXCEEDED
    assert "a" in world.broker.sessions


def retain(client: Client, topic: str, payload: bytes = b"x") -> R:
    client.send(Publish(topic, payload, 1, 1, retain=True))
    return client.take(Puback).reason


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("topic", ["t", "$t"])
def test_one_origin_leaves_a_fifth_of_the_retained_messages_to_others(
    user: str | None, restart: bool, topic: str
) -> None:
    world = World(retained=50)
    client, _ = greet(world, "a", "10.0.0.1", user)
    reasons = [retain(client, f"{topic}/{number}") for number in range(41)]
    assert reasons == [R.SUCCESS] * 40 + [R.QUOTA_EXCEEDED]
    assert retain(client, f"{topic}/7", b"again") == R.SUCCESS
    if restart:
        world.commit()
        world.power_cut()
        client, _ = greet(world, "again", "10.0.0.1", user)
        assert retain(client, f"{topic}/x") == R.QUOTA_EXCEEDED
    other, _ = greet(world, "b", "10.0.0.2")
    assert [retain(other, f"o/{number}") for number in range(11)] == [R.SUCCESS] * 10 + [
        R.QUOTA_EXCEEDED
    ]
    assert retain(client, f"{topic}/3", b"") == R.SUCCESS
    assert retain(client, f"{topic}/new") == R.SUCCESS, "what it has cleared, it may have again"
    assert world.rows("SELECT count(*) FROM origin WHERE kind = 'retained'") == [(50,)]


def test_the_bytes_of_retained_messages_have_a_reserve_too() -> None:
    world = World(retained_bytes=1000)
    client, _ = greet(world, "a", "10.0.0.1")
    assert retain(client, "t", bytes(799)) == R.SUCCESS
    assert retain(client, "u", b"x") == R.QUOTA_EXCEEDED
    other, _ = greet(world, "b", "10.0.0.2")
    assert retain(other, "t", bytes(700)) == R.SUCCESS, "the topic is another's now"
    assert retain(client, "u", bytes(200)) == R.SUCCESS


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("restart", [False, True])
def test_one_origin_leaves_a_part_of_the_spool_to_others_and_to_boards(
    user: str | None, restart: bool
) -> None:
    world = World(spool_bytes=100_000, devices_share=0.1)

    def put(client: Client) -> R:
        client.send(Publish("spool/t", bytes(1000 - 71), 1, 1))
        return client.take(Puback).reason

    client, _ = greet(world, "a", "10.0.0.1", user)
    taken = 0
    while put(client) == R.SUCCESS:
        taken += 1
    assert taken == 72
    if restart:
        client.drop()
        world.end_session("a")
        world.commit()
        world.power_cut()
        client, _ = greet(world, "again", "10.0.0.1", user)
        again = 0
        while put(client) == R.SUCCESS:
            again += 1
        assert again <= 1
        taken += again
    other, _ = greet(world, "b", "10.0.0.2")
    others = 0
    while put(other) == R.SUCCESS:
        others += 1
    assert taken + others == 90
    board = world.accepted("board", device=DeviceIdentity("board", 7, 1))
    assert put(board) == R.SUCCESS
    world.broker.spool.landed(1_000)
    world.commit()
    assert put(client) == R.SUCCESS
    assert put(other) == R.SUCCESS


def test_origins_that_use_nothing_are_forgotten() -> None:
    world = World()
    for number in range(50):
        client, _ = greet(world, f"c{number}", f"10.0.1.{number}")
        client.disconnect()
        world.end_session(f"c{number}")
    world.sleep(2)
    assert not world.broker.origins._all
    assert world.rows("SELECT * FROM origin") == []


def seats(world: World, address: str, most: int = 60) -> list[Client]:
    """Connect clients from an address until the broker refuses one. Return the accepted clients."""
    found = []
    for number in range(most):
        client, connack = greet(world, f"{address}-{number}", address)
        if connack.reason != R.SUCCESS:
            assert connack.reason == R.QUOTA_EXCEEDED
            break
        found.append(client)
    return found


def test_when_connections_are_full_the_greedy_origin_makes_room_for_others() -> None:
    """A single origin may use all connections. If another origin then needs a connection, the
    broker ends one of the first origin.
    """
    world = World(connections=50)
    greedy = seats(world, "10.0.0.1")
    assert len(greedy) == 50
    board = world.accepted("board", device=DeviceIdentity("board", 7, 1))
    others = seats(world, "10.0.0.9")
    assert len(others) == 10
    assert [client.closed for client in greedy] == [True] * 10 + [False] * 40
    assert {client.take(Disconnect).reason for client in greedy[:10]} == {R.QUOTA_EXCEEDED}
    assert not any(client.closed for client in (board, *others))
    assert arrive(world, "more", "10.0.0.1") == R.QUOTA_EXCEEDED
    assert arrive(world, "10.0.0.9-3", "10.0.0.9") == R.SUCCESS, "it takes its own session over"
    board.drop()
    assert seats(world, "10.0.0.8", 1), "that connection has gone"
    assert world.broker.attached.total == len(world.broker.connections) == 50
    for client in list(world.clients.values()):
        client.drop()
    assert (world.broker.attached.total, world.broker.attached._of) == (0, {})


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("restart", [False, True])
def test_one_origin_leaves_a_fifth_of_the_wills_to_others(user: str | None, restart: bool) -> None:
    world = World(will_bytes=50 * 1000)
    delay = {PropertyId.WILL_DELAY_INTERVAL: 1000}
    will = Will("t", bytes(1000 - 257), properties=delay)
    mine = [greet(world, f"a{number}", "10.0.0.1", user, will=will) for number in range(41)]
    assert [connack.reason for _, connack in mine] == [R.SUCCESS] * 40 + [R.QUOTA_EXCEEDED]
    if restart:
        world.commit()
        world.power_cut()
        _, connack = greet(world, "again", "10.0.0.1", user, will=will)
        assert connack.reason == R.QUOTA_EXCEEDED
    assert greet(world, "a7", "10.0.0.1", user, will=will)[1].reason == R.SUCCESS, "in place of it"
    others = [greet(world, f"b{number}", "10.0.0.2", will=will)[1].reason for number in range(11)]
    assert others == [R.SUCCESS] * 10 + [R.QUOTA_EXCEEDED]
    for name in list(world.broker.sessions):
        world.end_session(name)
    world.commit()
    assert (world.broker.will_use.total, world.broker.will_use._of) == (0, {})


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("deep", [False, True])
def test_one_origin_leaves_a_fifth_of_the_subscriptions_to_others(
    user: str | None, restart: bool, deep: bool
) -> None:
    world = World(memory_bytes=10_000_000 if deep else 100_000)

    def ask(client: Client) -> int:
        filters = [f"{n}/+/{'/'.join('x' * 110)}" if deep else f"{n}" * 20 for n in range(1000)]
        granted = 0
        for at in range(0, 1000, 50):
            granted += client.subscribe(*filters[at : at + 50], qos=0).reasons.count(0)
        return granted

    client, _ = greet(world, "a", "10.0.0.1", user)
    mine = ask(client)
    if restart:
        world.commit()
        world.power_cut()
    client, _ = greet(world, "a2", "10.0.0.1", user)
    assert client.subscribe(f"more/+/{'/'.join('x' * 110)}").reasons == [R.QUOTA_EXCEEDED]
    other, _ = greet(world, "b", "10.0.0.2")
    assert ask(other) == pytest.approx(mine / 4, abs=2)
    for name in ("a", "a2", "b"):
        world.end_session(name)
    router = world.broker.router
    assert (router.use.total, router.use._of, router.deep.total, router.deep._of) == (0, {}, 0, {})
