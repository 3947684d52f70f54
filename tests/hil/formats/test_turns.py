"""The readers of the rig and of the gateway agree about every radio frame, in both directions, and
about the shared vectors.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links import frames as gateway_frames
from gateway.links.lora import frames as theirs
from gateway.links.lora import packing
from hil.formats import turns
from hil.formats.frames import FrameError
from hil.formats.packets import (
    Answer,
    Connack,
    Kind,
    Other,
    Packet,
    PacketError,
    Property,
    Publish,
    Subscribe,
    write,
)
from hil.formats.turns import POLL, Reply, Turn, Type
from tests.links.test_vectors import Fields, number, vectors

VECTORS = Path(__file__).parents[2] / "vectors" / "lora.txt"

u8, u16, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32))
keys = st.binary(min_size=16, max_size=16)
nonces = st.binary(min_size=8, max_size=8)
devices, mtus = st.integers(1, 254), st.integers(1, 248)
identifiers = st.integers(1, 0xFFFF)
payloads = st.binary(max_size=30)
aliases = st.integers(1, 6).map(lambda number: ((Property.TOPIC_ALIAS, number),))
publishes = st.builds(
    Publish,
    st.sampled_from(["", "s1/t"]),
    payloads,
    st.integers(1, 2),
    identifiers,
    st.booleans(),
    properties=aliases | st.just(()),
)
releases = st.builds(Answer, st.just(Kind.PUBREL), identifiers)
of_board = publishes | releases | st.builds(Answer, st.just(Kind.PUBREC), identifiers)
of_board |= st.just(Subscribe(1, (("s1/c", 2),))) | st.just(Other(Kind.DISCONNECT))
refusals = st.builds(Answer, st.just(Kind.PUBREC), identifiers, st.sampled_from([0, 0x97]))
of_gateway = publishes | refusals | st.just(Connack(True, 0))
readings = st.builds(
    lambda release, identifier, payload: (
        *([Answer(Kind.PUBREL, identifier - 1 or 0xFFFF)] if release else []),
        Publish("", payload, 2, identifier, properties=((Property.TOPIC_ALIAS, 1),)),
    ),
    st.booleans(),
    identifiers,
    payloads,
)
"""Packets of one turn, packed as a board packs them."""
spoken = st.just((POLL,)) | readings | st.lists(of_board, min_size=1, max_size=4).map(tuple)
hellos = st.builds(theirs.Hello, u8, devices, u16, u16, u32, u32, mtus, st.booleans(), nonces)


def octets(fields: Fields, key: str) -> bytes:
    return bytes.fromhex(fields[key])


def written(packets: tuple[Packet, ...]) -> tuple[bytes, ...]:
    return tuple(map(write, packets))


@given(packets=spoken, asks_time=st.booleans())
def test_a_turn_says_the_same_to_both(packets: tuple[Packet, ...], asks_time: bool) -> None:
    content = packing.pack_turn(packing.Turn(written(packets), asks_time))
    found, known = turns.read_turn(content), packing.read_turn(content)
    assert written(found.packets) == known.packets == written(packets)
    assert found.asks_time == known.asks_time == asks_time
    assert list(written(tuple(turns.successes(found)))) == packing.expected(known)


@given(
    packets=spoken,
    beside=st.lists(of_gateway, max_size=3).map(tuple),
    succeeds=st.booleans(),
    utc=st.none() | st.integers(0, (1 << 40) - 1).map(lambda parts: parts / 256),
    more=st.booleans(),
)
def test_an_answer_says_the_same_to_both(
    packets: tuple[Packet, ...],
    beside: tuple[Packet, ...],
    succeeds: bool,
    utc: float | None,
    more: bool,
) -> None:
    turn = packing.Turn(written(packets))
    told = (*packing.expected(turn), *written(beside)) if succeeds else written(beside)
    content = packing.pack_answer(packing.Answer(told, utc, more), turn)
    found, known = turns.read_answer(content, Turn(packets)), packing.read_answer(content, turn)
    assert written(found.packets) == known.packets
    assert sorted(known.packets) == sorted(told)
    assert (found.utc, found.more) == (known.utc, known.more) == (utc, more)


@given(content=st.binary(max_size=12))
def test_frames_that_the_gateway_refuses_are_refused(content: bytes) -> None:
    """The rig may refuse more frames than the gateway, because the rig also reads the packets in a
    turn.
    """
    try:
        packing.read_turn(content)
    except gateway_frames.FrameError:
        with pytest.raises((FrameError, PacketError)):
            turns.read_turn(content)


@given(
    key=keys,
    network=u8,
    device=devices,
    answers=st.booleans(),
    counter=u16,
    content=payloads,
    flip=st.integers(0),
)
def test_frame_opens_for_both_ends_and_never_with_a_flipped_bit(
    key: bytes,
    network: int,
    device: int,
    answers: bool,
    counter: int,
    content: bytes,
    flip: int,
) -> None:
    kind, low = (theirs.ANSWER if answers else theirs.TURN), counter & theirs.LOW
    cipher = theirs.SessionCipher(key)
    head = theirs.Header(network, device, kind, low)
    frame = cipher.seal(head, int(answers), counter, content)
    assert turns.head(frame) == turns.Head(network, device, Type(kind), low)
    assert turns.opened(frame, key, counter) == content
    assert turns.opened(frame, key, counter ^ turns.LOW_BITS) is None
    bits = int.from_bytes(frame) ^ 1 << flip % (8 * len(frame))
    assert turns.opened(bits.to_bytes(len(frame)), key, counter) is None


@given(hello=hellos, key=keys, entropy=u32, nonce=nonces, incarnation=u32, mtu=mtus, utc=u32)
def test_greetings_mean_the_same_to_both(
    hello: theirs.Hello,
    key: bytes,
    entropy: int,
    nonce: bytes,
    incarnation: int,
    mtu: int,
    utc: int,
) -> None:
    signed = hello.signed(key, entropy)
    frame = signed.to_bytes()
    found = turns.read_hello(frame)
    numbers = signed.boot, signed.attempt, signed.incarnation, signed.next_sequence
    assert found == turns.Hello(*numbers, int.from_bytes(signed.nonce))
    assert turns.is_hello(frame, key)
    assert not turns.is_hello(frame[:-1] + bytes([frame[-1] ^ 1]), key)
    offer = theirs.Welcome(hello.network, hello.device, nonce, incarnation, mtu, utc)
    welcome = offer.signed(key, signed).to_bytes()
    assert turns.is_welcome(welcome)
    assert not turns.is_who(welcome)
    assert turns.read_welcome(welcome) == turns.Welcome(int.from_bytes(nonce), incarnation, utc)
    assert turns.welcomes(welcome, frame, key)
    assert not turns.welcomes(welcome, frame[:-1] + bytes([frame[-1] ^ 1]), key)
    assert turns.session_key(key, welcome, frame) == signed.session(key, nonce)


@given(key=keys, network=u8, device=devices, turn=st.binary(min_size=7, max_size=40))
def test_frame_who_differs_from_a_welcome(
    key: bytes, network: int, device: int, turn: bytes
) -> None:
    frame = theirs.who_frame(network, device, key, turn)
    assert turns.is_who(frame)
    assert not turns.is_welcome(frame)


@pytest.mark.parametrize("length", [0, 6, 256])
def test_too_short_or_too_long_data_are_not_a_frame(length: int) -> None:
    with pytest.raises(FrameError):
        turns.head(bytes(length))


@pytest.mark.parametrize(("kind", "fields"), vectors("ccm", path=VECTORS))
def test_the_shared_frames(kind: str, fields: Fields) -> None:
    frame, counter = octets(fields, "frame"), number(fields, "counter")
    assert turns.head(frame).type == number(fields, "direction")
    assert turns.opened(frame, octets(fields, "key"), counter) == octets(fields, "content")


@pytest.mark.parametrize(("kind", "fields"), vectors("turn", path=VECTORS))
def test_the_shared_turns(kind: str, fields: Fields) -> None:
    turn = turns.read_turn(octets(fields, "content"))
    assert b"".join(written(turn.packets)) == octets(fields, "packets")
    assert turn.asks_time == bool(number(fields, "time"))
    assert b"".join(written(tuple(turns.successes(turn)))) == octets(fields, "answers")


@pytest.mark.parametrize(("kind", "fields"), vectors("answer", path=VECTORS))
def test_the_shared_answers(kind: str, fields: Fields) -> None:
    found = turns.read_answer(octets(fields, "content"), turns.read_turn(octets(fields, "turn")))
    assert b"".join(written(found.packets)) == octets(fields, "packets")
    utc = number(fields, "utc") + number(fields, "part") / 256 if "utc" in fields else None
    assert found == Reply(found.packets, utc, bool(number(fields, "more")))


@pytest.mark.parametrize(("kind", "fields"), vectors("badturn", path=VECTORS))
def test_the_shared_mistakes_of_a_board(kind: str, fields: Fields) -> None:
    with pytest.raises((FrameError, PacketError)):
        turns.read_turn(octets(fields, "content"))


@pytest.mark.parametrize(("kind", "fields"), vectors("badanswer", path=VECTORS))
def test_the_shared_mistakes_of_a_gateway(kind: str, fields: Fields) -> None:
    with pytest.raises((FrameError, PacketError)):
        turns.read_answer(octets(fields, "content"), Turn((POLL,)))
