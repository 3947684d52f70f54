"""The rules of the handshake, one by one (gateway/links/FORMAT.md, Handshake)."""

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.frames import (
    Ack,
    Crc16,
    Data,
    FrameDecoder,
    FrameError,
    Time,
    handshake_from_body,
    handshake_to_bytes,
)
from gateway.links.greeter import Greeter, Refusal, draw_incarnation
from gateway.links.handshake import Hello, VersionError, Welcome, Who, session_seed
from gateway.links.reliable import OtherVersion, Received, Refused, SessionEnded, SessionStarted
from gateway.links.roles import HELLO_WAIT_MAX, REFUSED_WAIT, DeviceLink, GatewayLink
from gateway.links.statistics import LinkStatistics

HELLO = Hello(boot=5, attempt=0, incarnation=9, next_sequence=40, mtu=56, window=2, name="sensor-1")


def sent(link: GatewayLink | DeviceLink) -> list[Hello | Welcome | Who | Data | Ack]:
    """Return the frames that a link without keys has sent since the last call."""
    found: list[Hello | Welcome | Who | Data | Ack] = []
    for body in FrameDecoder(LinkStatistics()).feed(link.take()):
        match body[0] >> 6:
            case 2:
                kind, payload = handshake_from_body(body) or (0, b"")
                found.append((Hello, Welcome, Who)[kind].from_payload(payload))
            case 1:
                found.append(Ack.from_content(body[:-2]))
            case _:
                found.append(Data.from_content(body[:-2]))
    return found


def welcome(link: GatewayLink, hello: Hello = HELLO, now: float = 0.0) -> Welcome:
    link.take()
    link.receive(hello.to_bytes(), now)
    (answer,) = sent(link)
    assert isinstance(answer, Welcome)
    return answer


@dataclass
class Clock:
    utc: int = 0
    admitted: set[str] = field(default_factory=lambda: {"sensor-1"})

    def admit(self, name: str, proved: bool) -> Refusal | None:
        return None if name in self.admitted else Refusal.STRANGER

    def greeter(self) -> Greeter:
        return Greeter(3, utc=lambda: self.utc, admit=self.admit, incarnation=lambda: 1234)


# The gateway's end


def test_opened_port_gets_a_who_frame() -> None:
    link = GatewayLink(Greeter(3))
    link.open(0.0)
    assert sent(link) == [Who(3), Who(None)]


def test_a_welcome_echoes_the_hello_and_says_what_the_gateway_takes() -> None:
    answer = welcome(GatewayLink(Clock(utc=1_700_000_000).greeter()))
    assert answer == Welcome(5, 0, 3, 1, incarnation=9, mtu=240, window=3, utc=1_700_000_000)


def test_a_device_without_incarnation_gets_one_and_only_one_for_a_repeated_hello() -> None:
    numbers = iter((11, 12))
    link = GatewayLink(Greeter(3, incarnation=lambda: next(numbers)))
    hello = replace(HELLO, incarnation=0)
    assert [welcome(link, hello).incarnation, welcome(link, hello).incarnation] == [11, 11]


def test_a_drawn_incarnation_is_never_zero_and_fits_32_bits() -> None:
    drawn = {draw_incarnation() for _ in range(200)}
    assert len(drawn) == 200
    assert all(0 < number < 2**32 for number in drawn)


def test_a_repeated_hello_changes_nothing_but_brings_the_time_up_to_date() -> None:
    clock = Clock()
    link = GatewayLink(clock.greeter())
    first = welcome(link)
    link.receive(Data(0, 0, b"CONNECT").to_bytes(first.check), 0.1)
    session = link.session
    clock.utc = 99
    assert welcome(link) == replace(first, utc=99)
    assert link.session is session
    assert link.receive(Data(1, 0, b"more").to_bytes(first.check), 0.2) == [
        Received(session, b"more")
    ]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(HELLO, boot=6), "the device was rebooted"),
        (replace(HELLO, attempt=1), "the device greets again"),
    ],
)
def test_another_hello_ends_the_session_and_begins_one_from_zero(other: Hello, reason: str) -> None:
    link = GatewayLink(Clock().greeter())
    before = welcome(link)
    session = link.session
    assert session is not None
    link.receive(Data(0, 0, b"x").to_bytes(before.check), 0.1)
    link.write(session, b"never acknowledged", 0.1)
    link.take()
    ended, started = link.receive(other.to_bytes(), 0.2)
    assert ended == SessionEnded(session, reason)
    assert isinstance(started, SessionStarted)
    (answer,) = sent(link)
    assert isinstance(answer, Welcome)
    assert answer.handshake == before.handshake + 1
    assert link.receive(Data(1, 0, b"stale").to_bytes(before.check), 0.3) == []
    assert link.statistics.crc_errors == 1
    assert link.receive(Data(0, 0, b"new").to_bytes(answer.check), 0.3) == [
        Received(started.session, b"new")
    ]


