"""Each output of the product is judged, or stands in the list of those that are not."""

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.ingest.delta.tables import Layout
from gateway.ingest.sink import quarantine
from gateway.store import meta
from hil.judge.checker import Verdict, check
from hil.observe.history import READINGS, Event
from hil.observe.remains import ROWS
from tests.hil import outputs
from tests.hil.judge.runs import is_of, run_of

KEYS = {"spool_id": "position", "gateway": "origin", "epoch": "origin", "position": "index"}
"""Key of an event for a column of another name. At the hop `readings`, only `position` differs."""
OTHERS = {"origin": "other/f", "payload": "00", "flag": True, "data": "00", "client": "someone"}
"""Wrong values, by key; of another key, the right value and something more."""


def test_page_is_that_of_the_product() -> None:
    assert outputs.PAGE.read_text() == outputs.page(), "run `make docs`"


def test_each_output_is_in_one_list() -> None:
    every, known, excused = set(outputs.outputs()), outputs.judged(), outputs.not_judged()
    assert outputs.unlisted() == []
    assert known.keys() & excused.keys() == set()
    assert known.keys() - every == excused.keys() - every == set()


def test_new_output_is_in_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    more = (*quarantine.QUARANTINE.columns, ("repaired_by", "string", "Who has repaired it"))
    monkeypatch.setattr(quarantine, "QUARANTINE", Layout("", more))
    monkeypatch.setitem(meta.VALUES, "uplink.new", bool)
    assert outputs.unlisted() == ["table quarantine.repaired_by", "store meta.uplink.new"]


def altered(hop: str, event: str, key: str) -> list[Event]:
    """Return a run in which one row of a hop has a wrong value."""
    events: list[Event] = run_of(3)
    for one in events:
        if (one.hop, one.event) == (hop, event) and is_of(one, 2):
            right: Any = one.data[key]
            more = f"{right}?" if isinstance(right, str) else 99_000_000 + (right or 0)
            one.data[key] = OTHERS.get(key, more)
    return events


def columns() -> Iterator[tuple[str, str, str]]:
    for name in outputs.TABLES["publications"]:
        yield "table", "publication", KEYS.get(name, name)
    for name in outputs.OF_ROW:
        yield "batch", "publication", KEYS.get(name, name)
    for name in outputs.TABLES["readings"]:
        yield READINGS, "reading", "index" if name == "position" else name


@pytest.mark.parametrize(("hop", "event", "key"), sorted(set(columns())))
def test_wrong_value_in_a_column_is_noticed(hop: str, event: str, key: str) -> None:
    assert check(altered(hop, event, key)).verdict is not Verdict.HOLDS


def test_columns_of_the_store_are_read() -> None:
    for name in ("batch", "mark"):
        read = ROWS[name].removeprefix("SELECT ").partition(" FROM ")[0].split(", ")
        assert read == outputs.STORED[name].split()
