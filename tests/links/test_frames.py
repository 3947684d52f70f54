"""COBS and the frame decoder: any bytes, in any pieces, with bounded memory."""

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links import cobs
from gateway.links.frames import (
    Ack,
    Check,
    Crc16,
    Crc32,
    Data,
    FrameDecoder,
    frame_type,
    handshake_from_body,
)
from gateway.links.handshake import Hello, KeyedWelcome, Welcome, Who
from gateway.links.statistics import LinkStatistics

names = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=23).filter(
    lambda name: len(name.encode()) <= 23 and name.isprintable()
)
u8, u16, u32 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32))
checks = st.builds(Crc16, u16) | st.builds(Crc32, u32)
eight = st.binary(min_size=8, max_size=8)


without_zero = st.binary(min_size=250, max_size=800).map(lambda data: data.replace(b"\0", b"\1"))


@given(st.lists(st.binary(max_size=1000) | without_zero, max_size=3).map(b"\0".join))
def test_cobs_round_trip_without_a_zero_and_with_one_byte_more_per_254(data: bytes) -> None:
    encoded = cobs.encode(data)
    assert 0 not in encoded
    assert len(encoded) <= len(data) + 1 + len(data) // 254
    assert cobs.decode(encoded) == data


@given(st.binary(max_size=300))
def test_cobs_decodes_anything_or_says_no(encoded: bytes) -> None:
    with contextlib.suppress(cobs.CobsError):
        assert len(cobs.decode(encoded)) <= len(encoded)


@pytest.mark.parametrize("encoded", [b"\x00", b"\x02", b"\x03a", b"\x02a\x00"])
def test_cobs_refuses(encoded: bytes) -> None:
    with pytest.raises(cobs.CobsError):
        cobs.decode(encoded)


@given(
    st.lists(
        st.builds(Data, st.integers(0, 7), st.integers(0, 7), st.binary(min_size=1, max_size=240))
        | st.builds(Ack, st.integers(0, 7)),
        max_size=6,
    ),
    checks,
    st.data(),
)
def test_frames_survive_any_split(
    frames: list[Data | Ack], check: Check, data: st.DataObject
) -> None:
    stream = b"".join(frame.to_bytes(check) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [
        stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    ]
    statistics = LinkStatistics()
    decoder = FrameDecoder(statistics)
    bodies = [body for piece in pieces for body in decoder.feed(piece)]
    contents = [check.open(body) or b"" for body in bodies]
    assert [
        (Data if frame_type(content) == Data.TYPE else Ack).from_content(content)
        for content in contents
    ] == frames
    assert statistics.malformed_frames == 0


@given(
    st.builds(Data, st.integers(0, 7), st.integers(0, 7), st.binary(min_size=1, max_size=240)),
    st.tuples(st.builds(Crc16, u16), st.builds(Crc16, u16))
    | st.tuples(st.builds(Crc32, u32), st.builds(Crc32, u32)),
)
def test_a_frame_of_another_session_never_fits(frame: Data, two: tuple[Check, Check]) -> None:
    here, other = two
    (body,) = FrameDecoder(LinkStatistics()).feed(frame.to_bytes(here))
    assert (other.open(body) is not None) == (here == other)


@pytest.mark.parametrize(("kind", "most"), [(Crc16, 6), (Crc32, 0)])
def test_damage_of_one_byte_passes_by_chance_only(
    kind: type[Crc16] | type[Crc32], most: int
) -> None:
    """The test replaces, inserts and removes each byte of three frames. By chance, a 16-bit CRC
    accepts one of 65,536 damaged frames, a 32-bit CRC one of four thousand million.
    """
    random = Random(1)
    tried = passed = 0
    for _ in range(4):
        check = kind(random.randrange(65536))
        frames: list[Data | Ack] = [
            Data(1, 2, random.randbytes(9)),
            Ack(3),
            Data(2, 2, bytes(random.choice((0, 1, 7)) for _ in range(12))),
        ]
        stream = b"".join(frame.to_bytes(check) for frame in frames)
        genuine = set(FrameDecoder(LinkStatistics()).feed(stream))
        for at in range(len(stream)):
            values = [bytes((value,)) for value in range(256)]
            for damaged in [
                stream[:at] + value + stream[end:] for value in values for end in (at, at + 1)
            ] + [stream[:at] + stream[at + 1 :]]:
                tried += 1
                passed += any(
                    check.open(body) is not None and body not in genuine
                    for body in FrameDecoder(LinkStatistics()).feed(damaged)
                )
    assert tried > 65536
    assert passed <= most


def test_noise_without_a_delimiter_takes_no_memory_and_the_next_frame_is_read() -> None:
    statistics = LinkStatistics()
    decoder = FrameDecoder(statistics)
    for _ in range(1000):
        assert list(decoder.feed(b"\xaa" * 4096)) == []
    assert len(decoder._partial) < 300
    (body,) = decoder.feed(b"\0" + Ack(3).to_bytes(Crc32(9)))
    assert Ack.from_content(Crc32(9).open(body) or b"") == Ack(3)
    assert statistics.malformed_frames == 1


@given(
    st.builds(Hello, u16, u8, u32, u32, st.integers(1, 240), st.integers(1, 4), names, u8)
    | st.builds(
        Hello,
        u16,
        u8,
        u32,
        u32,
        st.integers(1, 240),
        st.integers(1, 4),
        names,
        u8,
        eight,
        eight,
    )
)
def test_hello_round_trip(hello: Hello) -> None:
    assert Hello.from_payload(_payload(hello.to_bytes())) == hello


@given(
    st.builds(
        Welcome, u16, u8, u16, u16, u32, st.integers(1, 240), st.integers(1, 4), u32, st.booleans()
    )
)
def test_welcome_round_trip(welcome: Welcome) -> None:
    assert Welcome.from_payload(_payload(welcome.to_bytes())) == welcome


@given(
    st.builds(
        KeyedWelcome,
        u16,
        u8,
        eight,
        u32,
        st.integers(1, 240),
        st.integers(1, 4),
        u32,
        st.booleans(),
        eight,
    )
)
def test_welcome_with_a_key_round_trip(welcome: KeyedWelcome) -> None:
    assert KeyedWelcome.from_payload(_payload(welcome.to_bytes())) == welcome


@given(st.builds(Who, st.none() | u16))
def test_frame_who_of_a_line_round_trip(who: Who) -> None:
    assert Who.from_payload(_payload(who.to_bytes())) == who


def _payload(frame: bytes) -> bytes:
    (body,) = FrameDecoder(LinkStatistics()).feed(frame)
    opened = handshake_from_body(body)
    assert opened is not None
    return opened[1]
