"""Hex vectors with which the C code is tested, too."""

from binascii import crc_hqx
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from gateway.links import cobs
from gateway.links.frames import (
    Ack,
    Crc16,
    Crc32,
    Data,
    FrameDecoder,
    FrameError,
    Time,
    frame_type,
    handshake_from_body,
)
from gateway.links.greeter import Greeter
from gateway.links.handshake import Hello, KeyedWelcome, Welcome, Who, session_seed
from gateway.links.keys import cmac
from gateway.links.reliable import Session
from gateway.links.roles import GatewayLink
from gateway.links.statistics import LinkStatistics

VECTORS = Path(__file__).parents[1] / "vectors" / "link.txt"
KEYED_VECTORS = VECTORS.with_name("keys.txt")

Fields = dict[str, str]


def vectors(*kinds: str, path: Path = VECTORS) -> list[ParameterSet]:
    found = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, name, *pairs = line.split()
            if kind in kinds:
                found.append(
                    pytest.param(
                        kind, dict(pair.split("=", 1) for pair in pairs), id=f"{kind}-{name}"
                    )
                )
    assert found
    return found


def number(fields: Fields, key: str) -> int:
    return int(fields[key], 0)


def body_of(frame: bytes) -> bytes:
    (body,) = FrameDecoder(LinkStatistics()).feed(frame)
    return body


@pytest.mark.parametrize(("kind", "fields"), vectors("crc"))
def test_crc(kind: str, fields: Fields) -> None:
    assert crc_hqx(bytes.fromhex(fields["bytes"]), number(fields, "init")) == number(fields, "crc")


@pytest.mark.parametrize(("kind", "fields"), vectors("seed"))
def test_seed(kind: str, fields: Fields) -> None:
    counters = [number(fields, key) for key in ("boot", "attempt", "gateway_boot", "handshake")]
    assert session_seed(*counters) == number(fields, "seed")


@pytest.mark.parametrize(("kind", "fields"), vectors("data", "ack"))
def test_session_frames_both_ways(kind: str, fields: Fields) -> None:
    frame, check = bytes.fromhex(fields["frame"]), Crc16(number(fields, "seed"))
    expected: Data | Ack
    if kind == "data":
        expected = Data(
            number(fields, "seq"), number(fields, "ack"), bytes.fromhex(fields["payload"])
        )
    else:
        expected = Ack(number(fields, "ack"))
    body = body_of(frame)
    assert frame_type(body) == expected.TYPE
    assert type(expected).from_content(check.open(body) or b"") == expected
    assert expected.to_bytes(check) == frame


@pytest.mark.parametrize(("kind", "fields"), vectors("time"))
def test_time_both_ways(kind: str, fields: Fields) -> None:
    frame, seed = bytes.fromhex(fields["frame"]), number(fields, "seed")
    told = number(fields, "utc") + number(fields, "part") / 256 if "utc" in fields else None
    body = body_of(frame)
    assert frame_type(body) == Time.TYPE
    assert Time.from_content(Crc16(seed).open(body) or b"") == Time(told)
    assert Time(told).to_bytes(Crc16(seed)) == frame


@pytest.mark.parametrize(("kind", "fields"), vectors("hello", "welcome", "who"))
def test_handshake_frames_both_ways(kind: str, fields: Fields) -> None:
    frame = bytes.fromhex(fields["frame"])
    message: type[Hello] | type[Welcome] | type[Who] = {
        "hello": Hello,
        "welcome": Welcome,
        "who": Who,
    }[kind]
    body = body_of(frame)
    code, payload = handshake_from_body(body) or (None, b"")
    assert code == message.KIND
    parsed = message.from_payload(payload)
    for key, text in fields.items():
        if key == "device":
            assert getattr(parsed, "name") == text  # noqa: B009
        elif key == "flags":
            assert getattr(parsed, "power_on" if kind == "hello" else "refused") == bool(
                int(text) & 1
            )
        elif key not in ("frame", "version"):
            assert getattr(parsed, key) == int(text, 0)
    assert parsed.to_bytes() == frame


@pytest.mark.parametrize(("kind", "fields"), vectors("bad"))
def test_bad_frames_are_dropped_and_counted(kind: str, fields: Fields) -> None:
    link = GatewayLink(Greeter(1))
    link.session = Session(Crc16(number(fields, "seed")), 240, 4, 0.0)
    assert link.receive(bytes.fromhex(fields["frame"]), 0.0) == []
    assert link.take() == b""
    counted = link.statistics
    assert (counted.crc_errors, counted.malformed_frames) == (
        (1, 0) if fields["reason"] == "crc" else (0, 1)
    )


