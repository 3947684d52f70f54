"""SenML (RFC 8428): tests by section of the standard."""

import json
from pathlib import Path
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ingest.payload import decoded
from gateway.ingest.payload.names import without_device
from gateway.payload.faults import QUALITIES, WORDS
from gateway.payload.senml import LABELS, PAYLOAD_LIMIT, NotSenml, Record, decode

STAMP = pa.timestamp("us", "UTC")
RECEIVED = 1_760_000_000_000_000


def pack(*records: dict[str, Any]) -> bytes:
    return json.dumps(records).encode()


def as_cbor(*records: dict[str, Any]) -> bytes:
    return cbor2.dumps(
        [
            {LABELS.get(label, label): content for label, content in record.items()}
            for record in records
        ]
    )


def record(name: str, time: float = 0.0, **fields: Any) -> Record:
    rest = dict.fromkeys(("unit", "value", "text", "flag", "data", "sum")) | fields
    return Record(name=name, time=time, relative=time < 2**28, **rest)


def test_payloads_of_the_sensor_example() -> None:
    payload = bytes.fromhex(
        "81a521657465 73 74 3a 22 1a 68e73f00 00 64 61646330 01 61 56 02 fa 3fc00000".replace(
            " ", ""
        )
    )
    assert decode(payload) == [record("test:adc0", 0x68E73F00, unit="V", value=1.5)]


def test_multiple_measurements_of_section_5_1_3() -> None:
    payload = pack(
        {
            "bn": "urn:dev:ow:10e2073a0108006:",
            "bt": 1.276020076001e09,
            "bu": "A",
            "bver": 5,
            "n": "voltage",
            "u": "V",
            "v": 120.1,
        },
        {"n": "current", "t": -5, "v": 1.2},
        {"n": "current", "v": 1.7},
    )
    base = "urn:dev:ow:10e2073a0108006:"
    assert decode(payload) == [
        record(f"{base}voltage", 1276020076.001, unit="V", value=120.1),
        record(f"{base}current", 1276020071.001, unit="A", value=1.2),
        record(f"{base}current", 1276020076.001, unit="A", value=1.7),
    ]


def test_each_kind_of_value_of_section_5_1_4() -> None:
    base = {"bn": "urn:dev:ow:10e2073a01080063:"}
    payload = pack(
        {**base, "n": "temp", "u": "Cel", "v": 23.1},
        {"n": "label", "vs": "Machine Room"},
        {"n": "open", "vb": False},
        {"n": "nfc", "vd": "aGkgCg"},
    )
    found = decode(payload)
    assert [(one.value, one.text, one.flag, one.data) for one in found] == [
        (23.1, None, None, None),
        (None, "Machine Room", None, None),
        (None, None, False, None),
        (None, None, None, b"hi \n"),
    ]


def test_base_value_and_base_sum_are_added_section_4_1() -> None:
    assert decode(pack({"bn": "a", "bv": 10, "v": 1.5}, {"n": "b", "vs": "x"})) == [
        record("a", value=11.5),
        record("ab", text="x"),
    ]
    assert decode(pack({"bn": "a", "bs": 10, "s": 1.5}, {"n": "b", "v": 1})) == [
        record("a", sum=11.5),
        record("ab", value=1.0, sum=10.0),
    ]


def test_a_record_of_base_fields_alone_is_no_reading() -> None:
    assert decode(pack({"bn": "dev:"}, {"n": "a", "v": 1})) == [record("dev:a", value=1.0)]


def test_times_below_two_to_the_28_are_relative_section_4_5_3() -> None:
    assert [
        one.relative
        for one in decode(
            pack(
                {"n": "a", "t": -5, "v": 1},
                {"n": "a", "t": 2**28 - 1, "v": 1},
                {"n": "a", "t": 2**28, "v": 1},
            )
        )
    ] == [True, True, False]


