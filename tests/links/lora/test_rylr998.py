"""The driver of the RYLR998, with the rig's emulator, which follows the AT command guide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.lora.airtime import Modulation
from gateway.links.lora.radio import Event, Failed, Heard, Radio, Ready, Sent
from gateway.links.lora.rylr998 import (
    ANSWER_WAIT,
    ERRORS,
    GAP,
    LOOK_EVERY,
    OF_RECEPTION,
    Decoder,
    Line,
    Received,
    Rylr998,
)
from hil.air.rylr998 import HEAD, Modem, prefix

CHANNEL = 869_525_000
NASTY = b"\r\n+RCV=1,2,xx,-3,4\r\n+OK\r\n+ERR=1\r\n,-1,2\r\n\x00\xff"


class Pair:
    """The driver and the emulator, connected without a line between them."""

    def __init__(self) -> None:
        self.said = b""
        self.air: list[str] = []
        self.modem = Modem(self._say, self.air.append)
        self.radio = Rylr998(CHANNEL, Modulation(9), 14)

    def _say(self, data: bytes) -> None:
        self.said += data

    def run(self, now: float, step: int = 1000) -> list[Event]:
        """Carry bytes in both directions, `step` bytes at a time, until both ends are silent."""
        events: list[Event] = []
        while True:
            asked = self.radio.take()
            for at in range(0, len(asked), step):
                self.modem.feed(asked[at : at + step])
            said, self.said = self.said, b""
            for at in range(0, len(said), step):
                events += self.radio.receive(said[at : at + step], now)
            if not asked and not said:
                return events

    def begin(self) -> "Pair":
        self.radio.open(0.0)
        assert self.run(0.0) == [Ready("RYLR998, firmware RYLR998_REYAX_V1.2.2")]
        return self


def test_driver_fulfils_the_radio_interface() -> None:
    radio: Radio = Rylr998(CHANNEL, Modulation(9), 14)
    assert not radio.idle


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_only_changed_settings_are_sent_to_the_modem(step: int) -> None:
    pair = Pair()
    pair.radio.open(0.0)
    assert pair.run(0.0, step) == [Ready("RYLR998, firmware RYLR998_REYAX_V1.2.2")]
    assert pair.radio.idle
    settings = pair.modem.settings
    assert settings[b"BAND"] == b"869525000"
    assert (settings[b"PARAMETER"], settings[b"CRFOP"]) == (b"9,7,1,8", b"14")
    assert pair.air[-1] == "listen 869525000 125000 9"
    settings[b"CRFOP"] = b"5"
    pair.radio.open(10.0)
    asked = b""
    while data := pair.radio.take():
        asked += data
        pair.modem.feed(data)
        said, pair.said = pair.said, b""
        pair.radio.receive(said, 10.0)
    assert [line for line in asked.split(b"\r\n") if b"=" in line] == [b"AT+CRFOP=14"]


@pytest.mark.parametrize("step", [1, 1000])
def test_a_frame_of_any_bytes_goes_out_and_its_eight_bytes_are_charged(step: int) -> None:
    pair = Pair().begin()
    pair.radio.send(NASTY, 1.0)
    assert not pair.radio.idle
    assert pair.run(1.0, step) == []
    sent = bytes.fromhex(pair.air[-1].split()[-1])
    assert sent == prefix(18, 0, 0, len(NASTY)) + NASTY
    assert pair.radio.airtime(len(NASTY)) == Modulation(9).airtime(len(sent))
    pair.modem.sent()
    assert pair.run(3.0, step) == [Sent(3.0, True)]
    assert pair.radio.idle


def test_a_modem_that_says_ok_at_once_is_taken_to_send_until_the_airtime_is_over() -> None:
    pair = Pair().begin()
    pair.radio.send(b"one", 1.0)
    pair.radio.take()
    assert pair.radio.receive(b"+OK\r\n", 1.01) == []
    over = pair.radio.deadline
    assert over is not None
    assert over > 1.0 + pair.radio.airtime(3)
    assert pair.radio.tick(over - 0.001) == []
    assert pair.radio.tick(over) == [Sent(over, True)]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_received_data_are_cut_by_their_length(step: int) -> None:
    pair = Pair().begin()
    for data in (NASTY, b"+READY\r\n", b"plain"):
        pair.modem.heard(-99.0, -11.4, prefix(18, 0, 3, len(data)) + data)
        assert pair.run(2.0, step) == [Heard(data, 2.0, -99.0, -11.0)]
    assert not pair.radio.counts


@pytest.mark.parametrize("code", ERRORS)
def test_unexpected_error_of_the_modem_is_counted(code: int) -> None:
    pair = Pair().begin()
    assert pair.radio.receive(b"+ERR=%d\r\n" % code, 1.0) == []
    assert pair.radio.counts == {f"the modem says {ERRORS[code]}": 1}
    assert pair.radio.idle


@pytest.mark.parametrize("code", sorted({*ERRORS, 99} - {*OF_RECEPTION}))
def test_error_as_an_answer_is_reported(code: int) -> None:
    pair = Pair().begin()
    pair.radio.send(b"one", 1.0)
    pair.radio.take()
    assert pair.radio.receive(b"+ERR=%d\r\n" % code, 1.1) == [Sent(1.1, False)]
    assert pair.radio.idle
    pair.radio.open(2.0)
    (failed,) = pair.radio.receive(b"+ERR=%d\r\n" % code, 2.1)
    assert isinstance(failed, Failed)
    assert ERRORS.get(code, "error 99") in failed.reason


@pytest.mark.parametrize("code", OF_RECEPTION)
def test_an_error_of_reception_answers_nothing(code: int) -> None:
    pair = Pair().begin()
    pair.radio.send(b"one", 1.0)
    pair.run(1.0)
    assert pair.radio.receive(b"+ERR=%d\r\n" % code, 1.1) == []
    assert not pair.radio.idle


def test_a_frame_of_another_make_makes_it_say_an_error() -> None:
    pair = Pair().begin()
    pair.modem.heard(-80.0, 5.0, b"no eight bytes of its own")
    assert pair.run(1.0) == []
    assert pair.radio.counts[f"the modem says {ERRORS[12]}"] == 1


@pytest.mark.parametrize("cut", range(1, 19))
def test_a_modem_that_resets_in_the_middle_of_a_line_is_opened_again(cut: int) -> None:
    pair = Pair().begin()
    assert pair.radio.receive(b"+RCV=3,5,hello,-99,-11\r\n"[:cut], 1.0) == []
    pair.modem.reset()
    assert pair.radio.receive(pair.said, 1.0 + 2 * GAP) == [Failed("the modem was reset")]
    assert pair.radio.counts == {"broken by the modem": 1}
    pair.said = b""
    pair.radio.open(6.0)
    assert isinstance(pair.run(6.0)[0], Ready)
    pair.modem.heard(-80.0, 5.0, prefix(18, 0, 3, 2) + b"ok")
    assert pair.run(7.0) == [Heard(b"ok", 7.0, -80.0, 5.0)]


def test_a_modem_that_resets_while_it_sends_is_opened_again() -> None:
    pair = Pair().begin()
    pair.radio.send(b"one", 1.0)
    pair.run(1.0)
    pair.modem.reset()
    assert pair.run(1.2) == [Failed("the modem was reset")]
    assert pair.radio.deadline is None


def test_port_without_a_modem_or_with_a_hanging_one_is_reported() -> None:
    radio = Rylr998(CHANNEL, Modulation(9), 14)
    radio.open(0.0)
    assert radio.deadline == ANSWER_WAIT
    (failed,) = radio.tick(ANSWER_WAIT)
    assert isinstance(failed, Failed)
    assert "no RYLR998 answers (asked whether it is there)" in failed.reason
    pair = Pair().begin()
    pair.radio.send(b"one", 1.0)
    pair.modem.hangs = True
    pair.run(1.0)
    late = pair.radio.deadline
    assert late is not None
    assert pair.radio.tick(late) == [
        Failed("the modem hangs: it has not reported that it accepted a frame")
    ]


def test_kiss_modem_at_an_rylr998_port_is_reported() -> None:
    radio = Rylr998(CHANNEL, Modulation(9), 14)
    radio.open(0.0)
    (failed,) = radio.receive(b"\xc0\x06\xf1\x05\xc0\r\n", 0.1)
    assert isinstance(failed, Failed)
    assert 'modem = "kiss"' in failed.reason


def test_refused_modem_setting_is_reported() -> None:
    pair = Pair()
    pair.radio = Rylr998(CHANNEL, Modulation(10), 14)
    pair.radio.open(0.0)
    (failed,) = pair.run(0.0)
    assert isinstance(failed, Failed)
    assert (
        "with AT+PARAMETER=10,7,1,8, the modem says that it does not know a command"
        in failed.reason
    )


def test_a_modem_that_keeps_its_setting_although_it_says_ok_is_reported() -> None:
    radio = Rylr998(CHANNEL, Modulation(9), 14)
    radio.open(0.0)
    for answer, asked in (
        (b"+OK", b"AT+VER?"),
        (b"+VER=1", b"AT+NETWORKID?"),
        (b"+NETWORKID=3", b"AT+NETWORKID=18"),
        (b"+OK", b"AT+NETWORKID?"),
    ):
        radio.take()
        assert radio.receive(answer + b"\r\n", 0.1) == []
        assert radio.take() == asked + b"\r\n"
    assert radio.receive(b"+NETWORKID=3\r\n", 0.2) == [
        Failed("the modem does not accept +NETWORKID=18: it says +NETWORKID=3")
    ]
    assert (radio.idle, radio.deadline, radio.take()) == (False, None, b"")


def test_second_frame_has_to_wait_until_the_first_is_sent() -> None:
    pair = Pair().begin()
    pair.radio.send(b"one", 1.0)
    pair.radio.take()
    with pytest.raises(RuntimeError, match="is sending"):
        pair.radio.send(b"two", 1.1)
    assert pair.radio.take() == b""
    with pytest.raises(RuntimeError, match="not ready"):
        Rylr998(CHANNEL, Modulation(9), 14).send(b"one", 0.0)


def test_unasked_ok_of_the_modem_ends_no_later_frame() -> None:
    pair = Pair().begin()
    assert pair.radio.receive(b"+OK\r\n", 1.0) == []
    assert pair.radio.idle
    pair.radio.send(b"one", 2.0)
    leaves = 2.0 + pair.radio.airtime(3)
    assert pair.radio.tick(leaves + 0.1) == []
    assert not pair.radio.idle


def test_modem_settings_changed_from_outside_are_noticed() -> None:
    pair = Pair().begin()
    assert pair.radio.tick(LOOK_EVERY) == []
    assert pair.run(LOOK_EVERY) == []
    pair.modem.settings[b"BAND"] = b"868100000"
    assert pair.radio.tick(2 * LOOK_EVERY) == []
    (failed,) = pair.run(2 * LOOK_EVERY)
    assert failed == Failed("the modem says +BAND=868100000, but was set to +BAND=869525000")


@given(st.binary(max_size=240), st.data())
def test_any_frame_split_anywhere_is_heard_whole(data: bytes, draw: st.DataObject) -> None:
    line = b"+RCV=7,%d,%b,-120,-9\r\n+OK\r\n" % (len(data), data)
    decoder, at, found = Decoder(), 0, []
    while at < len(line):
        step = draw.draw(st.integers(1, 40))
        found += decoder.feed(line[at : at + step], 1.0)
        at += step
    assert found == [Received(data, -120, -9), Line(b"+OK")]
    assert decoder.broken == 0


@given(
    st.lists(st.binary(max_size=80) | st.sampled_from([b"+RCV=", b"+RCV=1,240,", b"\r\n", b"+OK"]))
)
def test_no_bytes_of_the_port_stop_it(pieces: list[bytes]) -> None:
    pair = Pair().begin()
    for number, piece in enumerate(pieces):
        pair.radio.receive(piece, 1.0 + number / 100)
        pair.radio.tick(1.0 + number / 100)
    decoder = Decoder()
    for piece in pieces:
        decoder.feed(piece, 1.0)
    decoder.feed(b"x" * 100_000, 1.0)
    assert decoder.broken >= 1
    decoder.feed(b"\r\n", 1.0)
    assert decoder.feed(b"+OK\r\n", 2.0)[-1:] == [Line(b"+OK")]


@given(st.lists(st.binary(max_size=80) | st.sampled_from([b"AT+SEND=0,240,", b"AT", b"\r\n"])))
def test_the_emulator_takes_any_bytes(pieces: list[bytes]) -> None:
    pair = Pair()
    for piece in pieces:
        pair.modem.feed(piece)
        pair.modem.heard(-80.0, 5.0, piece.ljust(HEAD, b"\0"))
