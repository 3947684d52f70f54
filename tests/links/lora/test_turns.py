"""The turn link over bad air and through power cuts: every reading arrives once, no nonce is used
twice, and the board exceeds no legal limit of airtime. The board's half is the C code.
"""

import ctypes
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.lora.airtime import Modulation
from gateway.links.lora.frames import (
    DOWN,
    GREETING,
    LOW,
    TURN,
    UP,
    Header,
    Hello,
    SessionCipher,
    Welcome,
    is_who,
)
from gateway.links.lora.packing import PINGREQ, PINGRESP
from gateway.links.lora.turns import (
    COPIES,
    OFFERS,
    STALE,
    WINDOW,
    Received,
    Session,
    SessionStarted,
    TurnLink,
)
from hil.air.foreign import Foreign
from tests.links.lora.test_duty import HOUR, TINY, worst_hour
from tests.links.lora.world import (
    DEVICE,
    DUTY,
    KEY,
    NETWORK,
    PUBREC,
    SEEDS,
    World,
    acknowledge,
    build,
)

DOWN_KIND = 0x40
"""Bit in the third byte of a frame. It is set in frames for a board."""
FRAMES = ("loss", "doubles", "delays", "damage", "replays", "all")


def settled(world: World) -> None:
    world.settle()
    assert worst_hour(world.ledger.sent) <= DUTY * HOUR + TINY


def begun(seed: int = 1) -> World:
    """Return a world in which the first reading has arrived."""
    world = World(seed)
    world.board.sample()
    world.run(30.0)
    assert len(world.ledger.delivered) == 1
    return world


def greetings(world: World) -> list[bytes]:
    return [frame for up, frame in world.ledger.air if up and is_greeting(frame)]


def is_greeting(frame: bytes) -> bool:
    return Header.from_frame(frame).type == GREETING


class Peer:
    """A minimal board, for tests of single frames. It has sent its greeting, and the gateway has
    offered it a session.
    """

    def __init__(self, link: TurnLink) -> None:
        self.hello = Hello(NETWORK, DEVICE, 1, 0, 0, 1, 96).signed(KEY, 1)
        link.receive(self.hello.to_bytes(), 0.0)
        (offered,) = link.take(0.0)
        welcome = Welcome.from_frame(offered.frame)
        assert welcome.proves(KEY, self.hello)
        self._cipher = SessionCipher(self.hello.session(KEY, welcome.nonce))

    def turn(self, counter: int, content: bytes) -> bytes:
        header = Header(NETWORK, DEVICE, TURN, counter & LOW)
        return self._cipher.seal(header, UP, counter, content)

    def read(self, frame: bytes, counter: int) -> bytes | None:
        assert Header.from_frame(frame).low == counter & LOW
        return self._cipher.open(frame, DOWN, counter)


def opened() -> tuple[TurnLink, Peer, Session]:
    """Return a link, a board, and the session between them. In its first turn, the board has sent a
    poll.
    """
    link = TurnLink(NETWORK, {DEVICE: KEY}.get)
    peer = Peer(link)
    started, received = link.receive(peer.turn(0, b""), 1.0)
    assert isinstance(started, SessionStarted)
    assert received == Received(started.session, PINGREQ)
    link.write(started.session, PINGRESP)
    ((answer),) = link.take(1.0)
    assert peer.read(answer.frame, 0) == b"\x01"
    return link, peer, started.session


def answers(world: World, frames: list[bytes]) -> int:
    """Give the gateway these frames, one a second. Return the number of frames that it sends."""
    sent = 0
    for frame in frames:
        world.now += 1.0
        world.gateway.receive(frame, world.now)
        while (deadline := world.gateway.deadline) < world.now + WINDOW:
            world.now = deadline
            sent += len(world.gateway.step(deadline))
        sent += len(world.gateway.step(world.now))
    return sent


