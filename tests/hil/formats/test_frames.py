"""The rig's reader of frames and the gateway's say the same of every frame, in both directions; and
the shared vectors.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links import frames as gateway_frames
from gateway.links import handshake as gateway_handshake
from gateway.links.statistics import LinkStatistics
from hil.formats import frames
from hil.formats.frames import Ack, Cutter, Data, FrameError, Hello, Welcome, Who
from tests.links.test_vectors import Fields, number, vectors

u8, u16, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32))
seeds = u16
numbers = st.integers(0, 7)
data = st.builds(Data, numbers, numbers, st.binary(min_size=1, max_size=240))
sessions = data | st.builds(Ack, numbers)
names = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=23)
mtus, windows = st.integers(1, 240), st.integers(1, 4)
hellos = st.builds(Hello, u16, u8, u32, u32, mtus, windows, names, st.booleans())
welcomes = st.builds(Welcome, u16, u8, u16, u16, u32, mtus, windows, u32, st.booleans())
handshakes = hellos | welcomes | st.builds(Who, u16)
OF_GATEWAY = {
    Hello: gateway_handshake.Hello,
    Welcome: gateway_handshake.Welcome,
    Who: gateway_handshake.Who,
}


def fields(message: object) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__slots__}  # type: ignore[attr-defined]


def body_of(frame: bytes) -> bytes:
    [body] = Cutter().feed(frame)
    return body


def gateways_body_of(frame: bytes) -> bytes:
    [body] = gateway_frames.FrameDecoder(LinkStatistics()).feed(frame)
    return body


@given(frame=sessions, seed=seeds)
def test_the_gateway_reads_what_the_rig_writes_and_the_other_way(
    frame: Data | Ack, seed: int
) -> None:
    written = frames.write_session(frame, seed)
    body = gateways_body_of(written)
    content = gateway_frames.Crc16(seed).open(body)
    assert content is not None
    kind = gateway_frames.Data if isinstance(frame, Data) else gateway_frames.Ack
    theirs = kind.from_content(content)
    assert fields(theirs) == fields(frame)
    assert theirs.to_bytes(gateway_frames.Crc16(seed)) == written
    own = body_of(theirs.to_bytes(gateway_frames.Crc16(seed)))
    assert frames.belongs(own, seed)
    assert not frames.belongs(own, seed ^ 1)
    assert frames.read_session(own) == frame


@given(message=handshakes)
def test_handshakes_too(message: Hello | Welcome | Who) -> None:
    written = frames.write_handshake(message)
    body = gateways_body_of(written)
    opened = gateway_frames.handshake_from_body(body)
    assert opened is not None
    kind, payload = opened
    their_class = OF_GATEWAY[type(message)]
    assert kind == their_class.KIND
    theirs = their_class.from_payload(payload)
    assert {name: getattr(theirs, name) for name in fields(message)} == fields(message)
    assert frames.read_handshake(body_of(theirs.to_bytes())) == message


@given(message=welcomes)
def test_the_seed_of_a_session(message: Welcome) -> None:
    inputs = message.boot, message.attempt, message.gateway_boot, message.handshake
    assert message.seed == gateway_handshake.session_seed(*inputs)


@given(line=st.binary(max_size=600), cut=st.integers(0, 600))
def test_any_bytes_are_cut_into_the_same_bodies(line: bytes, cut: int) -> None:
    own = Cutter()
    theirs = gateway_frames.FrameDecoder(LinkStatistics())
    line += b"\0"
    found = own.feed(line[:cut]) + own.feed(line[cut:])
    assert found == list(theirs.feed(line))


@given(body=st.binary(min_size=3, max_size=243))
def test_cobs(body: bytes) -> None:
    assert b"\0" not in frames.stuff(body)
    assert frames.unstuff(frames.stuff(body)) == body


@pytest.mark.parametrize(("kind", "vector"), vectors("crc"))
def test_vectors_of_the_crc(kind: str, vector: Fields) -> None:
    assert frames.crc16(bytes.fromhex(vector["bytes"]), number(vector, "init")) == number(
        vector, "crc"
    )


@pytest.mark.parametrize(("kind", "vector"), vectors("seed"))
def test_vectors_of_the_seed(kind: str, vector: Fields) -> None:
    inputs = [number(vector, key) for key in ("boot", "attempt", "gateway_boot", "handshake")]
    assert Welcome(*inputs, incarnation=1, mtu=1, window=1).seed == number(vector, "seed")


@pytest.mark.parametrize(("kind", "vector"), vectors("data", "ack"))
def test_vectors_of_frames(kind: str, vector: Fields) -> None:
    written, seed = bytes.fromhex(vector["frame"]), number(vector, "seed")
    body = body_of(written)
    assert frames.belongs(body, seed)
    frame = frames.read_session(body)
    assert frames.write_session(frame, seed) == written
    assert frame.acknowledgement == number(vector, "ack")
    if isinstance(frame, Data):
        assert (frame.sequence, frame.payload) == (
            number(vector, "seq"),
            bytes.fromhex(vector["payload"]),
        )


@pytest.mark.parametrize(("kind", "vector"), vectors("hello", "welcome", "who"))
def test_vectors_of_handshakes(kind: str, vector: Fields) -> None:
    written = bytes.fromhex(vector["frame"])
    body = body_of(written)
    assert frames.belongs(body, frames.HANDSHAKE_SEED)
    message = frames.read_handshake(body)
    assert frames.write_handshake(message) == written
    said = fields(message)
    for key, text in vector.items():
        if key == "device":
            assert said["name"] == text
        elif key in said:
            assert said[key] == int(text, 0)


@pytest.mark.parametrize(("kind", "vector"), vectors("bad"))
def test_bad_vectors(kind: str, vector: Fields) -> None:
    bodies = Cutter().feed(bytes.fromhex(vector["frame"]))
    if vector["reason"] == "crc":
        assert not any(frames.belongs(body, number(vector, "seed")) for body in bodies)
    else:
        for body in bodies:
            with pytest.raises(FrameError):
                frames.read_session(body)
