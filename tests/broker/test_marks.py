"""The anti-replay windows of boards work with the full sequence, across sessions, restarts and
kills.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from struct import pack

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.access.peer import DeviceIdentity
from gateway.broker.marks import PLACES, WINDOW, Mark, Marks
from gateway.mqtt.packets import Connack, Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.reason import ReasonCode as R
from gateway.store.schema import FILE, open_store, prepare
from tests.broker.harness import Client, World
from tests.store.older import downgrade

TOPIC = "spool/t"


class BrokenOff(Exception):
    """The exception by which a test kills the gateway."""


def board(name: str = "b", incarnation: int = 7, next_sequence: int = 1) -> DeviceIdentity:
    return DeviceIdentity(name, incarnation, next_sequence, proved=True)


def connect(world: World, device: DeviceIdentity, clean: bool = False) -> Client:
    return world.durable(device.name, device=device, clean=clean)


def exchange(client: Client, sequence: int) -> list[Pubrec | Pubcomp]:
    """Publish a message at QoS 2. If PUBREC accepts it, send PUBREL. Return the answers."""
    identifier = sequence & 0xFFFF
    client.send(Publish(TOPIC, str(sequence).encode(), 2, identifier))
    if client.received and client.received[-1] == Pubrec(identifier):
        client.send(Pubrel(identifier))
    return client.take_all()


def spooled(world: World) -> list[int]:
    return [int(row[0]) for row in world.rows("SELECT payload FROM spool ORDER BY id")]


# -- the window itself

steps = st.lists(
    st.one_of(
        st.integers(1, 300),
        st.integers(1, 0xFFFF_FFFF),
        st.integers(-2 * WINDOW, 2 * WINDOW).map(lambda near: 0x2_0000 + near),
    ),
    max_size=80,
)


@given(steps)
@example([1, 65])
@example([1, 66])
@example([100, 36, 35])
@example([0xFFFF_FFFF, 1])
def test_a_mark_knows_what_was_taken_of_the_window_and_nothing_else(taken: list[int]) -> None:
    mark, known, highest = Mark("b", 0, 7), set[int](), 0
    for sequence in taken:
        mark.add(sequence)
        highest = max(highest, sequence)
        known = {number for number in known | {sequence} if number >= highest - WINDOW}
        near = range(max(1, sequence - 2 * WINDOW), sequence + 2 * WINDOW)
        for found in (mark, Mark(*mark.row())):
            assert found.highest == highest
            assert {number for number in near if found.has(number)} == known & set(near)
            assert all(found.has(number) and not found.is_below(number) for number in known)


near_steps = st.lists(st.integers(1, 3 * WINDOW), max_size=12)


@given(near_steps, near_steps)
@example([], [])
@example([1], [])
@example([], [1])
@example([1], [2])
@example([2], [1])
@example([1], [1 + WINDOW])
@example([1 + WINDOW], [1])
@example([1], [2 + WINDOW])
@example([2 + WINDOW], [1])
@example([70, 69], [70, 68])
def test_a_merged_mark_knows_what_either_gateway_has_taken(
    ours: list[int], theirs: list[int]
) -> None:
    marks, other = Marks([]), Mark("b", 2, 7)
    for sequence in ours:
        marks.of("b", 7).add(sequence)
    for sequence in theirs:
        other.add(sequence)
    merged = marks.merge(other.row())
    assert merged is marks.of("b", 7) is marks.latest("b")
    assert (merged.commit, merged.row()[:3]) == (0, ("b", 0, 7))
    highest = merged.highest
    assert highest == max([0, *ours, *theirs])
    known = {number for number in {*ours, *theirs} if number >= highest - WINDOW}
    assert {number for number in range(1, 5 * WINDOW) if merged.has(number)} == known


def test_the_latest_mark_of_a_device_is_the_one_used_last() -> None:
    marks = Marks([])
    assert marks.latest("b") is None
    first, _ = marks.of("b", 1), marks.of("b", 2)
    assert marks.latest("b") is marks.of("b", 2)
    assert marks.of("b", 1) is first is marks.latest("b")


def test_identifiers_of_an_older_version_are_completed_and_merged() -> None:
    """The board's next sequence shows which of the sequences with the same packet identifier is
    meant.
    """
    for at_peer in (False, True):
        marks = Marks([("b", 0, 7, 0, 0, b"" if at_peer else pack(">3H", 5, 0xFFFF, 0))])
        mark = marks.merge(("b", 1, 7, 0, 0, pack(">3H", 5, 0xFFFF, 0)))
        mark.greeted(0x2_0006)
        assert [mark.has(number) for number in (0x2_0005, 0x1_FFFF, 5)] == [True, True, False]
        assert mark.row()[5] == b"", "they are completed once"


def test_a_row_fits_the_store_and_a_window_without_a_gap_takes_a_byte() -> None:
    mark = Mark("b", 0, 7)
    assert mark.row() == ("b", 0, 7, 0, 0, b"")
    for sequence in range(1, 100):
        mark.add(sequence)
        assert -(1 << 63) <= mark.row()[4] < 1 << 63
    assert mark.row()[4] == -1


def test_most_recently_used_incarnations_of_each_device_are_kept() -> None:
    marks = Marks([])
    for incarnation in range(1, PLACES + 1):
        marks.of("b", incarnation).add(incarnation)
    other = marks.of("other", 1)
    marks.of("b", 1)
    newest = marks.of("b", 99)
    assert newest.place == 1, "that of the one that was not used for the longest"
    assert marks.of("b", 1).has(1)
    assert not marks.of("b", 2).has(2)
    assert marks.of("other", 1) is other


@pytest.mark.parametrize("places", [(0, 2), (1,), (0, 1, 2, 3)])
def test_after_a_restart_places_are_given_once(places: tuple[int, ...]) -> None:
    """The store has no window for a board that has connected, but not published. So after a
    restart, the places in the store may have gaps, which new windows fill.
    """
    marks = Marks(("b", place, place + 1, 5, 0, b"") for place in places)
    marks.of("b", 9)
    marks.of("b", 10)
    found = [marks.of("b", incarnation).place for incarnation in (*(n + 1 for n in places), 9, 10)]
    assert len(places) == PLACES or sorted(found) == sorted(set(found))


# -- a broker with windows


def test_a_duplicate_after_a_reconnect_with_clean_start_is_known() -> None:
    world = World(receive_maximum=1)
    connect(world, board()).send(Publish(TOPIC, b"1", 2, 1))
    again = connect(world, board(), clean=True)
    assert exchange(again, 1) == [Pubrec(1), Pubcomp(1)]
    assert spooled(world) == [1]
    assert exchange(again, 2) == [Pubrec(2), Pubcomp(2)]
    assert spooled(world) == [1, 2]


@pytest.mark.mqtt("MQTT-4.3.3-10")
@pytest.mark.parametrize("clean", [False, True])
def test_a_duplicate_after_a_restart_is_known(clean: bool) -> None:
    world = World(receive_maximum=1)
    connect(world, board()).send(Publish(TOPIC, b"1", 2, 1))
    world.power_cut()
    again = connect(world, board(next_sequence=2), clean)
    assert exchange(again, 1) == [Pubrec(1), Pubcomp(1)]
    assert spooled(world) == [1]


def test_a_session_that_has_expired_takes_nothing_along() -> None:
    world = World(receive_maximum=1)
    client = world.accepted("b", device=board())  # the session ends with its connection
    client.send(Publish(TOPIC, b"1", 2, 1))
    client.drop()
    assert "b" not in world.broker.sessions
    assert exchange(world.accepted("b", device=board(next_sequence=2)), 1)[0] == Pubrec(1)
    assert spooled(world) == [1]


def test_a_pubrel_after_a_restart_is_answered_by_the_mark() -> None:
    world = World(receive_maximum=1)
    client = connect(world, board())
    client.send(Publish(TOPIC, b"1", 2, 1))
    client.take(Pubrec)
    world.power_cut()
    again = connect(world, board(next_sequence=2))
    again.send(Pubrel(1), Pubrel(1))
    assert again.take_all() == [Pubcomp(1), Pubcomp(1)]


@pytest.mark.mqtt("MQTT-4.3.3-11", "MQTT-3.6.2-1")
@pytest.mark.parametrize("before", [None, 2])
def test_pubrel_of_an_unknown_message_is_never_answered_with_success(
    before: int | None,
) -> None:
    """The gateway does not know the message: its commit was lost, or another gateway received it.
    The answer makes the board publish the message again.
    """
    world = World(receive_maximum=1)
    client = connect(world, board(next_sequence=3))
    if before is not None:
        exchange(client, before)
    client.send(Pubrel(1))
    assert client.take_all() == [Pubcomp(1, R.PACKET_IDENTIFIER_NOT_FOUND)]
    assert exchange(client, 1) == [Pubrec(1), Pubcomp(1)]
    assert spooled(world) == [number for number in (before, 1) if number is not None]


def test_refused_publication_leaves_no_mark_and_is_taken_later() -> None:
    world = World(receive_maximum=1, spool_bytes=100)
    client = connect(world, board())
    exchange(client, 1)
    assert exchange(client, 2) == [Pubrec(2, R.QUOTA_EXCEEDED)]
    world.broker.spool.landed(2)
    assert exchange(client, 2) == [Pubrec(2), Pubcomp(2)]
    assert spooled(world) == [1, 2]


def test_two_incarnations_are_distinguished() -> None:
    world = World(receive_maximum=1)
    for _ in range(2):
        for incarnation in (7, 8):
            answers = exchange(connect(world, board(incarnation=incarnation)), 1)
            assert answers == [Pubrec(1), Pubcomp(1)]
        world.power_cut()
    assert spooled(world) == [1, 1]
    for incarnation in range(9, 20):
        exchange(connect(world, board(incarnation=incarnation)), 1)
    assert world.rows("SELECT count(*) FROM mark") == [(PLACES,)]


def test_two_devices_do_not_share_a_mark() -> None:
    world = World(receive_maximum=1)
    for name in ("a", "b"):
        assert exchange(connect(world, board(name)), 1) == [Pubrec(1), Pubcomp(1)]
    assert world.rows("SELECT device, sequence FROM spool") == [("a", 1), ("b", 1)]


def test_a_kill_between_the_commit_and_pubrec() -> None:
    world = World(receive_maximum=1)
    client = connect(world, board())

    def kill() -> None:
        raise BrokenOff

    world.on_commit = kill
    with pytest.raises(BrokenOff):
        client.send(Publish(TOPIC, b"1", 2, 1))
    assert client.received == []
    world.on_commit = lambda: None
    world.power_cut()
    assert exchange(connect(world, board(next_sequence=2)), 1) == [Pubrec(1), Pubcomp(1)]
    assert spooled(world) == [1]


@pytest.mark.parametrize("clean", [False, True])
def test_no_answer_leaves_before_the_publish_is_on_disk(clean: bool) -> None:
    world = World(receive_maximum=1)
    client = connect(world, board())
    world.slow_disk = True
    client.send(Publish(TOPIC, b"1", 2, 1), Pubrel(1))
    assert client.take_all() == []
    client.drop()
    again = world.connect(
        "b", clean=clean, device=board(next_sequence=2), properties={17: 100 * clean}
    )
    again.send(Publish(TOPIC, b"1", 2, 1, dup=True), Pubrel(1))
    assert again.take_all(Pubrec) == again.take_all(Pubcomp) == []
    world.commit()
    again.take_all(Connack)
    assert again.take_all() == [Pubrec(1), Pubcomp(1)]
    assert spooled(world) == [1]


def test_a_mark_is_waited_for_though_nothing_else_of_the_message_is_stored() -> None:
    """The topic is not spooled, and the board's session ends with its connection. So only the
    anti-replay window has to be stored.
    """
    world = World(receive_maximum=1)
    world.slow_disk = True
    client = world.accepted("b", device=board())
    client.send(Publish("t", b"1", 2, 1), Pubrel(1))
    assert client.take_all() == []
    client.drop()
    again = world.accepted("b", device=board(next_sequence=2))
    again.send(Publish("t", b"1", 2, 1), Pubrel(1))
    assert again.take_all() == []
    world.commit()
    assert again.take_all() == [Pubrec(1), Pubcomp(1)]
    world.disk_full(True)
    again.send(Publish("t", b"2", 2, 2))
    assert again.take_all() == [Pubrec(2, R.QUOTA_EXCEEDED)]


def test_a_power_cut_before_the_commit_takes_the_mark_with_the_reading() -> None:
    world = World(receive_maximum=1)
    client = connect(world, board())
    world.slow_disk = True
    client.send(Publish(TOPIC, b"1", 2, 1))
    world.slow_disk = False
    world.power_cut()
    assert (spooled(world), world.rows("SELECT * FROM mark")) == ([], [])
    assert exchange(connect(world, board(next_sequence=2)), 1) == [Pubrec(1), Pubcomp(1)]
    assert spooled(world) == [1]


def test_an_exchange_leaves_nothing_behind_for_the_disk() -> None:
    world = World(receive_maximum=1)
    client = connect(world, board())
    before = len(world.commits)
    for sequence in range(1, 6):
        exchange(client, sequence)
    assert len(world.commits) - before == 5
    assert not world.broker.idle_work
    client.subscribe("for/b")
    client.send(Publish(TOPIC, b"6", 2, 6))
    world.accepted().publish("for/b", "x", qos=1)
    world.commit()
    assert world.rows("SELECT received, length(sent) FROM flow") == [(b"", 2)]


def test_client_without_the_board_key_moves_no_mark() -> None:
    world = World(receive_maximum=1)
    for _ in range(2):
        impostor = world.durable("b", device=DeviceIdentity("b", 7, 1))
        impostor.send(Publish(TOPIC, b"666", 2, 1))
        impostor.take(Pubrec)
    assert world.rows("SELECT * FROM mark") == []
    assert exchange(connect(world, board()), 1) == [Pubrec(1), Pubcomp(1)]
    assert spooled(world) == [666, 1]
    impostor = world.durable("b", device=DeviceIdentity("b", 7, 1))
    impostor.send(Publish(TOPIC, b"667", 2, 2))
    client = connect(world, board(next_sequence=3))
    client.send(Pubrel(2))
    assert client.take_all() == [Pubcomp(2, R.PACKET_IDENTIFIER_NOT_FOUND)]
    assert exchange(client, 2) == [Pubrec(2), Pubcomp(2)]
    assert spooled(world) == [666, 1, 667, 2]


def test_an_identifier_that_stands_for_another_sequence_swallows_nothing() -> None:
    """Between PUBREC and PUBREL, the board has made 65,536 publications at another gateway. The
    same identifier then has another sequence.
    """
    world = World(receive_maximum=2)
    client = connect(world, board())
    client.send(Publish(TOPIC, b"5", 2, 5))
    client.drop()
    again = connect(world, board(next_sequence=0x1_0005))
    assert exchange(again, 0x1_0005)[0] == Pubrec(5)
    assert spooled(world) == [5, 0x1_0005]
    assert world.broker.received == 0


def test_board_with_a_restored_eeprom_is_taken_and_its_duplicates_dropped() -> None:
    world = World(receive_maximum=1)
    exchange(connect(world, board(next_sequence=500)), 500)
    client = connect(world, board(next_sequence=100))
    for _ in range(3):
        client.send(Publish(TOPIC, b"100", 2, 100))
    client.send(Pubrel(100))
    assert client.take_all() == [Pubrec(100)] * 3 + [Pubcomp(100)]
    assert spooled(world) == [500, 100]


def test_state_of_a_board_from_an_older_version_is_known(tmp_path: Path) -> None:
    """The older version stored only packet identifiers. An identifier may belong to an older
    sequence, so it does not prove that a message was received.
    """
    with closing(open_store(tmp_path, "test")) as database:
        database.execute("INSERT INTO session VALUES (1, 'b', 1000, NULL, 7, NULL)")
        database.execute("INSERT INTO session VALUES (2, 'c', 1000, NULL, 0, NULL)")
        kept = pack(">3H", 0xFFFF, 2, 300)
        database.executemany("INSERT INTO flow VALUES (?, ?, 1, x'', x'')", [(1, kept), (2, kept)])
    downgrade(tmp_path / FILE, 3)
    world = World(receive_maximum=4)
    world.database = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    prepare(world.database, "test")
    world.start()
    for _ in range(2):  # identifiers that are not needed yet are still stored after another restart
        world.power_cut()
        client = connect(world, board(next_sequence=0x2_0003), clean=True)
    for sequence in (0x1_FFFF, 0x2_0002, 0x2_0001, 0x2_012C):
        assert exchange(client, sequence) == [Pubrec(sequence & 0xFFFF), Pubcomp(sequence & 0xFFFF)]
    assert spooled(world) == [0x2_0001, 0x2_012C]
    world.durable("c").send(Publish(TOPIC, b"1", 2, 2))
    assert spooled(world) == [0x2_0001, 0x2_012C], "clients keep theirs"
    world.database.close()


# -- power cuts at any time


class Journal:
    """A board that works like the firmware: it has two publications in flight, and keeps each until
    its PUBCOMP.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.client: Client | None = None
        self.next = 1
        self.flights: dict[int, str] = {}
        """State by sequence: `new`, `sent`, `released` (PUBREC has arrived), `released before` (on
        an earlier connection).
        """

    def connect(self, clean: bool) -> None:
        world = self.world
        slow, world.slow_disk = world.slow_disk, False
        client = world.connect(
            "b", clean=clean, device=board(next_sequence=self.next), properties={17: 1000}
        )
        world.slow_disk = slow
        present = client.take(Connack).session_present
        self.client = client
        for sequence, state in self.flights.items():
            if state.startswith("released") and present:
                self.flights[sequence] = "released before"
                client.send(Pubrel(sequence))
            else:
                self._publish(client, sequence)

    def sample(self) -> None:
        if len(self.flights) < 2:
            self.flights[self.next] = "new"
            self.next += 1
            if self.client is not None:
                self._publish(self.client, self.next - 1)

    def _publish(self, client: Client, sequence: int) -> None:
        self.flights[sequence] = "sent"
        client.send(Publish(TOPIC, str(sequence).encode(), 2, sequence))

    def read(self, count: int) -> None:
        client = self.client
        while client is not None and client.received and count:
            count -= 1
            match client.received.pop(0):
                case Pubrec(packet_id=number, reason=R.SUCCESS) if number in self.flights:
                    self.flights[number] = "released"
                    client.send(Pubrel(number))
                case Pubcomp(packet_id=number, reason=reason) if number in self.flights:
                    if reason == R.SUCCESS or self.flights[number] == "released before":
                        del self.flights[number]
                    else:
                        self._publish(client, number)