def test_a_reading_takes_two_frames_of_the_promised_size() -> None:
    world = begun()
    for _ in range(3):
        world.board.sample()
        world.run(60.0)
    copies = dict.fromkeys(world.ledger.air)
    assert [(up, len(frame)) for up, frame in copies][-4:] == [(True, 30), (False, 8)] * 2
    settled(world)


def test_a_welcome_that_was_held_back_tells_no_board_an_old_time() -> None:
    """An attacker jams the gateway's WELCOME, but records it, and sends it when the board greets
    again later.
    """
    world = World(5)
    world.lost = 1.0
    while len(greetings(world)) < 3 or not world.board.listens:
        world.run(0.1)
    link = TurnLink(NETWORK, {DEVICE: KEY}.get)
    for hello in greetings(world)[-2:]:
        assert world.board.incarnation == 0
        link.receive(hello, world.now)
        ((welcome),) = link.take(world.now)
        world.board.receive(welcome.frame, world.now)
    assert world.board.incarnation


@pytest.mark.few(2)
@pytest.mark.parametrize("fault", FRAMES)
@pytest.mark.parametrize("seed", SEEDS)
def test_bad_air_loses_and_doubles_nothing(fault: str, seed: int) -> None:
    world = World(seed)
    rates = {"lost": 0.25, "doubled": 0.2, "late": 0.2, "damaged": 0.2, "replayed": 0.3}
    names = dict(zip(FRAMES, rates, strict=False))
    for name, rate in rates.items():
        setattr(world, name, rate if names.get(fault) == name else 0.6 * rate * (fault == "all"))
    for _ in range(25):
        world.board.sample()
        world.run(world.random.expovariate(1 / 40))
    settled(world)


class Forging(World):
    """A world in which forged frames follow each frame, at both ends."""

    def __init__(self, seed: int) -> None:
        self.foreign = Foreign(replays=False, seed=seed)
        self.forged = self._heard = 0
        self._for_board: list[bytes] = []
        super().__init__(seed)

    def _step(self) -> None:
        super()._step()
        air, self._heard = self.ledger.air[self._heard :], len(self.ledger.air)
        for _, heard in air:
            for frame in self.foreign.hear(heard, self.now):
                if len(frame) > 2 and frame[2] & DOWN_KIND:
                    self._for_board.append(frame)
                else:
                    self.gateway.receive(frame, self.now)
                    self.forged += 1
        while self._for_board and self.board.listens:
            self.board.receive(self._for_board.pop(), self.now)
            self.forged += 1


@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_forged_frames_change_nothing(count: int) -> None:
    world = Forging(9)
    while world.forged < count:
        world.board.sample()
        world.run(30.0)
    settled(world)
    counts = world.gateway.link.counts
    assert counts["greetings"] == 1, "the first session has lasted"
    assert counts["forged"] + counts["forged or old"] > 0.1 * count


@pytest.mark.parametrize("seed", SEEDS)
def test_power_cuts_of_both_lose_and_double_nothing(seed: int) -> None:
    world = World(100 + seed)
    world.lost, world.late, world.replayed = 0.1, 0.05, 0.1
    for _ in range(30):
        world.board.sample()
        for _ in range(world.random.randrange(4)):
            world.run(world.random.choice((0.05, 0.3, 1.0, 3.0, 20.0)))
            world.random.choice((world.cut_board, world.cut_gateway))()
        world.run(world.random.expovariate(1 / 60))
    settled(world)
    assert len(world.ledger.nonces) > 60


def test_a_board_with_more_than_the_law_lets_it_send_uses_what_it_may() -> None:
    world = World(5)
    for _ in range(1500):
        world.board.sample()
    world.run(1.5 * HOUR)
    assert len(world.ledger.delivered) < 1500
    assert 0.85 * DUTY * HOUR < worst_hour(world.ledger.sent) <= DUTY * HOUR + TINY
    settled(world)


