"""The readers of the rig and of the gateway agree about every frame, in both directions, and about
the shared vectors.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links import frames as gateway_frames
from gateway.links import handshake as gateway_handshake
from gateway.links.statistics import LinkStatistics
from hil.formats import frames
from hil.formats.frames import Ack, Cutter, Data, FrameError, Hello, Seal, Welcome, Who
from hil.formats.keys import cmac
from tests.links.test_vectors import KEYED_VECTORS, Fields, keyed_hello, number, vectors

u8, u16, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32))
seals = st.builds(Seal, u16) | st.builds(Seal, u32, st.just(True))
eight = st.binary(min_size=8, max_size=8).filter(any)
numbers = st.integers(0, 7)
data = st.builds(Data, numbers, numbers, st.binary(min_size=1, max_size=240))
sessions = data | st.builds(Ack, numbers)
names = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=23)
mtus, windows = st.integers(1, 240), st.integers(1, 4)
hellos = st.builds(Hello, u16, u8, u32, u32, mtus, windows, names, st.booleans())
welcomes = st.builds(Welcome, u16, u8, u16, u16, u32, mtus, windows, u32, st.booleans())
keyed_hellos = st.builds(
    Hello, u16, u8, u32, u32, mtus, windows, names, st.booleans(), eight, eight
)
none = st.just(0)
keyed_welcomes = st.builds(
    Welcome, u16, u8, none, none, u32, mtus, windows, u32, st.booleans(), eight, eight
)
handshakes = hellos | keyed_hellos | welcomes | keyed_welcomes | st.builds(Who, u16 | st.none())


def of_gateway(message: Hello | Welcome | Who) -> type:
    """Return the gateway's type for this message."""
    if isinstance(message, Welcome) and message.nonce:
        return gateway_handshake.KeyedWelcome
    return {
        Hello: gateway_handshake.Hello,
        Welcome: gateway_handshake.Welcome,
        Who: gateway_handshake.Who,
    }[type(message)]


def of_gateways(seal: Seal) -> gateway_frames.Check:
    return (gateway_frames.Crc32 if seal.keyed else gateway_frames.Crc16)(seal.seed)


def fields(message: object) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__slots__}  # type: ignore[attr-defined]


def body_of(frame: bytes) -> bytes:
    [body] = Cutter().feed(frame)
    return body


def gateways_body_of(frame: bytes) -> bytes:
    [body] = gateway_frames.FrameDecoder(LinkStatistics()).feed(frame)
    return body


@given(frame=sessions, seal=seals)
def test_the_gateway_reads_what_the_rig_writes_and_the_other_way(
    frame: Data | Ack, seal: Seal
) -> None:
    written, check = frames.write_session(frame, seal), of_gateways(seal)
    body = gateways_body_of(written)
    content = check.open(body)
    assert content is not None
    kind = gateway_frames.Data if isinstance(frame, Data) else gateway_frames.Ack
    theirs = kind.from_content(content)
    assert fields(theirs) == fields(frame)
    assert theirs.to_bytes(check) == written
    own = body_of(theirs.to_bytes(check))
    assert frames.belongs(own, seal)
    assert not frames.belongs(own, Seal(seal.seed ^ 1, seal.keyed))
    assert frames.read_session(own, seal) == frame


@given(message=handshakes)
def test_handshakes_too(message: Hello | Welcome | Who) -> None:
    written = frames.write_handshake(message)
    body = gateways_body_of(written)
    opened = gateway_frames.handshake_from_body(body)
    assert opened is not None
    kind, payload = opened
    their_class = of_gateway(message)
    assert kind == their_class.KIND
    theirs = their_class.from_payload(payload)
    known = {name: value for name, value in fields(message).items() if hasattr(theirs, name)}
    assert known == {name: getattr(theirs, name) for name in known}
    assert len(known) >= len(theirs.__slots__) - 1  # `flags` is `power_on` here
    assert frames.read_handshake(body_of(theirs.to_bytes())) == message


@given(message=welcomes)
def test_the_seed_of_a_session(message: Welcome) -> None:
    inputs = message.boot, message.attempt, message.gateway_boot, message.handshake
    assert message.seal(None, b"") == Seal(gateway_handshake.session_seed(*inputs))


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
    assert Welcome(*inputs, incarnation=1, mtu=1, window=1).seal(None, b"") == Seal(
        number(vector, "seed")
    )


@pytest.mark.parametrize(("kind", "vector"), vectors("cmac", path=KEYED_VECTORS))
def test_vectors_of_the_mac(kind: str, vector: Fields) -> None:
    key, message = bytes.fromhex(vector["key"]), bytes.fromhex(vector["message"])
    assert cmac(key, message).hex() == vector["mac"]


@pytest.mark.parametrize(("kind", "vector"), vectors("welcome", path=KEYED_VECTORS))
def test_vectors_of_session_keys(kind: str, vector: Fields) -> None:
    said = keyed_hello(vector, "own", "hello_flags").to_bytes()
    hello = frames.read_handshake(body_of(said))
    welcome = frames.read_handshake(body_of(bytes.fromhex(vector["frame"])))
    assert isinstance(hello, Hello)
    assert isinstance(welcome, Welcome)
    seal = welcome.seal(hello, bytes.fromhex(vector["key"]))
    assert seal == Seal(number(vector, "seed"), keyed=True)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("kind", ["data", "ack"])
def test_vectors_of_frames(kind: str, keyed: bool) -> None:
    path = {"path": KEYED_VECTORS} if keyed else {}
    for one in vectors(kind, **path):
        check_frame(one.values[1], keyed)  # type: ignore[arg-type]


def check_frame(vector: Fields, keyed: bool) -> None:
    written, seal = bytes.fromhex(vector["frame"]), Seal(number(vector, "seed"), keyed)
    body = body_of(written)
    assert frames.belongs(body, seal)
    frame = frames.read_session(body, seal)
    assert frames.write_session(frame, seal) == written
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
    assert frames.belongs(body, frames.handshake_seal(body))
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
        assert not any(frames.belongs(body, Seal(number(vector, "seed"))) for body in bodies)
    else:
        for body in bodies:
            with pytest.raises(FrameError):
                frames.read_session(body, Seal(0))
