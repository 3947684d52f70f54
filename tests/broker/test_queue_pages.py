"""Queues that are too long for memory: their tail waits in the store."""

import pytest

from gateway.broker.delivery import MOST_PENDING, PAGE_ROWS, Order
from gateway.config import QueueSection
from gateway.mqtt.packets import Connack, Puback, Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.properties import PropertyId as P
from tests.broker.harness import FOREVER, Client, World

POWER_CUT = pytest.mark.parametrize("power_cut", [False, True])


def publish(world: World, count: int, topic: str = "t", start: int = 0) -> None:
    publisher = world.accepted(answers=True)
    for number in range(start, start + count):
        publisher.publish(topic, b"%05d" % number, qos=1 + number % 2)


def numbers(client: Client) -> list[int]:
    return [int(packet.payload) for packet in client.take_all(Publish)]


def empty(world: World) -> bool:
    world.commit()
    return (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(0,)]
    )


@POWER_CUT
def test_a_long_queue_of_an_absent_client_takes_no_memory_and_arrives_in_order(
    power_cut: bool,
) -> None:
    world = World()
    world.absent("s")
    publish(world, 3000)
    if power_cut:
        world.power_cut()
    flow = world.broker.sessions["s"].send_flow
    assert (len(flow.pending), len(flow.flights.resend), flow.messages) == (0, 0, 3000)
    client = world.durable("s", answers=True)
    assert numbers(client) == list(range(3000))
    assert world.broker.queued == 0
    assert empty(world)


def test_a_slow_client_holds_a_page_in_memory() -> None:
    world = World(inflight=10)
    client = world.durable("s")
    client.subscribe("t")
    publish(world, 3000)
    send_flow = world.broker.sessions["s"].send_flow
    assert send_flow.messages == 3000
    assert len(send_flow.pending) <= MOST_PENDING
    client.drop()
    assert numbers(world.durable("s", answers=True)) == list(range(3000))
    assert empty(world)