def test_json_and_cbor_say_the_same() -> None:
    records = [
        {"bn": "dev/1:", "bt": 1.76e9, "n": "a", "u": "%RH", "v": 20},
        {"n": "b", "vb": True, "ut": 5},
        {"n": "c", "s": 4, "unknown": 1},
    ]
    assert decode(as_cbor(*records)) == decode(pack(*records))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "empty"),
        (b"21.5", "neither a JSON nor a CBOR array"),
        (b"\x81", "not CBOR: premature end of stream"),
        (b"\x9b" + b"\xff" * 8, "not CBOR"),
        (b"\x81" * 1000, "not CBOR: maximum container nesting depth"),
        (b"[" * 60_000, "not JSON"),
        (b"[{", "not JSON"),
        (b'[{"n":"a","v":NaN}]', "NaN is not a number of JSON"),
        (as_cbor({"n": "a", "v": 1}) + b"\x00", "bytes after the end"),
        (as_cbor({"n": "a", "v": float("inf")}), "record 0: v is not finite"),
        (cbor2.dumps([{0: "a", 2: cbor2.CBORTag(4, [10**9, 1])}]), "record 0: v is not finite"),
        (cbor2.dumps([{b"n": "a"}]), "record 0: a label is neither text nor a number"),
        (pack({"n": "a", "v": 10**400}), "record 0: v is not a number"),
        (pack({"n": "a", "v": 1e308, "bv": 1e308}), "record 0: v is not finite"),
        (pack({"n": "a", "v": True}), "record 0: v is not a number"),
        (pack({"n": "a", "v": "1"}), "record 0: v is not a number"),
        (pack({"n": "a", "vb": 1}), "record 0: vb is not a boolean"),
        (pack({"n": "a", "vd": "a"}), "vd is not base64url"),
        (pack({"n": "a", "vd": "AP8!"}), "vd is not base64url"),
        (pack({"n": "a", "vd": 1234}), "vd is not base64url"),
        (pack({"n": "a", "vs": "\ud800"}), "record 0: vs has half a surrogate pair"),
        (pack({"n": "a", "v": 1, "vs": "x"}), "record 0: more than one value"),  # section 4.2
        (pack({"n": "a", "v": 1}, {"n": "a"}), "record 1: no value"),
        (pack({"v": 1}), "record 0: no name"),  # section 4.5.1
        (pack({"n": "-a", "v": 1}), "record 0: the name has characters that are not allowed"),
        (pack({"n": "a b", "v": 1}), "record 0: the name has characters that are not allowed"),
        (
            pack({"n": "a", "v": 1, "later_": 1}),
            "record 0: label later_ must be understood, but is not known here",
        ),  # section 4.4
        (pack({"bver": 11, "n": "a", "v": 1}), "record 0: version 11 is not known"),
        (pack({"n": "a", "v": 1, "t": 1e15}), "record 0: the time is out of range"),
        (b"[5]", "record 0: no map"),
        (b" " * (PAYLOAD_LIMIT + 1), f"longer than {PAYLOAD_LIMIT} bytes"),
    ],
)
def test_invalid_senml_has_a_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(NotSenml) as caught:
        decode(payload)
    assert str(caught.value).startswith(reason)


@given(
    st.binary(max_size=200)
    | st.binary(max_size=60).map(lambda tail: b"\x81\xa2" + tail)
    | st.text(max_size=50).map(lambda text: f'[{{"n":"a",{text}}}]'.encode("utf-8", "replace"))
)
def test_hostile_bytes_give_a_reason_and_nothing_else(payload: bytes) -> None:
    readings, reasons = decoded.columns(
        pa.array(["d"]), pa.array([payload], pa.binary()), pa.array([None], STAMP)
    )
    assert (readings[0].as_py() is None) == (reasons[0].as_py() is not None)


def test_columns_of_readings() -> None:
    payloads = [
        pack({"bn": "d:", "n": "a", "v": 1, "t": -2}, {"n": "b", "vs": "x", "bt": 1.7e9}),
        b"hello",
        pack(),
        pack({"n": "a", "v": 2}),
    ]
    received = pa.array([1_760_000_000_000_000, 0, 0, None], STAMP)
    devices = pa.array(["d", "d", "d", "e"])
    readings, reasons = decoded.columns(devices, pa.array(payloads, pa.binary()), received)
    assert reasons.to_pylist() == [None, "neither a JSON nor a CBOR array", None, None]
    first, second, third, fourth = readings.to_pylist()
    assert [(one["name"], one["value"], one["text"], one["time"].timestamp()) for one in first] == [
        ("a", 1.0, None, 1_759_999_998),
        ("b", None, "x", 1_700_000_000),
    ]
    assert (second, third) == (None, [])
    assert fourth[0]["time"] is None  # relative to the unknown time of receipt


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("fields", "received", "certainty"),
    [
        ({"bt": 1.7e9}, RECEIVED, "synchronised"),
        ({"bt": 1.7e9}, None, "synchronised"),
        ({"bt": -90.0}, RECEIVED, "reckoned"),
        ({"bt": -90.0}, None, "unknown"),
        ({}, RECEIVED, "unknown"),
        ({"bt": 0.0}, RECEIVED, "unknown"),
        ({}, None, "unknown"),
    ],
)
def test_each_time_says_how_certain_it_is(
    fields: dict[str, float], received: int | None, certainty: str, at_once: bool
) -> None:
    payload = cbor2.dumps(
        [{LABELS[key]: value for key, value in {"n": "a", "v": 1.5, **fields}.items()}]
    )
    many = 100 if at_once else 1
    readings, _ = decoded.columns(
        pa.array(["d"] * many), pa.array([payload] * many), pa.array([received] * many, STAMP)
    )
    assert {one["time_certainty"] for (one,) in readings.to_pylist()} == {certainty}
    assert {one["time"] is None for (one,) in readings.to_pylist()} == {
        received is None and certainty == "unknown"
    }


