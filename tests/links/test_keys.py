"""The handshake with a key, in which each end proves that it has the key (gateway/links/FORMAT.md,
Keys).
"""

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.frames import (
    Ack,
    Crc32,
    Data,
    FrameDecoder,
    FrameError,
    handshake_from_body,
    handshake_to_bytes,
)
from gateway.links.greeter import Greeter, Refusal
from gateway.links.handshake import Hello, KeyedWelcome, VersionError, Welcome, Who
from gateway.links.keys import NO_KEY, cmac, session_key
from gateway.links.reliable import (
    Event,
    Received,
    Refused,
    Session,
    SessionEnded,
    SessionStarted,
)
from gateway.links.roles import OFFER_LIFE, OFFER_PATIENCE, REFUSED_WAIT, DeviceLink, GatewayLink
from gateway.links.statistics import LinkStatistics

KEY, OTHER_KEY = bytes(range(16)), bytes(range(1, 17))
PLAIN = Hello(boot=5, attempt=0, incarnation=9, next_sequence=40, mtu=56, window=2, name="roof-1")
HELLO = replace(PLAIN, nonce=b"a nonce!").signed(KEY)

Message = Hello | Welcome | KeyedWelcome | Who


def handshakes(data: bytes) -> list[Message]:
    """Return the handshake's messages among these frames."""
    found: list[Message] = []
    for body in FrameDecoder(LinkStatistics()).feed(data):
        opened = handshake_from_body(body)
        if body[0] >> 6 == 2 and opened is not None:
            kind, payload = opened
            keyed = payload[0] == 2
            reader = (Hello, KeyedWelcome if keyed else Welcome, Who)[kind]
            found.append(reader.from_payload(payload))
    return found


@dataclass
class Gateway:
    """A gateway's port. keys: keys of the known devices, by name. open: whether devices without a
    proof are accepted, too.
    """

    open: bool = False
    keys: dict[str, bytes] = field(default_factory=lambda: {"roof-1": KEY})
    now: float = 0.0

    def __post_init__(self) -> None:
        self.link = GatewayLink(Greeter(3, admit=self._admit, key=self.keys.get))

    def _admit(self, name: str, proved: bool) -> Refusal | None:
        return None if proved or self.open else Refusal.NO_PROOF

    def hear(self, data: bytes, after: float = 0.01) -> list[Event]:
        self.now += after
        return self.link.receive(data, self.now)

    def welcome(self, hello: Hello = HELLO) -> KeyedWelcome:
        """Let the gateway receive a HELLO. Return its WELCOME."""
        self.link.take()
        self.hear(hello.to_bytes())
        (answer,) = handshakes(self.link.take())
        assert isinstance(answer, KeyedWelcome)
        return answer

    def begin(self, hello: Hello = HELLO) -> tuple[Session, Crc32]:
        """Let a device greet and answer the challenge. Return the session and the check of its
        frames.
        """
        check = self.welcome(hello).check(KEY, hello)
        assert isinstance(check, Crc32)
        started = self.hear(Ack(0).to_bytes(check))[-1]
        assert isinstance(started, SessionStarted)
        return started.session, check


def test_session_begins_with_the_first_frame_that_proves_the_key() -> None:
    gateway = Gateway()
    welcome = gateway.welcome()
    assert welcome.proves(KEY, HELLO)
    assert gateway.link.session is None
    (started,) = gateway.hear(Ack(0).to_bytes(welcome.check(KEY, HELLO)))
    assert isinstance(started, SessionStarted)
    assert (started.hello, started.welcome.incarnation, started.proved) == (HELLO, 9, True)


def test_a_hello_that_comes_again_is_answered_alike_and_changes_nothing() -> None:
    gateway = Gateway()
    first = gateway.welcome()
    assert gateway.welcome() == first
    session, check = gateway.begin()
    assert gateway.welcome() == first
    assert gateway.hear(Data(0, 0, b"more").to_bytes(check)) == [Received(session, b"more")]


def test_a_recorded_hello_neither_begins_a_session_nor_ends_one() -> None:
    gateway = Gateway()
    gateway.begin()
    later = replace(HELLO, attempt=1, nonce=b"another!").signed(KEY)
    session, check = gateway.begin(later)
    answer = gateway.welcome()  # to the first HELLO, which an attacker has recorded
    assert gateway.link.session is session
    for guess in (0, 0xFFFF_FFFF, check.seed ^ 1):
        assert gateway.hear(Data(0, 0, b"forged").to_bytes(Crc32(guess))) == []
    assert gateway.hear(Data(0, 0, b"CONNECT").to_bytes(check)) == [Received(session, b"CONNECT")]
    assert answer.check(KEY, HELLO) != check


