"""A publication of a board as readings, for other programs."""

import json
from pathlib import Path

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.payload.readings import Reading, readings

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def one(record: dict[object, object], received: int | None = NOW) -> dict[str, object]:
    (reading,) = readings("roof-1", "sensors/roof-1/adc0", cbor2.dumps([record]), received)
    return {"name": reading.name} | reading.public()


def test_json_after_blanks_has_no_label_of_cbor() -> None:
    (reading,) = readings("roof-1", "sensors/roof-1/btu", b' [{"n":"btu","v":1}]', NOW)
    assert (reading.name, reading.value, reading.public().get("time_error_s")) == ("btu", 1, None)


def test_a_reading_has_value_unit_time_and_quality() -> None:
    record = {-2: "roof-1:", -3: 1_767_225_590, 0: "adc0", 1: "V", 2: 3.25, "tu": 4}
    assert one(record) == {
        "name": "adc0",
        "value": 3.25,
        "unit": "V",
        "time": "2025-12-31T23:59:50Z",
        "quality": "synchronised",
        "time_error_s": 4,
    }


@pytest.mark.parametrize(
    ("time", "received", "shown", "quality"),
    [
        (-5, NOW, "2025-12-31T23:59:55Z", "reckoned"),
        (0, NOW, "2026-01-01T00:00:00Z", "unknown"),
        (-5, None, None, "unknown"),
        (1_767_225_600, None, "2026-01-01T00:00:00Z", "synchronised"),
    ],
)
def test_the_quality_says_where_a_time_is_from(
    time: int, received: int | None, shown: str | None, quality: str
) -> None:
    found = one({0: "roof-1:adc0", 2: 1, 6: time}, received)
    assert (found["time"], found["quality"]) == (shown, quality)


def test_a_name_fits_into_one_level_of_a_topic_and_does_not_repeat_the_board() -> None:
    assert one({0: "roof-1/inside/t", 2: 1})["name"] == "inside_t"
    assert one({0: "roof-1", 2: 1})["name"] == "roof-1"
    assert one({0: "other:t", 2: 1})["name"] == "other:t"


def test_texts_and_flags_are_values_and_bytes_are_none() -> None:
    pack = [{-2: "roof-1:", 0: "a", 3: "open"}, {0: "b", 4: True}, {0: "c", 8: b"x"}]
    found = readings("roof-1", "sensors/roof-1/x", cbor2.dumps(pack), NOW)
    assert [(item.name, item.value) for item in found] == [("a", "open"), ("b", True)]


def test_status_of_a_board_is_marked() -> None:
    payload = cbor2.dumps([{0: "roof-1:life", 2: 11.4}])
    assert readings("roof-1", "sensors/roof-1/status", payload, NOW)[0].status
    assert not readings("roof-1", "sensors/roof-1/adc0", payload, NOW)[0].status


def test_json_is_read_too() -> None:
    payload = json.dumps([{"n": "roof-1:t", "u": "Cel", "v": -3.5}]).encode()
    assert readings("roof-1", "t", payload, NOW) == [
        Reading("t", -3.5, "Cel", NOW, "unknown", None, NOW)
    ]


@given(st.binary(max_size=80))
def test_any_payload_is_read_or_skipped(payload: bytes) -> None:
    for prefix in (b"", b"\x81\xa2\x00\x61a\x02", b"\x81\xa3\x00\x61a\x02\x01\x62tu"):
        for reading in readings("roof-1", "t", prefix + payload, NOW):
            json.dumps(reading.public(), allow_nan=False)


def test_a_time_error_that_is_no_number_is_passed_over(tmp_path: Path) -> None:
    assert "time_error_s" not in one({0: "a", 2: 1, "tu": "long"})


def test_bytes_that_look_like_a_time_error_in_json_are_none() -> None:
    payload = json.dumps([{"n": "roof-1:btu", "v": 1}]).encode()
    assert [item.name for item in readings("roof-1", "t", payload, NOW)] == ["btu"]


def test_a_time_error_without_end_is_passed_over() -> None:
    assert "time_error_s" not in one({0: "a", 2: 1, "tu": 1 << 60_000})
    assert "time_error_s" not in one({0: "a", 2: 1, "tu": -1})
    assert "time_error_s" not in one({0: "a", 2: 1, "tu": True})


def test_another_board_s_name_stays_whole() -> None:
    assert one({0: "roof-10:t", 2: 1})["name"] == "roof-10:t"


def test_a_name_that_fits_into_no_topic_is_passed_over() -> None:
    pack = cbor2.dumps([{0: "n" * 60_000, 2: 1}, {0: "t", 1: "u" * 50, 2: 1}])
    (reading,) = readings("roof-1", "t", pack, NOW)
    assert (reading.name, reading.unit) == ("t", "u" * 32)
