"""Lists of devices that gateways publish, on their way to the table."""

import json

import pytest

from hil.judge import lists
from hil.judge.publication import Sighting

HERE = ("site/1", 7)


def way(payload: bytes, *hops: str) -> lists.Way:
    found = lists.way()
    for hop in hops:
        found[hop].append(Sighting(0, None, payload))
    return found


def told(found: lists.Way, claim: str | None = "table", copied: str = "") -> list[str]:
    return lists.wrong({HERE: found}, {copied}, {"uno-1", "uno-2"}, claim)


def of(*names: str) -> bytes:
    return json.dumps([{"name": name} for name in names]).encode()


@pytest.mark.parametrize("names", [(), ("uno-1",), ("uno-1", "uno-2")])
def test_a_list_of_boards_of_the_rig_at_each_hop_is_right(names: tuple[str, ...]) -> None:
    assert told(way(of(*names), "spool", "batch", "table")) == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (way(of("uno-1"), "spool", "batch"), "did not reach the hop `table`"),
        (way(of("uno-1"), "spool", "table", "table"), "is in the table 2 times"),
        (way(of("uno-1", "uno-9"), "spool", "table"), "names uno-9,"),
        (way(b"[{}]", "spool", "table"), "names a message that is not a list,"),
        (
            {**way(of("uno-1"), "spool"), "table": [Sighting(0, None, of())]},
            "has 2 different contents",
        ),
    ],
)
def test_a_mistake_is_named(found: lists.Way, why: str) -> None:
    [text] = told(found)
    assert why in text


def test_a_lost_store_and_a_changed_copy_are_no_mistakes() -> None:
    assert told(way(of("uno-1"), "spool"), claim=None) == []
    assert told(way(b"changed", "batch"), copied="site/1") == []
    assert told(way(of("uno-1"), "batch")) == []  # a copy, which the ingest leaves out