def test_a_recorded_session_cannot_be_played_again() -> None:
    gateway = Gateway()
    first = gateway.welcome().check(KEY, HELLO)
    recorded = HELLO.to_bytes() + Ack(0).to_bytes(first) + Data(0, 0, b"CONNECT").to_bytes(first)
    gateway.hear(Ack(0).to_bytes(first))
    gateway.begin(replace(HELLO, boot=6, nonce=b"another!").signed(KEY))
    session = gateway.link.session
    assert gateway.hear(recorded) == []
    assert gateway.link.session is session


def test_a_new_greeting_ends_the_session_once_its_challenge_is_answered() -> None:
    gateway = Gateway()
    old, old_check = gateway.begin()
    later = replace(HELLO, boot=6, nonce=b"another!").signed(KEY)
    check = gateway.welcome(later).check(KEY, later)
    assert gateway.hear(Data(0, 0, b"old").to_bytes(old_check)) == [Received(old, b"old")]
    ended, started, received = gateway.hear(Data(0, 0, b"new").to_bytes(check))
    assert ended == SessionEnded(old, "the device was rebooted")
    assert isinstance(started, SessionStarted)
    assert received == Received(started.session, b"new")
    assert gateway.hear(Data(1, 0, b"stale").to_bytes(old_check)) == []
    assert gateway.link.statistics.crc_errors == 1


def test_offer_expires() -> None:
    gateway = Gateway()
    check = gateway.welcome().check(KEY, HELLO)
    assert gateway.hear(Ack(0).to_bytes(check), OFFER_LIFE + 0.1) == []
    assert gateway.link.session is None


def test_damage_right_after_a_welcome_does_not_restart_the_greeting() -> None:
    gateway = Gateway()
    gateway.welcome()
    gateway.hear(Ack(0).to_bytes(Crc32(1)))
    assert gateway.link.take() == b""
    gateway.hear(Ack(0).to_bytes(Crc32(1)), OFFER_PATIENCE)
    assert handshakes(gateway.link.take()) == [Who(3), Who(None)]


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (HELLO.signed(OTHER_KEY), Refusal.WRONG_KEY),
        (replace(HELLO, name="roof-2"), Refusal.UNKNOWN_KEY),
        (replace(HELLO, name="roof-2").signed(KEY), Refusal.UNKNOWN_KEY),
        (HELLO.signed(NO_KEY), Refusal.NO_PROOF),
        (replace(HELLO, next_sequence=41), Refusal.WRONG_KEY),
        (PLAIN, Refusal.NO_PROOF),
    ],
)
def test_device_without_the_key_of_its_name_is_refused(hello: Hello, reason: Refusal) -> None:
    gateway = Gateway()
    session, check = gateway.begin()
    gateway.link.take()
    assert gateway.hear(hello.to_bytes()) == [Refused(hello.name, reason)]
    (answer,) = handshakes(gateway.link.take())
    assert isinstance(answer, Welcome | KeyedWelcome)
    assert (answer.refused, answer.incarnation) == (True, 0)
    assert gateway.hear(Data(0, 0, b"on").to_bytes(check)) == [Received(session, b"on")]


def test_open_port_admits_a_board_without_proof_and_logs_it() -> None:
    gateway = Gateway(open=True)
    hello = replace(HELLO, name="bare").signed(NO_KEY)
    check = gateway.welcome(hello).check(NO_KEY, hello)
    (started,) = gateway.hear(Ack(0).to_bytes(check))
    assert isinstance(started, SessionStarted)
    assert not started.proved
    (plain,) = Gateway(open=True).hear(PLAIN.to_bytes())
    assert isinstance(plain, SessionStarted)
    assert not plain.proved


def test_an_open_port_lets_no_greeting_without_a_key_end_a_session_that_is_proved() -> None:
    gateway = Gateway(open=True)
    session, check = gateway.begin()
    assert gateway.hear(replace(PLAIN, attempt=7).to_bytes()) == []
    assert gateway.hear(Data(0, 0, b"on").to_bytes(check)) == [Received(session, b"on")]


@pytest.mark.parametrize(
    "bare",
    [replace(PLAIN, attempt=7), replace(HELLO, attempt=7).signed(NO_KEY)],
    ids=["version 1", "zero key"],
)
def test_an_open_port_offers_nothing_without_a_key_while_a_session_is_proved(bare: Hello) -> None:
    gateway = Gateway(open=True)
    session, check = gateway.begin()
    gateway.link.take()
    assert gateway.hear(bare.to_bytes()) == []
    for welcome in handshakes(gateway.link.take()):
        assert isinstance(welcome, Welcome | KeyedWelcome)
        taken = welcome.check if isinstance(welcome, Welcome) else welcome.check(NO_KEY, bare)
        assert gateway.hear(Ack(0).to_bytes(taken)) == []
    assert gateway.hear(Data(0, 0, b"on").to_bytes(check)) == [Received(session, b"on")]
    gateway.link.abort(session, gateway.now)
    assert isinstance(gateway.hear(PLAIN.to_bytes())[-1], SessionStarted)