def test_the_same_hello_after_the_session_was_closed_begins_a_new_one() -> None:
    link = GatewayLink(Clock().greeter())
    first = welcome(link)
    assert link.session is not None
    link.abort(link.session, 0.1)
    assert welcome(link).handshake == first.handshake + 1


def test_without_a_session_a_data_frame_is_answered_by_who_at_most_every_200_ms() -> None:
    link = GatewayLink(Clock().greeter())
    stray = Data(0, 0, b"PINGREQ").to_bytes(Crc16(0x1234))
    link.receive(stray, 1.0)
    link.receive(stray, 1.1)
    assert sent(link) == [Who(3), Who(None)]
    link.receive(stray, 1.21)
    assert sent(link) == [Who(3), Who(None)]


def test_a_device_that_is_not_admitted_is_refused_and_taken_once_it_is() -> None:
    clock = Clock(admitted=set())
    link = GatewayLink(clock.greeter())
    assert link.receive(HELLO.to_bytes(), 0.0) == [Refused("sensor-1", Refusal.STRANGER)]
    (answer,) = sent(link)
    assert isinstance(answer, Welcome)
    assert (answer.refused, answer.incarnation) == (True, 0)
    assert link.session is None
    clock.admitted.add("sensor-1")
    assert not welcome(link).refused


def test_one_handshake_counter_serves_all_ports() -> None:
    greeter = Clock().greeter()
    ports = [GatewayLink(greeter) for _ in range(3)]
    assert len({welcome(port).check for port in ports}) == 3


def test_closing_waits_for_the_acknowledgement_then_sends_who() -> None:
    link = GatewayLink(Clock().greeter())
    check = welcome(link).check
    session = link.session
    assert session is not None
    link.write(session, b"DISCONNECT", 0.1)
    link.take()
    assert link.close(session, 0.1) == []
    link.receive(Data(0, 0, b"ignored from here on").to_bytes(check), 0.1)
    assert sent(link) == [Ack(1)]
    assert link.receive(Ack(1).to_bytes(check), 0.2) == []
    assert sent(link) == [Who(3)]
    assert link.session is None


def test_a_session_that_is_closing_gives_up_in_silence() -> None:
    link = GatewayLink(Clock().greeter())
    welcome(link)
    assert link.session is not None
    link.write(link.session, b"DISCONNECT", 0.0)
    link.close(link.session, 0.0)
    events = []
    while link.session is not None:
        assert link.deadline is not None
        events += link.tick(link.deadline)
    assert events == []
    assert link.statistics.give_ups == 1


def test_a_port_that_comes_back_starts_with_a_clean_slate() -> None:
    link = GatewayLink(Clock().greeter())
    welcome(link)
    link.receive(b"half a fra", 1.0)
    (ended,) = link.lose("the port is gone")
    assert isinstance(ended, SessionEnded)
    assert link.take() == b""
    link.open(2.0)
    assert sent(link) == [Who(3), Who(None)]
    link.receive(HELLO.to_bytes(), 2.1)
    assert link.statistics.malformed_frames == 0
    assert link.session is not None


def test_late_calls_for_an_ended_session_leave_the_next_one_alone() -> None:
    link = GatewayLink(Clock().greeter())
    welcome(link)
    first = link.session
    welcome(link, replace(HELLO, boot=6), 1.0)
    second = link.session
    assert first is not None
    assert second not in (None, first)
    first.receiving.paused = True
    link.take()
    assert link.resume(first, 1.1) == link.close(first, 1.2) == []
    link.abort(first, 1.3)
    link.write(first, b"for the board's last start", 1.4)
    assert link.session is second
    assert (first.closing, second.closing) == (False, False)
    assert link.take() == b""


