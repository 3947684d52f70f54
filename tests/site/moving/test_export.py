"""A session leaves with all that it still needs, or ends where it is."""

import pytest

from gateway.mqtt.packets import Connack
from gateway.store import move_out
from gateway.store.move_out import StoredParts, give
from gateway.store.move_records import FLOW, MESSAGE, PART_BYTES, QUEUE, records
from gateway.store.move_rows import SessionExport
from tests.broker.harness import FOREVER, World
from tests.site.moving.test_moving import Site
from tests.store.test_salvage import loose


def waiting(*sizes: int) -> Site:
    """Return two gateways. At the first one, a message of each size waits for the client `c`."""
    site = Site()
    a = site.worlds["a"]
    a.absent("c")
    publisher = a.accepted("p")
    for size in sizes:
        publisher.publish("t", bytes(size), 1)
    a.commit()
    return site


def number_of(world: World) -> int:
    ((number,),) = world.rows("SELECT id FROM session WHERE client = 'c'")
    return int(number)


def exported(world: World) -> StoredParts:
    """Export the session of `c` as the writer does. Return its parts."""
    give(world.database, SessionExport(number_of(world), "c", "b"))
    return StoredParts(world.database, "c", lambda: 0)


@pytest.mark.parametrize("cell", ["message = 'x'", "share = x'ff'", "count = -1", "flags = NULL"])
def test_session_with_a_damaged_entry_ends_and_does_not_move(
    cell: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = waiting(1, 2, 3)
    a, b = site.worlds.values()
    number = number_of(a)
    loose(a.database)
    a.database.execute(f"UPDATE queue SET {cell} WHERE first = 2")
    assert site.give("a", "b") is None
    said = "session of c does not move to b: 1 entry of its queue cannot be read. The session ends"
    assert said in caplog.text
    for table in ("session WHERE id", "queue WHERE session", "flow WHERE session"):
        assert a.rows(f"SELECT * FROM {table} = {number}") == []
    assert a.rows("SELECT * FROM given") == a.rows("SELECT * FROM given_part") == []
    a.power_cut()
    for world in (a, b):
        assert not world.connect("c", clean=False).take(Connack).session_present


def test_session_whose_row_is_gone_does_not_move(caplog: pytest.LogCaptureFixture) -> None:
    a = waiting(1, 2, 3).worlds["a"]
    number = number_of(a)
    a.database.execute("DELETE FROM session WHERE client = 'c'")
    order = SessionExport(number, "c", "b")
    give(a.database, order)
    assert order.released is None
    assert "c does not move to b: the session is gone from the store" in caplog.text
    assert a.rows(f"SELECT * FROM queue WHERE session = {number}") == []


def test_messages_that_were_sent_and_acknowledged_stay_behind() -> None:
    """The rows of these messages are deleted some time after their acknowledgement."""
    site = waiting(1, 2, 3, 4)
    a, b = site.worlds.values()
    a.database.execute(
        "UPDATE flow SET next = 4, sent = x'0002' WHERE session = ?", (number_of(a),)
    )
    parts = exported(a)
    found = list(records(parts))
    assert [values[0] for kind, values in found if kind == QUEUE] == [2, 4]
    assert [values[-1] for kind, values in found if kind == MESSAGE] == [bytes(2), bytes(4)]
    assert site.take("b", [parts[0]]) is None
    client = b.connect("c", clean=False, properties=FOREVER)
    assert client.payloads == [bytes(2), bytes(4)]


def test_message_that_waits_twice_is_sent_once() -> None:
    site = waiting(5, 6)
    a, b = site.worlds.values()
    a.database.execute("UPDATE queue SET message = (SELECT message FROM queue WHERE first = 1)")
    a.database.execute("UPDATE queue SET size = (SELECT size FROM queue WHERE first = 1)")
    parts = exported(a)
    kinds = [kind for kind, _ in records(parts)]
    assert (kinds.count(MESSAGE), kinds.count(QUEUE), kinds.count(FLOW)) == (1, 2, 1)
    assert site.take("b", [parts[0]]) is None
    client = b.connect("c", clean=False, properties=FOREVER)
    assert client.payloads == [bytes(5), bytes(5)]


@pytest.mark.parametrize("more", [0, 1])
def test_last_part_is_never_empty(more: int) -> None:
    pieces = [bytes(PART_BYTES // 2)] * 4 + [b"x"] * more
    assert [len(part) for part in move_out._cut(iter(pieces))] == [PART_BYTES] * 2 + [1] * more


def test_missing_part_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    a = waiting(1, PART_BYTES).worlds["a"]
    parts = exported(a)
    assert len(parts) == 2
    for index in (-1, 2, slice(0, 1)):
        with pytest.raises(IndexError):
            parts[index]
    assert caplog.messages == []
    a.database.execute("UPDATE given_part SET body = x'00' WHERE part = 1")
    with pytest.raises(IndexError):
        parts[1]
    assert "part 2 of 2 is gone from the store, or has changed there" in caplog.text