@given(st.integers(0, 2**32), st.integers(0, 400))
def test_one_bit_of_a_hello_or_a_welcome_that_is_another_breaks_the_proof(
    seed: int, bit: int
) -> None:
    random = Random(seed)
    hello = replace(HELLO, boot=random.randrange(1 << 16), nonce=random.randbytes(8)).signed(KEY)
    welcome = KeyedWelcome(5, 0, random.randbytes(8), 9, 240, 3, 77).signed(KEY, hello)
    flipped = bytearray(hello.payload)
    flipped[bit // 8 % len(flipped)] ^= 1 << bit % 8
    try:
        other = Hello.from_payload(bytes(flipped))
    except (FrameError, VersionError):
        return
    assert not other.proves(KEY)
    assert not welcome.proves(KEY, other)


def test_both_challenges_make_the_session_key_and_each_counter_too() -> None:
    keys = {
        session_key(KEY, nonce, hello.signed(KEY).payload, label)
        for nonce in (b"12345678", b"12345679")
        for hello in (HELLO, replace(HELLO, boot=6), replace(HELLO, nonce=b"A nonce!"))
        for label in (1, 2)
    }
    assert len(keys) == 12
    assert cmac(OTHER_KEY, b"") != cmac(KEY, b"")


# The device's end


def device(key: bytes = KEY, seed: int = 1) -> DeviceLink:
    return DeviceLink(
        "roof-1", boot=5, incarnation=9, mtu=56, window=2, key=key, random=Random(seed)
    )


def greeting(link: DeviceLink, now: float = 0.0) -> Hello:
    link.tick(now)
    (hello,) = handshakes(link.take())
    assert isinstance(hello, Hello)
    return hello


def answer(hello: Hello, nonce: bytes = b"12345678") -> KeyedWelcome:
    return KeyedWelcome(5, hello.attempt, nonce, 9, 240, 3, 77).signed(KEY, hello)


def test_a_device_answers_the_challenge_at_once() -> None:
    link = device()
    hello = greeting(link)
    assert hello.proves(KEY)
    welcome = answer(hello)
    (started,) = link.receive(welcome.to_bytes(), 0.1)
    assert isinstance(started, SessionStarted)
    assert link.take() == Ack(0).to_bytes(welcome.check(KEY, hello))
    assert link.receive(welcome.to_bytes(), 0.2) == []  # the first answer was lost
    assert link.take() == Ack(0).to_bytes(welcome.check(KEY, hello))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda hello: answer(hello).signed(OTHER_KEY, hello),
        lambda hello: replace(answer(hello), utc=78),
        lambda hello: replace(answer(hello), nonce=b"12345679"),
        lambda hello: answer(replace(hello, nonce=b"recorded")),
        lambda hello: Welcome(5, hello.attempt, 3, 1, 9, 240, 3, 0),
    ],
)
def test_a_device_takes_no_gateway_that_does_not_prove_its_key(wrong: object) -> None:
    link = device()
    hello = greeting(link)
    assert link.receive(wrong(hello).to_bytes(), 0.1) == []  # type: ignore[operator]
    assert link.session is None


@pytest.mark.parametrize("cut", [slice(1), slice(20), slice(-1)])
def test_incomplete_welcome_is_counted_and_ignored(cut: slice) -> None:
    link = device()
    whole = answer(greeting(link))
    payload = whole._fields + whole.code
    with pytest.raises(FrameError, match="WELCOME of a wrong length"):
        KeyedWelcome.from_payload(payload[cut])
    assert link.receive(handshake_to_bytes(KeyedWelcome.KIND, payload[cut]), 0.1) == []
    assert (link.session, link.statistics.malformed_frames) == (None, 1)
    (started,) = link.receive(handshake_to_bytes(KeyedWelcome.KIND, payload), 0.2)
    assert isinstance(started, SessionStarted)


def test_recorded_welcome_is_refused_by_the_next_greeting() -> None:
    link = device()
    hello = greeting(link)
    recorded = answer(hello)
    link.receive(recorded.to_bytes(), 0.1)
    link.take()
    link.receive(Who(None).to_bytes(), 0.2)
    again = greeting(link, 0.3)
    assert again.nonce != hello.nonce
    forged = replace(recorded, attempt=again.attempt)
    assert link.receive(recorded.to_bytes() + forged.to_bytes(), 0.4) == []
    assert link.session is None


def test_refused_device_waits_for_any_refusal() -> None:
    link = device()
    hello = greeting(link)
    refusal = KeyedWelcome(5, hello.attempt, bytes(8), 0, 240, 3, 0, refused=True)
    assert link.receive(refusal.to_bytes(), 0.1) == [Refused("roof-1")]
    assert link.deadline == 0.1 + REFUSED_WAIT


@given(st.binary(max_size=70))
def test_a_hello_of_any_bytes_is_read_as_it_is_or_refused(payload: bytes) -> None:
    try:
        message = Hello.from_payload(b"\x02" + payload)
    except FrameError:
        return
    assert message.to_bytes() == handshake_to_bytes(Hello.KIND, b"\x02" + payload)