def test_a_device_asks_for_the_time_and_never_tells_it() -> None:
    clock = Clock()
    link = GatewayLink(clock.greeter())
    check = welcome(link).check
    asks = Time(None).to_bytes(check)
    assert (link.receive(asks, 0.1), link.take()) == ([], b""), "the time is not known yet"
    clock.utc = 1_800_000_000
    assert link.receive(asks, 0.2) == []
    assert link.take() == Time(1_800_000_000).to_bytes(check)
    assert link.receive(Time(5).to_bytes(check), 0.3) == []
    assert (link.take(), link.statistics.malformed_frames) == (b"", 1)
    assert link.session is not None


def test_a_device_is_judged_again_by_what_changed_before_it_is_refused() -> None:
    clock = Clock(admitted=set())
    changed = iter([False, True, True])

    def again() -> bool:
        clock.admitted.add("roof-1")
        return next(changed)

    greeter = Greeter(3, admit=clock.admit, again=again)
    roof = replace(HELLO, name="roof-1")
    assert greeter.answer(roof).refusal is Refusal.STRANGER, "nothing has changed, it was told"
    assert greeter.answer(roof).refusal is None
    assert greeter.answer(HELLO).refusal is Refusal.STRANGER


def test_another_version_is_reported() -> None:
    link = GatewayLink(Clock().greeter())
    assert link.receive(handshake_to_bytes(0, b"\x03 whatever comes then"), 0.0) == [
        OtherVersion(3)
    ]
    assert link.take() == b""


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x01", id="short"),
        pytest.param(bytes((1, 0, 1, 0, *[0] * 8, 0, 4, 0)), id="mtu 0"),
        pytest.param(bytes((1, 0, 1, 0, *[0] * 8, 241, 4, 0)), id="mtu 241"),
        pytest.param(bytes((1, 0, 1, 0, *[0] * 8, 64, 0, 0)), id="window 0"),
        pytest.param(bytes((1, 0, 1, 0, *[0] * 8, 64, 5, 0)), id="window 5"),
        pytest.param(bytes((1, 0, 1, 0, *[0] * 8, 64, 2, 0, 0xFF)), id="not UTF-8"),
        pytest.param(bytes((1, 0, 1, 0, *[0] * 8, 64, 2, 0)) + b"a\nb", id="not printable"),
        pytest.param(bytes((1, 0, 1, 0, *[0] * 8, 64, 2, 0)) + b"n" * 24, id="name too long"),
    ],
)
def test_a_broken_hello_is_dropped_and_counted(payload: bytes) -> None:
    with pytest.raises(FrameError):
        Hello.from_payload(payload)
    link = GatewayLink(Clock().greeter())
    assert link.receive(handshake_to_bytes(0, payload), 0.0) == []
    assert link.statistics.malformed_frames == 1
    assert link.take() == b""


@given(st.binary(max_size=60))
def test_any_handshake_payload_is_read_or_refused(payload: bytes) -> None:
    for message in (Hello, Welcome, Who):
        try:
            message.from_payload(payload)
        except FrameError as error:
            assert isinstance(error, VersionError) == (bool(payload) and payload[0] not in (1, 2))  # noqa: PT017


@given(
    st.lists(st.integers(0, 255), min_size=4, max_size=4), st.integers(0, 3), st.integers(1, 255)
)
def test_one_counter_different_makes_another_seed(
    counters: list[int], index: int, delta: int
) -> None:
    other = list(counters)
    other[index] = (other[index] + delta) % 256
    assert session_seed(*counters) != session_seed(*other)


# The device's end


def device(**given: int) -> DeviceLink:
    return DeviceLink(
        "sensor-1",
        boot=5,
        incarnation=given.get("incarnation", 9),
        next_sequence=40,
        mtu=56,
        window=2,
    )


