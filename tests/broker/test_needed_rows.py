"""Rows of the table `message`. Each message has one row. A new message takes the row of a finished
one, but no queue ever refers to another message's row.
"""

from gateway.mqtt.packets import Puback, Publish
from tests.broker.harness import World


def queued(world: World) -> list[tuple[int, bytes]]:
    return world.rows(
        "SELECT first, body FROM queue JOIN message ON message.id = queue.message ORDER BY first"
    )  # type: ignore[return-value]


def test_a_message_takes_the_row_of_a_finished_one_and_no_queue_still_refers_to_that() -> None:
    world = World()
    reader = world.durable("reader")
    reader.subscribe("t", qos=1)
    writer = world.accepted("writer")
    for number in range(1, 6):
        writer.publish("t", f"message {number}", qos=1)
        assert queued(world) == [(number, b"message %d" % number)]
        reader.send(Puback(reader.take(Publish).packet_id))
    assert world.rows("SELECT id >> 20 FROM message") == [(1,)]


def test_a_row_that_was_to_be_used_again_is_not_lost_when_its_message_needs_none() -> None:
    world = World()
    reader = world.durable("reader")
    reader.subscribe("t", qos=1)
    writer = world.accepted("writer")
    writer.publish("t", "on disk before it is acknowledged", qos=1)
    reader.send(Puback(reader.take(Publish).packet_id))
    assert world.broker.needed_rows.dead
    world.slow_disk = True
    writer.publish("t", "acknowledged before the disk is asked", qos=1)
    reader.send(Puback(reader.take(Publish).packet_id))
    world.slow_disk = False
    world.commit()
    assert (
        world.rows("SELECT count(*) FROM message")
        == world.rows("SELECT count(*) FROM queue")
        == [(0,)]
    )


def test_a_message_in_two_queues_keeps_its_row_until_the_last_is_done_with_it() -> None:
    world = World()
    readers = [world.durable(name) for name in ("one", "two")]
    for reader in readers:
        reader.subscribe("t", qos=1)
    writer = world.accepted("writer")
    writer.publish("t", "first", qos=1)
    readers[0].send(Puback(readers[0].take(Publish).packet_id))
    writer.publish("t", "second", qos=1)
    assert queued(world) == [(1, b"first"), (2, b"second"), (2, b"second")]
    world.power_cut()
    assert world.durable("two").payloads == [b"first", b"second"]
