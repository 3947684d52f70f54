"""Two payloads of one publication: some differences are only another wording, and others are a
conflict.
"""

import json
from typing import Any

import pytest
from cbor2 import dumps
from hypothesis import given
from hypothesis import strategies as st

from gateway.payload.rewording import DRIFT_S, says_the_same

NAME, UNIT, VALUE, TIME = 0, 1, 2, 6
BASE_NAME, BASE_TIME = -2, -3
NOON = 1_767_225_600


def reading(
    value: float = 2.5,
    at: int | None = NOON,
    error: int | None = 3,
    name: str = "adc0",
    unit: str = "V",
) -> bytes:
    """Return a reading as `examples/sensor` sends it."""
    record: dict[Any, Any] = {BASE_NAME: "roof-1:", NAME: name, UNIT: unit, VALUE: value}
    record |= {BASE_TIME: at} if at is not None else {}
    record |= {"tu": error} if error is not None else {}
    return dumps([record])


def status(boot: int = 7, cause: int = 3, **figures: float) -> bytes:
    told = {"boot": boot, "cause": cause, **figures}
    records: list[dict[int, Any]] = [{NAME: name, VALUE: value} for name, value in told.items()]
    records[0] |= {BASE_NAME: "roof-1:", BASE_TIME: NOON}
    return dumps(records)


def in_json(**labels: Any) -> bytes:
    return json.dumps([{"n": "a", **labels}]).encode()


SAME = {
    "the time was learned meanwhile": (reading(at=None, error=None), reading()),
    "the time is known better": (reading(error=435), reading(at=NOON + 400, error=4)),
    "the clock was set right": (reading(error=None), reading(at=NOON + DRIFT_S, error=None)),
    "both count from the sending": (in_json(v=1, t=-5), in_json(v=1, t=-65)),
    "one counts from the sending": (in_json(v=1, t=-5), in_json(v=1, t=NOON)),
    "the base name is spelt out": (
        reading(),
        dumps([{NAME: "roof-1:adc0", UNIT: "V", VALUE: 2.5, TIME: NOON, "tu": 3}]),
    ),
    "JSON after blanks with a name that is like our label": (
        b' [{"n":"btu","v":1}]',
        b'\n[{"n":"btu","v":1.0}]',
    ),
    "CBOR and JSON": (dumps([{NAME: "a", VALUE: 1}]), in_json(v=1.0)),
    "the link did worse": (status(bad=1, again=2), status(bad=9, again=20)),
    "the status had less room": (status(worn=0, life=11.4, bad=3), status(worn=0)),
    "no SenML": (b"\xff\x00", b"\xff\x00"),
}
OTHER = {
    "value": (reading(2.5), reading(2.505)),
    "unit": (reading(), reading(unit="A")),
    "name": (reading(), reading(name="adc1")),
    "kind of value": (in_json(v=1), in_json(vb=True)),
    "text": (in_json(vs="on"), in_json(vs="off")),
    "records": (reading(), dumps([{NAME: "a", VALUE: 1}, {NAME: "b", VALUE: 1}])),
    "another moment": (reading(), reading(at=NOON + 60)),
    "a moment that no drift explains": (
        reading(error=None),
        reading(at=NOON + 2 * DRIFT_S + 1, error=None),
    ),
    "start": (status(boot=7), status(boot=8)),
    "cause": (status(cause=2), status(cause=3)),
    "a reading that is called as a status record": (in_json(n="bad", v=1), in_json(n="bad", v=2)),
    "no SenML": (b"\xff\x00", b"\xff\x01"),
    "SenML and none": (reading(), reading() + b"!"),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_a_reading_in_other_words(one: bytes, other: bytes) -> None:
    assert says_the_same(one, other)
    assert says_the_same(other, one)


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER)
def test_another_reading_under_the_same_identity(one: bytes, other: bytes) -> None:
    assert not says_the_same(one, other)
    assert not says_the_same(other, one)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_payload_gets_an_answer(one: bytes, other: bytes) -> None:
    assert says_the_same(one, one)
    assert says_the_same(b"\x81" + one, b"\x81" + other) == says_the_same(
        b"\x81" + other, b"\x81" + one
    )


def test_a_reported_loss_contradicts_no_payload() -> None:
    assert says_the_same(b"lost", b"a reading")
    assert says_the_same(b"a reading", b"lost")