def greeted(link: DeviceLink, handshake: int = 1, now: float = 0.0) -> Welcome:
    link.tick(now)
    (hello,) = sent(link)
    assert isinstance(hello, Hello)
    answer = Welcome(hello.boot, hello.attempt, 3, handshake, hello.incarnation or 1234, 240, 4, 0)
    link.receive(answer.to_bytes(), now)
    return answer


def test_hello_is_repeated_unchanged_with_growing_waits() -> None:
    link = device()
    times = []
    hellos = []
    for _ in range(8):
        now = link.deadline
        assert now is not None
        now = max(now, 0.0)
        times.append(now)
        link.tick(now)
        hellos += sent(link)
    assert hellos == [HELLO] * 8
    waits = [after - before for before, after in itertools.pairwise(times)]
    for wait, nominal in zip(waits, (0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0), strict=True):
        assert 0.75 * nominal <= wait <= 1.25 * nominal
    assert max(waits) <= 1.25 * HELLO_WAIT_MAX


def test_a_device_takes_the_incarnation_it_is_given_and_keeps_it() -> None:
    link = device(incarnation=0)
    greeted(link)
    assert link.session is not None
    link.abort(link.session, 1.0)
    link.tick(1.0)
    (hello,) = sent(link)
    assert isinstance(hello, Hello)
    assert (hello.incarnation, hello.attempt) == (1234, 1)


@pytest.mark.parametrize(
    "wrong", [{"boot": 4}, {"attempt": 1}, {"incarnation": 10}, {"incarnation": 0}]
)
def test_a_welcome_for_another_hello_is_ignored(wrong: dict[str, int]) -> None:
    link = device()
    link.tick(0.0)
    # type: ignore[arg-type]
    answer = replace(Welcome(5, 0, 3, 1, incarnation=9, mtu=240, window=4, utc=0), **wrong)
    assert link.receive(answer.to_bytes(), 0.1) == []
    assert link.session is None


def test_frame_who_ends_the_session_and_the_device_greets_at_once() -> None:
    link = device()
    greeted(link)
    (ended,) = link.receive(Who(4).to_bytes(), 2.0)
    assert isinstance(ended, SessionEnded)
    link.tick(2.0)
    assert sent(link) == [replace(HELLO, attempt=1)]


def test_frame_who_while_greeting_repeats_the_same_hello_at_once() -> None:
    link = device()
    link.tick(0.0)
    link.take()
    link.receive(Who(4).to_bytes(), 0.01)
    link.tick(0.01)
    assert sent(link) == [HELLO]


def test_a_newer_session_is_noticed_and_a_repeated_welcome_is_not_mistaken_for_one() -> None:
    link = device()
    first = greeted(link)
    assert link.receive(first.to_bytes(), 0.1) == []
    assert link.session is not None
    (ended,) = link.receive(replace(first, handshake=2).to_bytes(), 0.2)
    assert isinstance(ended, SessionEnded)
    link.tick(0.2)
    assert sent(link) == [replace(HELLO, attempt=1)]


def test_a_greeting_of_another_device_on_the_line_is_counted_and_ignored() -> None:
    link = device()
    greeted(link)
    session = link.session
    link.take()
    assert link.receive(replace(HELLO, name="roof-1").to_bytes(), 0.2) == []
    assert (link.session, link.take()) == (session, b"")
    assert link.statistics.malformed_frames == 1


def test_a_refused_device_waits_ten_seconds() -> None:
    link = device()
    link.tick(0.0)
    link.take()
    refusal = Welcome(5, 0, 3, 1, 0, 240, 4, 0, refused=True)
    assert link.receive(refusal.to_bytes(), 0.1) == [Refused("sensor-1")]
    assert link.deadline == 0.1 + REFUSED_WAIT
    link.tick(0.1 + REFUSED_WAIT)
    assert sent(link) == [replace(HELLO, attempt=1)]


def test_device_that_gives_up_greets_again() -> None:
    link = device()
    greeted(link)
    assert link.session is not None
    link.write(link.session, b"anyone there?", 0.0)
    events = []
    while link.session is not None:
        assert link.deadline is not None
        events += link.tick(link.deadline)
    assert [type(event) for event in events] == [SessionEnded]
    link.take()
    link.tick(60.0)
    assert sent(link) == [replace(HELLO, attempt=1)]
