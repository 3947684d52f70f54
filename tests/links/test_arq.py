"""Go-back-N in its parts: windows, the timeout and Karn's rule."""

import pytest

from gateway.links.arq import (
    MAX_EXPIRIES,
    TIMEOUT_INITIAL,
    TIMEOUT_MAX,
    TIMEOUT_MIN,
    Line,
    ReceiveWindow,
    RoundTrip,
    SendWindow,
)


def put(window: SendWindow, now: float) -> list[tuple[int, bytes]]:
    """Take the frames that may be sent now. Return their sequence numbers and payloads."""
    found = []
    for piece in window.due():
        piece.sent_at = now
        found.append((piece.sequence, piece.payload))
    return found


def test_the_window_bounds_what_is_in_flight_and_acknowledgements_let_more_go() -> None:
    window = SendWindow(mtu=3, window=2, byte_time=0.0)
    window.write(b"abcdefgh")
    assert put(window, 0.0) == [(0, b"abc"), (1, b"def")]
    assert put(window, 0.0) == []
    assert window.acknowledge(1, 0.1, bare=False) == 3
    assert put(window, 0.1) == [(2, b"gh")]
    assert window.acknowledge(3, 0.2, bare=True) == 5
    assert window.unsent == 0
    assert window.deadline is None


def test_numbers_wrap_at_eight() -> None:
    window = SendWindow(mtu=1, window=4, byte_time=0.0)
    window.write(bytes(range(20)))
    numbers = []
    for _ in range(10):
        sent = put(window, 0.0)
        numbers += [number for number, _ in sent]
        if sent:
            window.acknowledge((sent[-1][0] + 1) % 8, 0.0, bare=True)
    assert numbers == [number % 8 for number in range(20)]


def test_an_acknowledgement_of_nothing_in_flight_is_ignored() -> None:
    window = SendWindow(mtu=1, window=4, byte_time=0.0)
    assert window.acknowledge(5, 0.0, bare=True) == 0
    window.write(b"abc")
    put(window, 0.0)
    for number in (4, 5, 6, 7):
        assert window.acknowledge(number, 0.0, bare=True) == 0
    assert window.unsent == 3
    assert put(window, 0.0) == []


def test_an_old_acknowledgement_is_seen_to_be_old_up_to_four_frames_late() -> None:
    window = SendWindow(mtu=1, window=4, byte_time=0.0)
    window.write(bytes(100))
    acknowledged = 0
    for _ in range(20):
        put(window, 0.0)
        for late in range(1, 5):
            assert window.acknowledge((acknowledged - late) % 8, 0.0, bare=True) == 0
        acknowledged += window.acknowledge((acknowledged + 1) % 8, 0.0, bare=True)
    assert acknowledged == 20


def test_a_bare_repeated_acknowledgement_repeats_all_in_flight_once() -> None:
    window = SendWindow(mtu=1, window=3, byte_time=0.0)
    window.write(b"abc")
    put(window, 0.0)
    window.acknowledge(0, 0.1, bare=True)
    assert put(window, 0.1) == [(0, b"a"), (1, b"b"), (2, b"c")]
    window.acknowledge(0, 0.1, bare=True)
    assert put(window, 0.1) == []


def test_a_repeated_acknowledgement_on_data_repeats_nothing() -> None:
    window = SendWindow(mtu=1, window=3, byte_time=0.0)
    window.write(b"abc")
    put(window, 0.0)
    window.acknowledge(0, 0.1, bare=False)
    assert put(window, 0.1) == []


def test_an_expiry_repeats_and_doubles_the_wait_until_the_link_gives_up() -> None:
    window = SendWindow(mtu=8, window=2, byte_time=0.0)
    window.write(b"hello")
    put(window, 0.0)
    waits = []
    now = 0.0
    for expiry in range(1, MAX_EXPIRIES + 1):
        assert window.deadline is not None
        assert not window.expire(window.deadline - 0.001)
        waits.append(window.deadline - now)
        now = window.deadline
        assert window.expire(now) == (expiry == MAX_EXPIRIES)
        assert put(window, now) == [(0, b"hello")]
    assert waits == pytest.approx([TIMEOUT_INITIAL] + [TIMEOUT_MAX] * 7)


def test_progress_resets_the_count_of_expiries() -> None:
    window = SendWindow(mtu=1, window=2, byte_time=0.0)
    window.write(bytes(40))
    for number in range(20):
        put(window, float(10 * number))
        for _ in range(MAX_EXPIRIES - 1):
            assert window.deadline is not None
            assert not window.expire(window.deadline)
            put(window, window.deadline or 10 * number + 5.0)
        window.acknowledge((number + 1) % 8, 10 * number + 9.0, bare=True)


def test_karn_a_repeated_frame_gives_no_sample() -> None:
    window = SendWindow(mtu=1, window=1, byte_time=0.0)
    window.write(b"ab")
    put(window, 0.0)
    assert window.expire(TIMEOUT_INITIAL) is False
    put(window, TIMEOUT_INITIAL)
    window.acknowledge(1, TIMEOUT_INITIAL + 0.001, bare=True)
    assert window.round_trip.smoothed is None
    put(window, 1.0)
    window.acknowledge(2, 1.02, bare=True)
    assert window.round_trip.smoothed == pytest.approx(0.02)


def test_the_timeout_follows_the_round_trip_within_its_limits() -> None:
    quick, slow = RoundTrip(0.0), RoundTrip(0.0)
    for _ in range(50):
        quick.sample(0.002)
        slow.sample(3.0)
    assert quick.timeout == TIMEOUT_MIN
    assert slow.timeout == TIMEOUT_MAX
    steady = RoundTrip(0.0)
    for _ in range(100):
        steady.sample(0.2)
    assert 0.2 <= steady.timeout < 0.21


def test_the_first_sample_and_one_more_as_rfc_6298_has_it() -> None:
    trip = RoundTrip(0.0)
    trip.sample(0.1)
    assert trip.timeout == pytest.approx(0.1 + 4 * 0.05)
    trip.sample(0.18)
    assert trip.smoothed == pytest.approx(0.1 * 7 / 8 + 0.18 / 8)
    assert trip.timeout == pytest.approx(0.11 + 4 * (0.05 * 3 / 4 + 0.08 / 4))


def test_a_slow_line_raises_the_floor() -> None:
    assert Line(9600).byte_time == pytest.approx(10 / 9600)
    trip = RoundTrip(Line(9600).byte_time)
    for _ in range(50):
        trip.sample(0.01)
    assert trip.timeout > 0.5


def test_a_line_queues_what_is_written_faster_than_it_sends() -> None:
    line = Line(9600)
    assert line.send(96, 1.0) == pytest.approx(1.1)
    assert line.send(96, 1.0) == pytest.approx(1.2)
    assert line.send(96, 5.0) == pytest.approx(5.1)


def test_only_the_expected_piece_is_taken() -> None:
    window = ReceiveWindow(room=100)
    assert window.take(1, b"b") is None
    assert window.take(0, b"a") == b"a"
    assert window.take(0, b"a") is None
    assert window.take(1, b"b") == b"b"


def test_a_paused_window_holds_up_to_its_room() -> None:
    window = ReceiveWindow(room=5)
    window.paused = True
    assert window.take(0, b"abc") == b""
    assert window.take(1, b"def") is None
    assert window.take(1, b"de") == b""
    assert window.resume() == b"abcde"
    assert window.take(2, b"f") == b"f"