def test_messages_for_a_board_come_with_its_turns_in_order_and_once() -> None:
    world = begun()
    world.lost = 0.2
    for number in range(60):
        world.gateway.command(number)
        if number % 6 == 5:
            world.board.sample()
            world.run(60.0)
    settled(world)
    assert world.ledger.commands == list(range(60))


def test_more_than_one_answer_holds_comes_at_once_without_another_reading() -> None:
    world = begun()
    for number in range(40):
        world.gateway.command(number)
    world.board.poll()
    world.run(120.0)
    assert world.ledger.commands == list(range(40))


def test_an_answer_that_is_late_waits_for_the_board_to_ask_again() -> None:
    """The broker's answer comes after the board has gone to sleep."""
    link, peer, session = opened()
    frame = peer.turn(1, b"\x08\x00\x09reading")
    (received,) = link.receive(frame, 10.0)
    assert isinstance(received, Received)
    assert link.take(10.5) == []
    link.write(session, b"\x50\x02\x00\x09")
    assert link.take(10.0 + WINDOW + 0.1) == []
    assert link.receive(frame, 14.0) == []
    (answer,) = link.take(14.0)
    assert answer.until == 14.0 + WINDOW
    assert peer.read(answer.frame, 1) == b"\x01"


def test_each_copy_gets_the_same_answer_though_more_waits_by_then() -> None:
    link, peer, session = opened()
    frame = peer.turn(1, b"\x08\x00\x09reading")
    link.receive(frame, 10.0)
    link.write(session, b"\x50\x02\x00\x09")
    first = link.take(10.0)
    link.write(session, b"\x30\x05\x00\x01c\x00x")
    link.receive(frame, 12.0)
    assert [out.frame for out in link.take(12.0)] == [out.frame for out in first]
    link.receive(peer.turn(2, b""), 20.0)
    link.write(session, PINGRESP)
    (second,) = link.take(20.0)
    assert peer.read(second.frame, 2) == b"\x01\x30\x05\x00\x01c\x00x"


def test_a_turn_that_is_owed_nothing_gets_one_answer_too() -> None:
    """If data are written between two copies of the same frame, they wait for the next turn. If
    they were sent with the second copy, a nonce would be used twice.
    """
    link, peer, session = opened()
    frame = peer.turn(1, b"\x40\x02\x00\x07")
    link.receive(frame, 10.0)
    (first,) = link.take(10.0)
    assert peer.read(first.frame, 1) == b""
    link.write(session, b"\x30\x05\x00\x01c\x00x")
    link.receive(frame, 12.0)
    assert [out.frame for out in link.take(12.0)] == [first.frame]


def test_only_the_next_counter_is_taken_and_only_after_an_answer() -> None:
    link, peer, session = opened()
    for wrong in (peer.turn(2, b""), peer.turn(65, b""), peer.turn(0, b"\x40\x02\x00\x01")):
        assert link.receive(wrong, 5.0) == []
    assert link.counts["forged or old"] == 3
    assert len(link.receive(peer.turn(1, b"\x08\x00\x09a"), 6.0)) == 1
    assert link.receive(peer.turn(2, b""), 7.0) == []
    assert link.take(7.0) == []
    assert session.counter == 1


def test_malformed_content_ends_nothing() -> None:
    link, peer, session = opened()
    assert link.receive(peer.turn(1, b"\x05"), 5.0) == []
    assert link.counts["malformed"] == 1
    assert session.counter == 0


def test_a_packet_that_no_answer_holds_is_refused() -> None:
    link, _, session = opened()
    with pytest.raises(ValueError, match="more than 88 bytes"):
        link.write(session, b"\x30\x60" + bytes(0x60))


def test_after_a_restart_of_the_gateway_the_second_copy_makes_the_board_greet() -> None:
    world = begun()
    world.cut_gateway()
    world.board.sample()
    began = world.now
    while len(world.ledger.delivered) < 2 and world.now < began + 120:
        world.run(1.0)
    assert world.gateway.link.counts["of no session"] == 2
    assert world.gateway.link.counts["greetings"] >= 1
    assert world.now < began + 60
    settled(world)


