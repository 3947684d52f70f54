"""Frames, encryption and packing of the turn link: hex vectors that the C code is tested with too,
and random and damaged input.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.frames import FrameError
from gateway.links.lora.airtime import LONGEST, Modulation
from gateway.links.lora.exchange import exchange
from gateway.links.lora.frames import (
    ANSWER,
    DOWN,
    MTU,
    TURN,
    UP,
    Header,
    Hello,
    SessionCipher,
    Welcome,
    is_who,
    who_frame,
)
from gateway.links.lora.packing import (
    PINGREQ,
    Answer,
    Turn,
    expected,
    pack_answer,
    pack_turn,
    read_answer,
    read_turn,
    split,
)
from tests.links.test_vectors import Fields, number, vectors

VECTORS = Path(__file__).parents[2] / "vectors" / "lora.txt"
KEY = bytes(range(16))
READING = Turn((b"\x62\x02\x00\x08", b"\x34\x1c\0\0\0\x09\x03\x23\0\x01" + bytes(20)))
HELLO = Hello(7, 3, 1, 0, 5, 9, 96).signed(KEY, 1234)


def octets(fields: Fields, key: str) -> bytes:
    return bytes.fromhex(fields[key])


@pytest.mark.parametrize(("kind", "fields"), vectors("ccm", path=VECTORS))
def test_a_sealed_frame_both_ways(kind: str, fields: Fields) -> None:
    cipher, frame = SessionCipher(octets(fields, "key")), octets(fields, "frame")
    where = number(fields, "direction"), number(fields, "counter")
    header = Header.from_frame(frame)
    assert header.to_bytes() == octets(fields, "header")
    assert cipher.seal(header, *where, octets(fields, "content")) == frame
    assert cipher.open(frame, *where) == octets(fields, "content")


@pytest.mark.parametrize(("kind", "fields"), vectors("badccm", path=VECTORS))
def test_a_frame_of_something_else_is_not_opened(kind: str, fields: Fields) -> None:
    cipher = SessionCipher(octets(fields, "key"))
    where = number(fields, "direction"), number(fields, "counter")
    assert cipher.open(octets(fields, "frame"), *where) is None


@pytest.mark.parametrize(("kind", "fields"), vectors("turn", path=VECTORS))
def test_a_turn_both_ways(kind: str, fields: Fields) -> None:
    packets, rest = split(octets(fields, "packets"))
    assert not rest
    turn = Turn(tuple(packets), bool(number(fields, "time")))
    assert pack_turn(turn) == octets(fields, "content")
    assert read_turn(octets(fields, "content")) == turn
    assert b"".join(expected(turn)) == octets(fields, "answers")


@pytest.mark.parametrize(("kind", "fields"), vectors("answer", path=VECTORS))
def test_an_answer_both_ways(kind: str, fields: Fields) -> None:
    turn = read_turn(octets(fields, "turn"))
    answer = read_answer(octets(fields, "content"), turn)
    assert b"".join(answer.packets) == octets(fields, "packets")
    told = number(fields, "utc") + number(fields, "part") / 256 if "utc" in fields else None
    assert (answer.utc, answer.more) == (told, bool(number(fields, "more")))
    assert pack_answer(answer, turn) == octets(fields, "content")


@pytest.mark.parametrize(("kind", "fields"), vectors("badturn", "badanswer", path=VECTORS))
def test_malformed_content_is_refused(kind: str, fields: Fields) -> None:
    content = octets(fields, "content")
    with pytest.raises(FrameError):
        read_turn(content) if kind == "badturn" else read_answer(content, READING)


def hello_of(fields: Fields) -> Hello:
    numbers = (number(fields, name) for name in ("network", "device", "boot", "attempt", "own"))
    bare = Hello(*numbers, number(fields, "next_sequence"), number(fields, "mtu"))
    bare = replace(bare, power_on=bool(number(fields, "flags")))
    return bare.signed(octets(fields, "key"), number(fields, "entropy"))


@pytest.mark.parametrize(("kind", "fields"), vectors("hello", path=VECTORS))
def test_hello_both_ways(kind: str, fields: Fields) -> None:
    hello = hello_of(fields)
    assert hello.nonce == octets(fields, "nonce")
    assert hello.to_bytes() == octets(fields, "frame")
    assert Hello.from_frame(octets(fields, "frame")) == hello
    assert hello.proves(octets(fields, "key"))


@pytest.mark.parametrize(("kind", "fields"), vectors("welcome", path=VECTORS))
def test_welcome_both_ways(kind: str, fields: Fields) -> None:
    hello, key = hello_of(fields), octets(fields, "key")
    numbers = number(fields, "incarnation"), MTU, number(fields, "utc")
    welcome = Welcome(hello.network, hello.device, octets(fields, "nonce"), *numbers)
    welcome = welcome.signed(key, hello)
    assert welcome.to_bytes() == octets(fields, "frame")
    assert Welcome.from_frame(octets(fields, "frame")) == welcome
    assert welcome.proves(key, hello)
    assert hello.session(key, welcome.nonce) == octets(fields, "session")


@pytest.mark.parametrize(("kind", "fields"), vectors("who", path=VECTORS))
def test_frame_who_round_trip(kind: str, fields: Fields) -> None:
    key, turn, frame = (octets(fields, name) for name in ("key", "turn", "frame"))
    assert who_frame(turn[0], turn[1], key, turn) == frame
    assert is_who(frame, key, turn)
    assert not is_who(frame, key, turn[:-1] + b"\0")
    assert not is_who(frame, KEY, turn)


def test_every_bit_of_a_greeting_counts() -> None:
    welcome = Welcome(7, 3, bytes(8), 5, MTU, 99).signed(KEY, HELLO)

    def flipped(frame: bytes, bit: int) -> bytes:
        return (int.from_bytes(frame, "big") ^ 1 << bit).to_bytes(len(frame), "big")

    for bit in range(8 * Hello.SIZE):
        try:
            assert not Hello.from_frame(flipped(HELLO.to_bytes(), bit)).proves(KEY)
        except FrameError:
            continue
    for bit in range(8 * Welcome.SIZE):
        try:
            assert not Welcome.from_frame(flipped(welcome.to_bytes(), bit)).proves(KEY, HELLO)
        except FrameError:
            continue
    other = replace(HELLO, attempt=1).signed(KEY, 1234)
    assert not welcome.proves(KEY, other)
    assert other.session(KEY, welcome.nonce) != HELLO.session(KEY, welcome.nonce)


def test_a_reading_is_as_long_as_the_figures_say() -> None:
    """A reading takes two sealed frames. `exchange.py` calculates with their lengths."""
    cipher = SessionCipher(KEY)
    up = cipher.seal(Header(1, 1, TURN, 1), UP, 1, pack_turn(READING))
    done = Answer(tuple(expected(READING)))
    down = cipher.seal(Header(1, 1, ANSWER, 1), DOWN, 1, pack_answer(done, READING))
    assert (len(up), len(down)) == (30, 8)
    for factor in range(7, 13):
        radio = Modulation(factor)
        cost = exchange(20, factor)
        assert (cost.up, cost.down) == (radio.airtime(len(up)), radio.airtime(len(down)))


def test_a_nonce_has_direction_and_counter_and_nothing_else() -> None:
    """The test fixes the bytes of the nonce, which RFC 3610 (the cipher's specification) leaves to
    the user.
    """
    header = Header(9, 8, TURN, 0x12EF & 0x3F)
    sealed = AESCCM(KEY, tag_length=4).encrypt(
        bytes((UP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0xEF)), b"text", header.to_bytes()
    )
    assert SessionCipher(KEY).seal(header, UP, 0x12EF, b"text") == header.to_bytes() + sealed


PACKETS = st.lists(
    st.one_of(
        st.builds(
            lambda first, identifier, payload, alias: (
                bytes((first, 10 + len(payload) - 2))
                + b"\0\0"
                + identifier.to_bytes(2, "big")
                + bytes((3, 0x23, 0, alias))
                + payload
            ),
            st.sampled_from([0x34, 0x32, 0x35, 0x3C]),
            st.integers(1, 0xFFFF),
            st.binary(max_size=60),
            st.integers(1, 6),
        ),
        st.integers(1, 0xFFFF).map(lambda identifier: b"\x62\x02" + identifier.to_bytes(2, "big")),
        st.integers(1, 0xFFFF).map(lambda identifier: b"\x50\x02" + identifier.to_bytes(2, "big")),
        st.just(PINGREQ),
    ),
    min_size=1,
    max_size=4,
)


@given(PACKETS, st.booleans())
def test_packing_loses_nothing(packets: list[bytes], asks_time: bool) -> None:
    turn = Turn(tuple(packets), asks_time)
    content = pack_turn(turn)
    assert read_turn(content) == turn
    assert len(content) <= sum(map(len, packets)) + asks_time


@given(PACKETS, PACKETS, st.one_of(st.none(), st.integers(0, 2**40 - 1)), st.booleans())
def test_an_answer_has_the_same_packets(
    asked: list[bytes], others: list[bytes], moment: int | None, more: bool
) -> None:
    turn = Turn(tuple(asked))
    packets = expected(turn) + others
    utc = None if moment is None else moment / 256
    back = read_answer(pack_answer(Answer(tuple(packets), utc, more), turn), turn)
    assert sorted(back.packets) == sorted(packets)
    assert (back.utc, back.more) == (utc, more)


def test_content_too_long_for_a_frame_is_refused() -> None:
    cipher, header = SessionCipher(KEY), Header(1, 2, TURN, 0)
    assert len(cipher.seal(header, UP, 0, bytes(MTU))) == LONGEST
    with pytest.raises(ValueError, match=f"content of {MTU + 1} bytes, more than {MTU}"):
        cipher.seal(header, UP, 1, bytes(MTU + 1))


@pytest.mark.parametrize(
    "packet", [b"\x34\x00", b"\x34\x02\x00\x00", b"\x34\x04\x00\x02ab", b"\x32\x03\x00\x05a"]
)
def test_publish_that_ends_too_early_is_sent_as_it_is_and_gets_no_answer(packet: bytes) -> None:
    """The broker refuses the packet, and ends the connection."""
    turn = Turn((packet, b"\x62\x02\x00\x08"))
    assert read_turn(pack_turn(turn)) == turn
    assert read_turn(pack_turn(Turn((packet,)))) == Turn((packet,))
    assert expected(turn) == [b"\x70\x02\x00\x08"]


@given(st.binary(max_size=260))
def test_no_frame_and_no_content_breaks_a_reader(data: bytes) -> None:
    for reader in (
        Header.from_frame,
        Hello.from_frame,
        Welcome.from_frame,
        read_turn,
        split,
        lambda content: read_answer(content, READING),
    ):
        try:
            reader(data)
        except FrameError:
            continue
    assert SessionCipher(KEY).open(data, UP, 1) is None


@given(st.binary(max_size=MTU), st.integers(0, 0xFFFF))
def test_sealed_frame_opens_in_one_direction_only(content: bytes, counter: int) -> None:
    cipher = SessionCipher(KEY)
    frame = cipher.seal(Header(1, 2, TURN, counter & 0x3F), UP, counter, content)
    assert cipher.open(frame, UP, counter) == content
    assert cipher.open(frame, DOWN, counter) is None
    assert cipher.open(frame, UP, counter ^ 64) is None
