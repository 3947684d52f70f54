"""The hex vectors that the C side is tested with too."""

from binascii import crc_hqx
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from gateway.links import cobs
from gateway.links.frames import (
    Ack,
    Data,
    FrameDecoder,
    FrameError,
    Time,
    fits,
    frame_type,
    handshake_from_body,
)
from gateway.links.handshake import Greeter, Hello, Welcome, Who, session_seed
from gateway.links.reliable import Session
from gateway.links.roles import GatewayLink
from gateway.links.statistics import LinkStatistics

VECTORS = Path(__file__).parents[1] / "vectors" / "link.txt"

Fields = dict[str, str]


def vectors(*kinds: str) -> list[ParameterSet]:
    found = []
    for line in VECTORS.read_text().splitlines():
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
    frame, seed = bytes.fromhex(fields["frame"]), number(fields, "seed")
    expected: Data | Ack
    if kind == "data":
        expected = Data(
            number(fields, "seq"), number(fields, "ack"), bytes.fromhex(fields["payload"])
        )
    else:
        expected = Ack(number(fields, "ack"))
    body = body_of(frame)
    assert fits(body, seed)
    assert frame_type(body) == expected.TYPE
    assert type(expected).from_body(body) == expected
    assert expected.to_bytes(seed) == frame


@pytest.mark.parametrize(("kind", "fields"), vectors("time"))
def test_time_both_ways(kind: str, fields: Fields) -> None:
    frame, seed = bytes.fromhex(fields["frame"]), number(fields, "seed")
    told = number(fields, "utc") + number(fields, "part") / 256 if "utc" in fields else None
    body = body_of(frame)
    assert fits(body, seed)
    assert frame_type(body) == Time.TYPE
    assert Time.from_body(body) == Time(told)
    assert Time(told).to_bytes(seed) == frame


@pytest.mark.parametrize(("kind", "fields"), vectors("hello", "welcome", "who"))
def test_handshake_frames_both_ways(kind: str, fields: Fields) -> None:
    frame = bytes.fromhex(fields["frame"])
    message: type[Hello] | type[Welcome] | type[Who] = {
        "hello": Hello,
        "welcome": Welcome,
        "who": Who,
    }[kind]
    body = body_of(frame)
    assert fits(body, 0xFFFF)
    code, payload = handshake_from_body(body)
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
    link.session = Session(number(fields, "seed"), 240, 4, 0.0)
    assert link.receive(bytes.fromhex(fields["frame"]), 0.0) == []
    assert link.take() == b""
    counted = link.statistics
    assert (counted.crc_errors, counted.malformed_frames) == (
        (1, 0) if fields["reason"] == "crc" else (0, 1)
    )


def test_a_body_of_every_vector_survives_cobs() -> None:
    for line in VECTORS.read_text().splitlines():
        if "frame=" in line and not line.startswith("bad"):
            encoded = bytes.fromhex(line.rpartition("frame=")[2])[:-1]
            assert cobs.encode(cobs.decode(encoded)) == encoded


def test_data_without_payload_and_ack_with_payload_are_errors() -> None:
    with pytest.raises(FrameError):
        Data.from_body(b"\x00\x00\x00")
    with pytest.raises(FrameError):
        Ack.from_body(b"\x40\x01\x00\x00")