def test_patient_gateway_lets_other_gateways_answer_first() -> None:
    _, peer, _ = opened()
    other = TurnLink(NETWORK, {DEVICE: KEY}.get, patience=4)
    frame, told = peer.turn(1, b""), []
    for copy in range(4):
        other.receive(frame, 10.0 * copy)
        told.append(len(other.take(10.0 * copy)))
    assert told == [0, 0, 0, 1]


def test_an_answer_that_makes_no_sense_makes_the_board_begin_again() -> None:
    """The ANSWER has a form that this firmware does not know, so the board cannot find the packets
    after it. These packets must not be lost.
    """
    world = begun()
    session = world.gateway.session
    assert session is not None
    world.gateway.link.write(session, acknowledge(PUBREC, 9))
    session.pending[:] = [b"\x05?"]
    world.board.sample()
    world.run(60.0)
    assert world.gateway.session is not session
    settled(world)


def test_recorded_greeting_ends_no_session() -> None:
    world = begun()
    world.board.start(world.now)
    world.run(30.0)
    session = world.gateway.session
    sent = answers(world, greetings(world) * 20)
    assert sent <= STALE + 1
    assert world.gateway.session is session
    assert world.ledger.reasons == ["the device was rebooted"]
    world.board.sample()
    settled(world)
    assert world.gateway.session is session


def test_repeated_greeting_of_a_new_start_gets_a_bounded_number_of_answers() -> None:
    """The HELLO is newer than the session, so it may come from the board."""
    link, peer, _ = opened()
    newest = link._devices[DEVICE].newest
    assert newest is not None
    hello = Hello(NETWORK, DEVICE, 2, 0, newest.incarnation, 2, 96).signed(KEY, 1).to_bytes()
    sent = []
    for _ in range(3 * COPIES):
        assert link.receive(hello, 10.0) == []
        sent += [out.frame for out in link.take(10.0)]
    assert len(sent) == COPIES
    assert len(set(sent)) == 1, "all offer the same session"
    assert link.counts["replayed"] == 2 * COPIES
    link.receive(hello, 10.0 + 61.0)
    assert len(link.take(71.0)) == 1
    assert len(link.receive(peer.turn(1, b""), 80.0)) == 1, "the session has lasted"


def test_replayed_turn_gets_a_bounded_number_of_answers() -> None:
    world = begun()
    world.run(60.0)
    recorded = [frame for up, frame in world.ledger.air if up and not is_greeting(frame)]
    delivered = list(world.ledger.delivered)
    assert answers(world, recorded * 30) < COPIES
    assert world.ledger.delivered == delivered
    world.board.sample()
    settled(world)


def test_recorded_frames_are_refused_after_a_restart_of_the_gateway() -> None:
    """After a restart, the gateway has no session. A restored gateway has none, either."""
    world = begun()
    for _ in range(10):
        world.board.sample()
        world.run(30.0)
    recorded = [frame for up, frame in world.ledger.air if up]
    delivered = list(world.ledger.delivered)
    world.cut_gateway()
    seconds = len(recorded) * 10
    assert answers(world, recorded * 10) <= STALE + 2 * seconds / 60 + 2
    assert world.gateway.session is None
    assert world.ledger.delivered == delivered
    world.board.sample()
    settled(world)


def test_a_board_whose_memory_was_lost_gets_in_and_uses_no_nonce_again() -> None:
    world = begun()
    for _ in range(3):
        world.board.lose_memory()
        world.board.start(world.now)
        world.board.sample()
        world.run(120.0)
    settled(world)


def test_a_counter_that_is_used_up_begins_a_new_session() -> None:
    world = begun()
    world.run(60.0)
    session = world.gateway.session
    assert session is not None
    world.board._lib.turn_set_counter(world.board._turn, 0xFFFF)
    session.counter = 0xFFFE
    world.board.sample()
    world.run(60.0)
    assert session.counter == 0xFFFF
    assert world.gateway.session is not session
    settled(world)