ACTS = st.one_of(
    st.just(("sample",)),
    st.tuples(st.just("read"), st.integers(1, 4)),
    st.sampled_from(
        [("commit",), ("cut",), ("kill after the commit",), ("drop",), ("go on",), ("begin again",)]
    ),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(ACTS, max_size=40))
def test_each_reading_of_a_board_is_stored_once_despite_a_power_cut_anywhere(
    acts: list[tuple[str, int]],
) -> None:
    world = World(receive_maximum=2)
    world.slow_disk = True
    journal = Journal(world)

    def cut() -> None:
        world.power_cut()
        journal.client = None

    def kill() -> None:
        raise BrokenOff

    for act, *numbers in acts:
        match act:
            case "sample":
                journal.sample()
            case "read":
                journal.read(*numbers)
            case "commit":
                world.commit()
            case "cut":
                cut()
            case "kill after the commit":
                world.on_commit = kill
                try:
                    world.commit()
                except BrokenOff:
                    cut()
                world.on_commit, world.slow_disk = lambda: None, True
            case "drop" if journal.client is not None:
                journal.client.drop()
                journal.client = None
            case "go on" | "begin again":
                journal.connect(clean=act == "begin again")
    world.slow_disk = False
    world.commit()
    journal.connect(clean=False)
    for _ in range(20):
        journal.sample()
        journal.read(10)
    assert len(journal.flights) < 2
    assert spooled(world) == list(range(1, journal.next))
