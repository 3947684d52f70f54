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


@pytest.mark.parametrize(
    ("changed", "right"),
    [
        ({}, True),
        ({"firmware": "0" * 64}, False),
        ({"board": "nano"}, False),
        ({"port": "x"}, False),
    ],
)
def test_an_entry_of_a_list_is_the_registrys(changed: dict[str, str], right: bool) -> None:
    entry = {"name": "uno-1", "board": "uno", "port": "/dev/1", "firmware": "a" * 64}
    payload = json.dumps([{**entry, **changed}]).encode()
    found = {HERE: way(payload, "spool", "batch", "table")}
    of_uno_1 = {"uno-1": [{**entry, "port": "/dev/0"}, entry]}
    text = f"the list of devices at 7 of {HERE[0]} has another entry of uno-1 than the registry"
    assert lists.wrong(found, (), {"uno-1"}, "table", of_uno_1) == [text] * (not right)
    missing = text.replace("uno-1", "uno-2")
    assert missing in lists.wrong(found, (), {"uno-1", "uno-2"}, "table", {"uno-2": [entry]})