def test_unanswered_board_keeps_its_journal_and_stays_quiet() -> None:
    world = begun()
    world.lost = 1.0
    for _ in range(12):
        world.board.sample()
        world.run(600.0)
    day = [end - start for start, end in world.ledger.sent]
    assert len(day) < 60
    settled(world)


def test_closing_gateway_announces_it_in_its_last_answer() -> None:
    link, peer, session = opened()
    link.write(session, b"\xe0\x01\x8b")
    link.close(session)
    assert link.receive(peer.turn(1, b"\x08\x00\x09reading"), 5.0) == []
    (answer,) = link.take(5.0)
    assert peer.read(answer.frame, 1) == b"\xe0\x01\x8b"
    after = peer.turn(2, b"")
    for moment in (6.0, 9.0):
        assert link.receive(after, moment) == []
    (told,) = link.take(9.0)
    assert is_who(told.frame, KEY, after)


def test_a_key_that_is_taken_away_ends_the_session() -> None:
    keys: dict[int, bytes] = {DEVICE: KEY}
    link = TurnLink(NETWORK, keys.get)
    hello = Hello(NETWORK, DEVICE, 1, 0, 0, 1, 96).signed(KEY, 1)
    assert link.receive(hello.to_bytes(), 0.0) == []
    assert len(link.take(0.0)) == 1
    keys.clear()
    link.receive(hello.to_bytes(), 1.0)
    assert link.take(1.0) == []
    assert link.counts["of a stranger"] == 1


@pytest.mark.parametrize("factor", range(7, 13))
def test_the_board_counts_airtime_as_the_gateway_does(factor: int) -> None:
    board = build()
    board.ow_airtime_ms.restype = ctypes.c_uint16
    for length in range(256):
        exact = round(Modulation(factor).airtime(length) * 1e6)
        assert board.ow_airtime_ms(factor, length) == -(-exact // 1000)


def test_offers_have_a_bound() -> None:
    link = TurnLink(NETWORK, {DEVICE: KEY}.get)
    for boot in range(50):
        hello = Hello(NETWORK, DEVICE, boot, 0, 0, 1, 96).signed(KEY, boot)
        link.receive(hello.to_bytes(), 100.0 * boot)
        link.take(100.0 * boot)
    assert len(link._devices[DEVICE].offers) == OFFERS


@given(st.lists(st.binary(max_size=60), max_size=20), st.integers(0, 2**32))
def test_no_frame_stops_the_gateway(frames: list[bytes], seed: int) -> None:
    random = Random(seed)
    link = TurnLink(NETWORK, {DEVICE: KEY}.get)
    for moment, frame in enumerate(frames):
        told = frame if random.random() < 0.3 else bytes((NETWORK, DEVICE)) + frame
        events = link.receive(told, float(moment))
        assert not [event for event in events if isinstance(event, SessionStarted)]
        assert link.take(float(moment)) == [] or link.counts["of no session"]
    assert sum(link.counts.values()) == len(frames)


def test_ten_thousand_forged_frames_on_the_air_do_nothing() -> None:
    world = begun()
    world.run(60.0)
    session, delivered = world.gateway.session, list(world.ledger.delivered)
    recorded = [frame for _, frame in world.ledger.air]
    for _ in range(10_000):
        forged = bytearray(world.random.choice(recorded))
        for _ in range(world.random.randrange(1, 4)):
            bit = world.random.randrange(8 * len(forged))
            forged[bit // 8] ^= 1 << bit % 8
        if bytes(forged) not in recorded:
            world.gateway.receive(bytes(forged), world.now)
            world.board.receive(bytes(forged), world.now)
    assert world.gateway.session is session
    assert world.ledger.delivered == delivered
    world.board.sample()
    settled(world)