def test_messages_during_a_tail_read_are_queued_behind_it() -> None:
    world = World(inflight=10)
    world.absent("s")
    publish(world, 1000)
    client = world.durable("s")
    received = []
    while packets := client.take_all(Publish):
        for packet in packets:
            received.append(int(packet.payload))
            if len(received) % 100 == 0 and len(received) <= 500:
                publish(world, 10, start=1000 + len(received) // 10 - 10)
            client.send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
        client.send(*(Pubcomp(packet.packet_id) for packet in client.take_all(Pubrel)))
    assert received == list(range(1050))
    assert empty(world)


def test_a_tail_that_is_not_committed_yet_is_read_after_the_commit() -> None:
    world = World()
    world.absent("s")
    world.slow_disk = True
    publish(world, 10)
    client = world.connect("s", clean=False, properties=FOREVER, answers=True)
    assert client.received == []
    world.slow_disk = False
    world.commit()
    client.take(Connack)
    assert numbers(client) == list(range(10))


@POWER_CUT
def test_a_message_for_several_sessions_is_stored_once_and_stays_as_long_as_one_needs_it(
    power_cut: bool,
) -> None:
    world = World()
    world.absent("a", "b", "c")
    publish(world, 500)
    assert world.rows("SELECT count(*) FROM message") == [(500,)]
    for name in ("b", "a", "c"):
        if power_cut:
            world.power_cut()
        client = world.durable(name, answers=True)
        assert numbers(client) == list(range(500))
        world.commit()
    assert empty(world)


@POWER_CUT
@pytest.mark.parametrize("slow", [False, True])
def test_a_session_with_a_tail_ends_and_the_others_keep_theirs(power_cut: bool, slow: bool) -> None:
    world = World()
    world.absent("a", "b")
    world.slow_disk = slow
    publish(world, 500)
    world.slow_disk = False
    if power_cut:
        world.commit()
        world.power_cut()
    world.accepted("a", clean=True)
    assert world.broker.queued == world.broker.sessions["b"].send_flow.size
    world.commit()
    assert world.rows("SELECT count(*), min(session), max(session) FROM queue") == [
        (500, *[world.broker.sessions["b"].id] * 2)
    ]
    assert numbers(world.durable("b", answers=True)) == list(range(500))
    assert empty(world)


@POWER_CUT
def test_the_tail_of_a_shared_subscription_goes_to_the_others_when_its_session_ends(
    power_cut: bool,
) -> None:
    world = World()
    world.absent("a", topic="$share/g/t")
    publish(world, 500)
    if power_cut:
        world.power_cut()
    other = world.durable("b", answers=True)
    other.subscribe("$share/g/t")
    assert numbers(other) == []
    world.accepted("a", clean=True)
    assert numbers(other) == list(range(500))
    assert empty(world)


def test_the_oldest_of_a_tail_are_dropped_after_they_were_read() -> None:
    world = World(queue=[QueueSection(full="drop the oldest")], queue_messages=1000)
    world.absent("s")
    publish(world, 3000)
    send_flow = world.broker.sessions["s"].send_flow
    assert 890 <= send_flow.messages <= 1001
    client = world.durable("s", answers=True)
    received = numbers(client)
    assert received == list(range(3000 - len(received), 3000))
    assert world.broker.statistics.overflowed == 3000 - len(received)
    assert empty(world)


def test_messages_of_a_tail_expire() -> None:
    world = World()
    world.absent("s")
    publisher = world.accepted(answers=True)
    for number in range(1000):
        publisher.publish(
            "t",
            b"%05d" % number,
            qos=2,
            properties={P.MESSAGE_EXPIRY_INTERVAL: 10 if number < 900 else 100},
        )
    world.sleep(50)
    assert numbers(world.durable("s", answers=True)) == list(range(900, 1000))
    assert empty(world)


def test_qos_0_does_not_overtake_the_tail() -> None:
    world = World(inflight=1)
    client = world.durable("s")
    client.subscribe("t")
    publish(world, 2000)
    world.accepted().publish("t", b"%05d" % 9999, qos=0)
    assert numbers(client) == [0]
    assert world.broker.statistics.dropped == 1


ENDS = pytest.mark.parametrize("end", ["expiry", "clean start", "an administrator"])


def two_members(world: World) -> None:
    """Create two members of a shared subscription, whose clients are away. The session `leaves`
    expires after 10 s.
    """
    for name, seconds in ("leaves", 10), ("stays", 0xFFFF_FFFF):
        properties = {P.SESSION_EXPIRY_INTERVAL: seconds}
        client = world.accepted(name, clean=False, properties=properties)
        client.subscribe("$share/group/t")
        client.drop()


def end_the_first(world: World, end: str) -> None:
    match end:
        case "expiry":
            world.sleep(20)
        case "clean start":
            world.connect("leaves", clean=True).drop()
        case _:
            world.end_session("leaves")


@ENDS
def test_stored_messages_of_an_ending_member_go_to_the_others(end: str) -> None:
    world = World()
    two_members(world)
    publish(world, 1000)
    end_the_first(world, end)
    assert "leaves" not in world.broker.sessions
    never_moves = world.durable("stays", answers=True)
    assert sorted(numbers(never_moves)) == list(range(1000)), "none of them is lost"
    assert empty(world), "nothing of the session is left on the disk"


@ENDS
@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("commits", range(1, 6))
def test_a_power_cut_loses_nothing_of_what_a_member_that_ends_leaves_behind(
    end: str, commits: int, connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """commits: number of commits before the power fails. The first commit contains the end of the
    session.
    """
    monkeypatch.setattr("gateway.store.queue_reads.PAGE_ROWS", 20)
    world = World()
    two_members(world)
    publisher = world.accepted(answers=True)
    for number in range(200):
        publisher.publish("t", b"%05d" % number, qos=1 + number // 100)
    never_moves = world.durable("stays", answers=True)
    came: list[Publish] = never_moves.take_all(Publish)
    world.commit()
    if not connected:
        never_moves.drop()
    cut_after(world, commits)
    end_the_first(world, end)
    came += never_moves.take_all(Publish)
    world.power_cut()
    assert "leaves" not in world.broker.sessions
    world.on_commit, world.slow_disk = lambda: None, False
    came += world.durable("stays", answers=True).take_all(Publish)
    assert {int(packet.payload) for packet in came} == set(range(200)), "none of them is lost"
    assert len(came) == 200 or connected
    at_qos_2 = {(packet.packet_id, packet.payload) for packet in came if packet.qos == 2}
    assert len(at_qos_2) == 100, "none of these comes as two messages"
    assert empty(world), "nothing of the session is left on the disk"


def test_messages_of_a_departed_group_member_are_redistributed_page_by_page() -> None:
    """The broker serves other clients between two pages, so the number of pages does not delay
    them.
    """
    world = World()
    two_members(world)
    publish(world, 3000)
    never_moves = world.broker.sessions["stays"].send_flow
    given: list[int] = []
    take_read = world.broker.take_read

    def counted(order: Order, rows: object) -> None:
        before = never_moves.messages
        take_read(order, rows)
        given.append(never_moves.messages - before)

    world.broker.take_read = counted  # type: ignore[method-assign]
    world.end_session("leaves")
    assert sum(given) == 1500
    assert max(given) <= PAGE_ROWS


def cut_after(world: World, commits: int) -> None:
    """Let only this number of further commits reach the disk, as if the power failed after them."""
    last = len(world.commits) + commits

    def count() -> None:
        world.slow_disk = len(world.commits) >= last

    world.on_commit = count
