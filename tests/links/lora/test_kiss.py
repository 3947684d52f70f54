"""The KISS modem's driver, with a modem that follows the description of its protocol."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.lora.airtime import Modulation
from gateway.links.lora.kiss import (
    ANSWER_WAIT,
    ASKS,
    DATA,
    LARGEST,
    LOOK_EVERY,
    META_WAIT,
    Decoder,
    KissModem,
    encode,
)
from gateway.links.lora.radio import Event, Failed, Heard, Radio, Ready, Sent
from tests.links.lora.tnc import Tnc, unwrap, wrap

CHANNEL = 869_525_000


def exchange(modem: KissModem, tnc: Tnc, now: float, *, step: int = 1000) -> list[Event]:
    """Carry bytes in both directions, `step` bytes at a time, until both ends are silent."""
    events: list[Event] = []
    while data := modem.take():
        for at in range(0, len(data), step):
            tnc.feed(data[at : at + step])
        data, tnc.out = tnc.out, b""
        for at in range(0, len(data), step):
            events += modem.receive(data[at : at + step], now)
    data, tnc.out = tnc.out, b""
    return events + modem.receive(data, now)


def ready() -> tuple[KissModem, Tnc]:
    modem, tnc = KissModem(CHANNEL, Modulation(9), 14), Tnc()
    modem.open(0.0)
    assert exchange(modem, tnc, 0.0) == [Ready("KISS modem, firmware 2")]
    return modem, tnc


def test_driver_fulfils_the_radio_interface() -> None:
    radio: Radio = KissModem(CHANNEL, Modulation(9), 14)
    assert not radio.idle


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_modem_is_set_up_without_a_transmit_delay(step: int) -> None:
    modem, tnc = KissModem(CHANNEL, Modulation(9), 14), Tnc()
    modem.open(0.0)
    assert exchange(modem, tnc, 0.0, step=step) == [Ready("KISS modem, firmware 2")]
    assert struct.unpack("<IIBB", tnc.radio) == (CHANNEL, 125_000, 9, 5)
    assert (tnc.power, tnc.duplex, tnc.delay, tnc.report) == (14, 1, 0, 1)
    assert modem.idle


def test_a_frame_goes_out_and_is_charged_with_the_modem_s_preamble() -> None:
    modem, tnc = ready()
    frame = bytes(range(0xB0, 0xF0))
    modem.send(frame, 1.0)
    assert not modem.idle
    assert exchange(modem, tnc, 1.0) == []
    assert tnc.pending == frame
    tnc.finish()
    assert exchange(modem, tnc, 1.5) == [Sent(1.5, True)]
    assert modem.idle
    assert modem.airtime(8) == Modulation(9, preamble=16).airtime(8)
    assert KissModem(CHANNEL, Modulation(7), 14).airtime(8) == pytest.approx(
        Modulation(7, preamble=32).airtime(8)
    )


def test_received_frame_has_its_signal() -> None:
    modem, tnc = ready()
    tnc.hear(b"\xc0\xdb\xdc\xdd", -26, -113)
    assert exchange(modem, tnc, 2.0) == [Heard(b"\xc0\xdb\xdc\xdd", 2.0, -113.0, -6.5)]


def test_frames_without_signal_figures_are_received() -> None:
    modem, tnc = ready()
    tnc.report = 0
    tnc.hear(b"one", 0, 0)
    tnc.hear(b"two", 0, 0)
    assert exchange(modem, tnc, 2.0) == [Heard(b"one", 2.0)]
    assert modem.deadline == 2.0 + META_WAIT
    assert modem.tick(2.0 + META_WAIT) == [Heard(b"two", 2.0)]


def test_modem_sends_one_frame_at_a_time() -> None:
    modem, _ = ready()
    modem.send(b"one", 1.0)
    with pytest.raises(RuntimeError):
        modem.send(b"two", 1.0)


@pytest.mark.parametrize("answer", [b"\xf8\x00", b"\xf1\x03"])
def test_unsent_frame_is_reported(answer: bytes) -> None:
    modem, _ = ready()
    modem.send(b"one", 1.0)
    modem.take()
    assert modem.receive(wrap(b"\x06" + answer), 1.1) == [Sent(1.1, False)]
    assert modem.idle


def test_busy_modem_may_have_sent_the_frame_nevertheless() -> None:
    """A modem that has too many received frames to report also answers that it is busy. It still
    sends the frame, and TX_DONE follows.
    """
    busy = wrap(b"\x06\xf1\x07")
    modem, tnc = ready()
    modem.send(b"one", 1.0)
    tnc.feed(modem.take())
    assert modem.receive(busy, 1.1) == []
    assert not modem.idle
    tnc.finish()
    assert exchange(modem, tnc, 1.2) == [Sent(1.2, True)]
    modem.send(b"two", 2.0)
    modem.take()
    assert modem.receive(busy, 2.1) == []
    late = 2.0 + modem.airtime(3) + ANSWER_WAIT
    # it has sent an earlier frame, and never accepted this one
    assert modem.tick(late) == [Sent(late, False)]
    assert modem.idle


def test_a_busy_modem_that_is_asked_for_its_channel_is_not_given_up() -> None:
    modem, tnc = ready()
    assert modem.tick(LOOK_EVERY) == []
    assert modem.receive(wrap(b"\x06\xf1\x07"), LOOK_EVERY) == []
    assert exchange(modem, tnc, LOOK_EVERY + 0.1) == []
    assert modem.idle


def test_port_without_a_modem_is_reported() -> None:
    modem, tnc = KissModem(CHANNEL, Modulation(9), 14), Tnc()
    tnc.mute = True
    modem.open(0.0)
    assert exchange(modem, tnc, 0.0) == []
    assert modem.deadline == ANSWER_WAIT
    assert modem.tick(ANSWER_WAIT) == []
    assert modem.take() == b"\r\nAT\r\n"
    for asked in range(2, ASKS + 1):
        assert modem.tick(asked * ANSWER_WAIT) == []
        assert modem.take() == wrap(b"\x06\x11")
    (failed,) = modem.tick((ASKS + 1) * ANSWER_WAIT)
    assert isinstance(failed, Failed)
    assert "no KISS modem answers" in failed.reason
    assert modem.deadline is None


@pytest.mark.parametrize("dropped", range(1, 7))
def test_an_answer_that_a_full_queue_has_dropped_is_asked_for_again(dropped: int) -> None:
    """The test drops one answer: one of those during the setup, or the answer to the later check of
    the channel.
    """
    modem, tnc = KissModem(CHANNEL, Modulation(9), 14), Tnc()
    modem.open(0.0)
    events: list[Event] = []
    answers, now = 0, 0.0
    while now < 2 * LOOK_EVERY:
        tnc.feed(modem.take())
        data, tnc.out = tnc.out, b""
        answers += bool(data)
        if answers != dropped or not data:
            events += modem.receive(data, now)
        if not data:
            now = modem.deadline or now + 1
            events += modem.tick(now)
    assert events == [Ready("KISS modem, firmware 2")]
    assert modem.idle


def test_refused_channel_is_reported() -> None:
    modem, tnc = KissModem(CHANNEL, Modulation(9), 14), Tnc()
    tnc.refuses = {0x09}
    modem.open(0.0)
    (failed,) = exchange(modem, tnc, 0.0)
    assert failed == Failed(
        "asked to use this channel, the modem says that it cannot accept the value"
    )


def test_a_modem_that_hangs_or_is_reset_is_noticed_and_opened_again() -> None:
    modem, tnc = ready()
    modem.send(b"one", 1.0)
    late = 1.0 + modem.airtime(3) + ANSWER_WAIT
    assert modem.deadline == late
    assert modem.tick(late) == [
        Failed("the modem hangs: it has not reported that a frame was sent")
    ]
    modem.open(10.0)
    tnc.boot()
    assert len(exchange(modem, tnc, 10.0)) == 1
    tnc.boot()  # back on the default channel of its maker
    assert modem.tick(10.0 + LOOK_EVERY) == []
    (failed,) = exchange(modem, tnc, 40.0)
    assert isinstance(failed, Failed)
    assert "the modem was reset" in failed.reason
    modem.open(41.0)
    assert isinstance(exchange(modem, tnc, 41.0)[0], Ready)
    assert modem.tick(41.0 + LOOK_EVERY) == []
    assert exchange(modem, tnc, 71.0) == []
    assert modem.idle


def test_invalid_modem_frames_are_counted() -> None:
    modem, _ = ready()
    assert modem.receive(b"\xc0\x00\xdbx\xc0\x07?\xc0\x06\xf1\x05\xc0", 1.0) == []
    assert modem.counts == {
        "broken by the modem": 1,
        "strange from the modem": 1,
        "the modem says that its firmware does not know the request": 1,
    }


def test_frame_beyond_the_longest_of_the_protocol_is_dropped() -> None:
    """An escape counts as one byte."""
    decoder = Decoder()
    longest = encode(DATA, b"\xc0" * (LARGEST - 1))
    assert list(decoder.feed(longest)) == [(DATA, b"\xc0" * (LARGEST - 1))]
    assert list(decoder.feed(encode(DATA, bytes(LARGEST)))) == []
    assert decoder.broken == 1
    assert list(decoder.feed(encode(DATA, b"after"))) == [(DATA, b"after")]


def test_a_modem_that_takes_at_commands_is_distinguished_from_one_that_is_silent() -> None:
    modem = KissModem(CHANNEL, Modulation(9), 14)
    modem.open(0.0)
    modem.take()
    assert modem.tick(ANSWER_WAIT) == []
    (failed,) = modem.receive(b"+ERR=2\r\n", 1.1)
    assert isinstance(failed, Failed)
    assert 'write modem = "rylr998"' in failed.reason


@given(st.binary(max_size=300), st.integers(0, 15))
def test_coding_agrees_with_the_other_one(data: bytes, kind: int) -> None:
    assert encode(kind, data) == wrap(bytes((kind,)) + data)
    assert unwrap(encode(kind, data)[1:-1]) == bytes((kind,)) + data
    assert list(Decoder().feed(encode(kind, data))) == [(kind, data)]


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_no_bytes_of_the_port_stop_it(pieces: list[bytes]) -> None:
    modem, _ = ready()
    for moment, piece in enumerate(pieces):
        modem.receive(piece + b"\xc0\x06" + piece + b"\xc0", 1.0 + moment)
        modem.tick(1.0 + moment)
    decoder = Decoder()
    assert list(decoder.feed(b"\xc0" + b"x" * 100_000 + b"\xc0")) == []
    assert decoder.broken == 1
    assert list(decoder.feed(b"\x00after\xc0")) == [(0, b"after")]
