"""The line protocol of clients: valid lines, and the reasons why others are refused."""

import json
from typing import Any

import pytest

from hil.clients.telling import LAST_SEQUENCE, heard

GOOD: list[dict[str, Any]] = [
    {"event": "publication", "sequence": 1, "topic": "sensors/a", "payload": "00ff"},
    {"event": "publication", "sequence": LAST_SEQUENCE, "topic": "a", "payload": "", "t": 0},
    *({"event": event, "sequence": 2} for event in ("acknowledged", "resent", "again")),
    *({"event": event, "sequence": 2, "t": 9} for event in ("forgotten", "moving")),
    {"event": "connected", "port": 1883, "session_present": False},
    {"event": "unasked", "packet": "puback", "id": 65_535},
]


@pytest.mark.parametrize("said", GOOD, ids=str)
def test_line_of_the_protocol_is_heard(said: dict[str, Any]) -> None:
    assert heard(json.dumps(said).encode()) == said


@pytest.mark.parametrize(
    ("said", "key"), [(one, key) for one in GOOD for key in one if key not in ("event", "t")]
)
@pytest.mark.parametrize("value", [None, -1, 1.0, True, "zz", [], {}, 1 << 70])
def test_line_with_another_type_of_value_is_refused_by_its_key(
    said: dict[str, Any], key: str, value: object
) -> None:
    if (key in ("topic", "packet") and value == "zz") or (key, value) == ("session_present", True):
        return
    for wrong in ({**said, key: value}, {k: v for k, v in said.items() if k != key}):
        with pytest.raises(ValueError, match=f"`{key}`"):
            heard(json.dumps(wrong).encode())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not JSON"),
        (b"connected to 127.0.0.1", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b"[1]", "not an object"),
        (b"{}", "not an object"),
        (b'{"event": 1}', "not an object"),
        (b'{"event": "published", "sequence": 1}', "there is no event `published`"),
        (b'{"event": "again", "sequence": 0}', "`sequence` is not a whole number from 1"),
        (b'{"event": "again", "sequence": 1, "t": "now"}', "`t` is not nanoseconds"),
    ],
)
def test_other_line_is_refused_with_its_reason(line: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        heard(line)
