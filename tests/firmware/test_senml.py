"""The gateway's decoder reads the SenML that the firmware writes. It gets the same numbers, over
the whole range. The firmware refuses values that it cannot write exactly.
"""

import ctypes
import subprocess
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.payload.senml import decode

SOURCES = Path(__file__).parents[2] / "firmware" / "src"
INT32 = st.integers(-(2**31), 2**31 - 1)
ROOM = 160


class Value(ctypes.Structure):
    """`struct ow_senml_value` of the firmware."""

    _fields_ = (
        ("number", ctypes.c_int32),
        ("exponent", ctypes.c_int8),
        ("shift", ctypes.c_uint8),
    )


class Record(ctypes.Structure):
    """`struct ow_senml_record` of the firmware."""

    _fields_ = (
        ("device", ctypes.c_char_p),
        ("channel", ctypes.c_char_p),
        ("base_time", ctypes.c_uint32),
        ("offset", ctypes.c_uint16),
        ("time_error", ctypes.c_uint16),
        ("name", ctypes.c_char_p),
        ("unit", ctypes.c_char_p),
        ("value", Value),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("senml") / "senml.so"
    sources = [SOURCES / "ow_senml.c", SOURCES / "ow_bytes.c"]
    flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-fshort-enums", f"-I{SOURCES}"]
    flags += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(["gcc", *flags, "-o", file, *sources], check=True)
    loaded = ctypes.CDLL(str(file))
    for function in (loaded.ow_senml_pack, loaded.ow_senml_record):
        function.restype = ctypes.c_void_p
    return loaded


def encode(library: ctypes.CDLL, record: Record, room: int = ROOM) -> bytes | None:
    """Return a SenML pack with this record, or None if the firmware refuses it. room: bytes of the
    buffer.
    """
    buffer = (ctypes.c_uint8 * ROOM)(*[0xEE] * ROOM)
    start = ctypes.addressof(buffer)
    end = ctypes.c_void_p(start + room)
    at = ctypes.c_void_p(library.ow_senml_pack(ctypes.c_void_p(start), end, 1))
    last = library.ow_senml_record(at, end, ctypes.byref(record))
    written = room if last is None else last - start
    assert bytes(buffer[written:]) == b"\xee" * (ROOM - written), "written beyond the end"
    return None if last is None else bytes(buffer[:written])


def value_of(library: ctypes.CDLL, number: int, exponent: int = 0, shift: int = 0) -> float | None:
    record = Record(device=b"d", name=b"n", value=Value(number, exponent, shift))
    payload = encode(library, record)
    if payload is None:
        return None
    (found,) = decode(payload)
    assert found.name == "d:n"
    return found.value


@given(INT32)
@example(-85)
@example(70_000)
@example(-(2**31))
def test_integers(library: ctypes.CDLL, number: int) -> None:
    assert value_of(library, number) == number


@given(INT32, st.integers(-128, 127))
@example(-53, -1)
def test_decimal_fractions(library: ctypes.CDLL, number: int, exponent: int) -> None:
    assert value_of(library, number, exponent) == float(Decimal(number).scaleb(exponent))


@given(INT32, st.integers(1, 255))
@example(-85, 4)
@example(2**24 + 1, 1)
@example(1, 126)
def test_binary_fractions_are_exact_or_refused(
    library: ctypes.CDLL, number: int, shift: int
) -> None:
    exact = Fraction(number, 2**shift)
    found = value_of(library, number, shift=shift)
    fits = number == 0 or (
        (abs(number) // (number & -number)) < 2**24 and abs(exact) >= Fraction(1, 2**126)
    )
    assert (found is not None) == fits
    if found is not None:
        assert Fraction(found) == exact


def test_both_kinds_of_fraction_at_once_are_refused(library: ctypes.CDLL) -> None:
    assert value_of(library, 1, -1, 1) is None


@given(
    st.text("abc-1", min_size=1, max_size=40),
    st.text("adc", max_size=30),
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(0, ROOM),
)
def test_names_and_times_and_too_little_room(
    library: ctypes.CDLL, device: str, name: str, time: int, offset: int, room: int
) -> None:
    record = Record(
        device=device.encode(),
        channel=b"x",
        base_time=time,
        offset=offset,
        name=name.encode(),
        unit=b"Cel",
        value=Value(-85, 0, 4),
    )
    whole = encode(library, record)
    assert whole is not None
    if device[0] != "-":
        (found,) = decode(whole)
        assert (found.name, found.unit, found.value) == (f"{device}:x{name}", "Cel", -5.3125)
        assert found.time == time + offset or found.relative
    assert encode(library, record, room) == (whole if room >= len(whole) else None)


@given(st.integers(1, 2**16 - 1))
@example(49_152)
def test_time_error_is_in_the_record(library: ctypes.CDLL, error: int) -> None:
    """A decoder that does not know the label `tu` ignores it (RFC 8428, section 4.4)."""
    known = Record(device=b"d", name=b"n", base_time=1_767_225_600, value=Value(7, 0, 0))
    unsure = Record(
        device=b"d", name=b"n", base_time=1_767_225_600, time_error=error, value=Value(7, 0, 0)
    )
    with_error, without = encode(library, unsure), encode(library, known)
    assert with_error is not None
    assert without is not None
    assert cbor2.loads(with_error)[0]["tu"] == error
    assert decode(with_error) == decode(without)


def test_texts_beyond_their_bound_and_packs_of_too_many_are_refused(
    library: ctypes.CDLL,
) -> None:
    record = Record(device=b"d" * 128, value=Value(1, 0, 0))
    assert encode(library, record) is None
    buffer = (ctypes.c_uint8 * 2)()
    start = ctypes.addressof(buffer)
    pack = library.ow_senml_pack
    assert pack(ctypes.c_void_p(start), ctypes.c_void_p(start + 2), 23) == start + 1
    assert pack(ctypes.c_void_p(start), ctypes.c_void_p(start + 2), 24) is None