@pytest.mark.parametrize(("kind", "fields"), vectors("cmac", path=KEYED_VECTORS))
def test_cmac(kind: str, fields: Fields) -> None:
    key, message = (bytes.fromhex(fields[name]) for name in ("key", "message"))
    assert cmac(key, message).hex() == fields["mac"]


@pytest.mark.parametrize(("kind", "fields"), vectors("data", "ack", path=KEYED_VECTORS))
def test_session_frames_with_a_key_both_ways(kind: str, fields: Fields) -> None:
    frame, check = bytes.fromhex(fields["frame"]), Crc32(number(fields, "seed"))
    expected: Data | Ack = Ack(number(fields, "ack"))
    if kind == "data":
        payload = bytes.fromhex(fields["payload"])
        expected = Data(number(fields, "seq"), number(fields, "ack"), payload)
    assert type(expected).from_content(check.open(body_of(frame)) or b"") == expected
    assert expected.to_bytes(check) == frame


def keyed_hello(fields: Fields, incarnation: str, flags: str) -> Hello:
    """Return the HELLO of a device with a key, as the board builds it."""
    key = bytes.fromhex(fields["key"])
    numbers = (number(fields, name) for name in ("boot", "attempt", incarnation, "next_sequence"))
    bare = Hello(*numbers, 240, 4, fields["device"], number(fields, flags), nonce=bytes(8))
    seen = bare.payload[:15] + number(fields, "entropy").to_bytes(4, "big")
    return replace(bare, nonce=cmac(key, b"\x00" + seen)[:8]).signed(key)


@pytest.mark.parametrize(("kind", "fields"), vectors("hello", path=KEYED_VECTORS))
def test_hello_with_a_key_both_ways(kind: str, fields: Fields) -> None:
    hello = keyed_hello(fields, "incarnation", "flags")
    assert hello.nonce.hex() == fields["nonce"]
    assert hello.to_bytes().hex() == fields["frame"]
    _, payload = handshake_from_body(body_of(hello.to_bytes())) or (0, b"")
    assert Hello.from_payload(payload) == hello
    assert hello.proves(bytes.fromhex(fields["key"]))


@pytest.mark.parametrize(("kind", "fields"), vectors("welcome", "refusal", path=KEYED_VECTORS))
def test_welcome_with_a_key_both_ways(kind: str, fields: Fields) -> None:
    key, hello = bytes.fromhex(fields["key"]), keyed_hello(fields, "own", "hello_flags")
    numbers = [number(fields, name) for name in ("incarnation", "mtu", "window", "utc")]
    welcome = KeyedWelcome(
        hello.boot, hello.attempt, bytes.fromhex(fields["nonce"]), *numbers, kind == "refusal"
    )
    if kind == "welcome":
        welcome = welcome.signed(key, hello)
        assert welcome.check(key, hello) == Crc32(number(fields, "seed"))
    assert welcome.to_bytes().hex() == fields["frame"]
    _, payload = handshake_from_body(body_of(welcome.to_bytes())) or (0, b"")
    assert KeyedWelcome.from_payload(payload) == welcome
    assert welcome.proves(key, hello) == (kind == "welcome")


@pytest.mark.parametrize(("kind", "fields"), vectors("bad", path=KEYED_VECTORS))
def test_bad_frames_with_a_key_are_dropped_and_counted(kind: str, fields: Fields) -> None:
    link = GatewayLink(Greeter(1))
    link.session = Session(Crc32(number(fields, "seed")), 240, 4, 0.0)
    assert link.receive(bytes.fromhex(fields["frame"]), 0.0) == []
    assert link.take() == b""
    counted = link.statistics.crc_errors, link.statistics.malformed_frames
    assert counted == ((1, 0) if fields["reason"] == "crc" else (0, 1))


def test_a_body_of_every_vector_survives_cobs() -> None:
    for line in VECTORS.read_text().splitlines():
        if "frame=" in line and not line.startswith("bad"):
            encoded = bytes.fromhex(line.rpartition("frame=")[2])[:-1]
            assert cobs.encode(cobs.decode(encoded)) == encoded


def test_data_without_payload_and_ack_with_payload_are_errors() -> None:
    with pytest.raises(FrameError):
        Data.from_content(b"\x00")
    with pytest.raises(FrameError):
        Ack.from_content(b"\x40\x01")