@pytest.mark.parametrize(
    ("device", "name", "short"),
    [
        ("roof-1", "roof-1:adc0", "adc0"),
        ("roof-1", "roof-1/room/heat", "room/heat"),
        ("roof-1", "roof-10:adc0", "roof-10:adc0"),
        ("roof-1", "roof-1", "roof-1"),
        ("roof-1", "roof-1:", "roof-1:"),
        ("roof-1", "adc0", "adc0"),
        ("@site", "adc0", "adc0"),
        ("a\0b", "a:n", "a:n"),
    ],
)
def test_a_name_does_not_repeat_its_device(device: str, name: str, short: str) -> None:
    names = without_device(pa.array([name, "other"]), pa.array([device, "x"]))
    assert names.to_pylist() == [short, "other"]


@pytest.mark.parametrize(
    ("time", "received", "stated"),
    [
        (946_684_800, RECEIVED, None),
        (4_102_444_799.5, RECEIVED, None),
        (4_102_444_800, RECEIVED, "2100-01-01T00:00:00Z"),
        (10_413_792_000, RECEIVED, "2300-01-01T00:00:00Z"),
        (253_402_300_799, RECEIVED, "9999-12-31T23:59:59Z"),
        (946_684_799, RECEIVED, "1999-12-31T23:59:59Z"),
        (2**28, RECEIVED, "1978-07-04T21:24:16Z"),
        (-60_370_000_000, RECEIVED, "0112-09-21T12:26:40Z"),
        (-5, 1_000_000, "1969-12-31T23:59:56Z"),
        (-5, RECEIVED, None),
        (0, None, None),
    ],
)
@pytest.mark.parametrize("count", [1, 40])  # decoded one by one, and all at once
def test_an_impossible_time_becomes_text_and_spoils_no_other(
    time: float, received: int | None, stated: str | None, count: int
) -> None:
    odd = as_cbor({"n": "a", "v": 1, "t": time})
    good = as_cbor({"n": "a", "v": 1, "t": 1_772_323_200})
    readings, reasons = decoded.columns(
        pa.array(["dev"] * (count + 1)),
        pa.array([odd] * count + [good], pa.binary()),
        pa.array([received] * count + [RECEIVED], STAMP),
    )
    assert reasons.null_count == count + 1
    *odds, (last,) = readings.to_pylist()
    assert last["time"].year == 2026
    assert last["time_stated"] is None
    assert {one["time_stated"] for (one,) in odds} == {stated}
    absent = stated is not None or received is None
    assert {one["time"] is None for (one,) in odds} == {absent}
    assert readings.flatten().field("time").to_pandas() is not None


@pytest.mark.parametrize("count", [1, 40])  # decoded one by one, and all at once
def test_a_fault_of_a_sensor_is_the_quality_of_its_row(count: int) -> None:
    records = [{"n": "dev:t.fault", "v": number} for number in range(len(QUALITIES))]
    records += [{"n": "dev:t.fault", "v": number} for number in (len(QUALITIES), -1, 0.5)]
    records += [{"n": "dev:t", "v": 3}, {"n": "dev:fault", "v": 3}, {"n": "dev:t.fault", "vs": "a"}]
    payloads = [as_cbor(record) for record in records for _ in range(count)]
    readings, _ = decoded.columns(
        pa.array(["dev"] * len(payloads)),
        pa.array(payloads, pa.binary()),
        pa.array([RECEIVED] * len(payloads), STAMP),
    )
    told = [one["quality"] for (one,) in readings.to_pylist()]
    expected = [*QUALITIES, *["unknown fault"] * 3, *["good"] * 3]
    assert told == [word for word in expected for _ in range(count)]
    (names, values) = ([one[key] for (one,) in readings.to_pylist()] for key in ("name", "value"))
    assert names[0] == "t.fault"  # as the sensor sent it
    assert values[count] == 1


def test_each_fault_of_the_firmware_has_a_word_in_the_tables() -> None:
    header = (Path(__file__).parents[3] / "firmware" / "src" / "ow_sensor.h").read_text()
    numbers = header[header.index("OW_SENSOR_WELL") : header.index("OW_SENSOR_FAULTS")]
    assert numbers.count("OW_SENSOR_") == len(QUALITIES) == len(WORDS)
    assert len(set(QUALITIES)) == len(QUALITIES)
