"""Received parts of a session are not trusted: each rule of the import refuses parts that break it,
names the fault, and leaves no row.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gateway.store import move_in
from gateway.store import move_records as kinds
from gateway.store.move_records import head, record
from gateway.store.references import missing
from tests.site.moving.test_moving import Site

Record = tuple[int, tuple[Any, ...]]
Change = Callable[[list[Record]], Iterable[Record]]

SESSION = (kinds.SESSION, ("c", 1000, 0, 0, None))
FLOW = (kinds.FLOW, (b"", 1, b"", b""))
END = (kinds.END, ())
SOUND: list[Record] = [
    SESSION,
    (kinds.SUBSCRIPTION, ("topic", 2, 0)),
    FLOW,
    (kinds.MESSAGE, ("topic", 0, 2, b"", None, b"m0m1")),
    (kinds.QUEUE, (1, 2, 1, 0, 2, b"", "")),
    (kinds.MESSAGE, ("topic", 0, 1, b"", None, b"m2")),
    (kinds.QUEUE, (3, 1, 2, 0, 2, b"", "")),
    END,
]
"""The records of a session with three waiting messages."""


def parts(records: Iterable[Record], messages: int = 2, body: bytes = b"") -> list[bytes]:
    body = body or b"".join(record(kind, values) for kind, values in records)
    return [head(0, messages, body) + body]


def changed(place: int, number: int, value: Any) -> Change:
    """Return a change of one value of the record at a place."""

    def change(records: list[Record]) -> list[Record]:
        kind, values = records[place]
        new = (*values[:number], value, *values[number + 1 :])
        return [*records[:place], (kind, new), *records[place + 1 :]]

    return change


def put(place: int, *new: Record) -> Change:
    return lambda records: [*records[:place], *new, *records[place:]]


def without(place: int) -> Change:
    return lambda records: [*records[:place], *records[place + 1 :]]


def test_sound_parts_are_taken() -> None:
    site = Site()
    assert site.take("b", parts(SOUND)) is None
    assert site.worlds["b"].broker.sessions["c"].send_flow.messages == 3


def test_queue_that_begins_later_sends_from_its_first_entry_on() -> None:
    """The numbers before it were given to messages that are gone, such as expired ones. Without
    the change, the gateway would wait for them.
    """
    site = Site()
    later = [
        (kind, (values[0] + 6, *values[1:])) if kind == kinds.QUEUE else (kind, values)
        for kind, values in SOUND
    ]
    assert site.take("b", parts(later)) is None
    b = site.worlds["b"]
    assert b.rows("SELECT next FROM flow") == [(7,)]
    assert missing(b.database) == []
    client = b.connect("c", clean=False, answers=True)
    assert client.payloads == [b"m0", b"m1", b"m2"]


MARK = (kinds.MARK, (0, 7, 5, 1, b""))
MANY = [
    (kinds.MESSAGE, ("t", 0, 1 << 24, b"", None, b"")),
    (kinds.QUEUE, (1, 1 << 24, 1, 0, 2, b"", "")),
]
"""A few bytes that stand for many empty messages."""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without(0), "do not begin with a session record, or have two"),
        (put(1, SESSION), "do not begin with a session record, or have two"),
        (changed(0, 0, "d"), "is the session of another client"),
        (
            put(2, *[(kinds.SUBSCRIPTION, (f"t/{n}", 1, 0)) for n in range(9)]),
            "8 subscriptions (limits.subscriptions)",
        ),
        (without(2), "an entry of its queue is invalid"),
        (lambda all_: [all_[0], all_[1], END], "its packet identifiers are missing"),
        (put(3, FLOW), "UNIQUE constraint failed: flow.session"),
        (put(1, MARK), "invalid anti-replay windows"),
        (put(1, (kinds.MOVE, (1, 1, "a", 1)), (kinds.MOVE, (2, 1, "a", 1))), "two MOVE records"),
        (
            put(7, (kinds.MESSAGE, ("x", 0, 1, b"", None, b""))),
            "more messages than its header announces",
        ),
        (changed(3, 5, b"odd"), "the length of a message differs from its length field"),
        (lambda all_: [*all_[:3], *MANY, END], "allowed (limits.queue_messages)"),
        (changed(4, 2, 3), "an entry of its queue is invalid"),
        (changed(6, 0, 2), "an entry of its queue is invalid"),
        (changed(4, 3, 1), "an entry of its queue is longer than its message"),
        (changed(6, 0, 4), "an entry of its queue is missing"),
        (lambda all_: all_[:-1], "its parts have no END record"),
        (lambda all_: [*all_, FLOW], "its parts go on after the END record"),
        (put(1, (99, ())), "a record of kind 99 is not known here"),
        (lambda all_: [*all_[:-1], (kinds.END, (None,))], "has more than 0 values"),
        (lambda all_: [(kinds.SESSION, ("c", 1000)), *all_[1:]], "has fewer than 5 values"),
        (changed(1, 0, "t/" + "x" * 0x10000), "value 0 of a record of kind 2 is invalid"),
        (changed(1, 0, "ü" * 0x8000), "value 0 of a record of kind 2 is invalid"),
        (changed(1, 0, "$share//t"), "value 0 of a record of kind 2 is invalid"),
        (changed(2, 0, b"\0"), "value 0 of a record of kind 3 is invalid"),
        (changed(2, 0, b"\0\0\1"), "value 0 of a record of kind 3 is invalid"),
        (changed(2, 0, b"\0\0\x20\x01\1\1"), "value 0 of a record of kind 3 is invalid"),
        (changed(2, 0, b"\0\0\0\0\1\1"), "value 0 of a record of kind 3 is invalid"),
        (changed(2, 2, b"\0\0"), "value 2 of a record of kind 3 is invalid"),
        (changed(3, 3, 7), "value 3 of a record of kind 6 is invalid"),
        (changed(3, 3, b"\xff\xff"), "value 3 of a record of kind 6 is invalid"),
        (changed(4, 6, "t"), "value 6 of a record of kind 7 is invalid"),
    ],
)
def test_each_rule_refuses_the_session_and_leaves_nothing(change: Change, why: str) -> None:
    site = Site(subscriptions=8)
    b = site.worlds["b"]
    wrong = site.take("b", parts(change(list(SOUND))))
    assert wrong is not None
    assert why in wrong
    for table in ("session", "subscription", "flow", "queue", "message", "journey", "place"):
        assert b.rows(f"SELECT * FROM {table}") == []
    assert site.take("b", parts(SOUND)) is None, "the right parts may still come"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda body: body[:-3], "it is incomplete"),
        (lambda body: b"\xff\xff\xff\xff" + body[4:], "a record of 4294967295 bytes is too long"),
        (lambda body: body.replace(b"T\0\0\0\1c", b"X\0\0\0\1c"), "kind 1 cannot be read"),
        (lambda body: body.replace(b"T\0\0\0\1c", b"T\0\0\0\xffc"), "kind 1 cannot be read"),
        (lambda body: body.replace(b"T\0\0\0\1c", b"T\0\0\0\1\xff"), "kind 1 cannot be read"),
    ],
)
def test_bytes_that_are_no_records_are_refused(spoil: Callable[[bytes], bytes], why: str) -> None:
    body = b"".join(record(kind, values) for kind, values in SOUND)
    (whole,) = parts(SOUND)
    start = whole.removesuffix(body)
    assert why in str(Site().take("b", [start + spoil(body)]))


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (b"", "its parts have no header"),
        (b"XXXX", "update the older gateway"),
        (b"OWS\0\0\x63", "its parts have format 99, not 2"),
        (b"OWS\0\0\1\x7f", "the time in its header is invalid"),
    ],
)
def test_head_that_is_wrong_is_refused(start: bytes, why: str) -> None:
    (whole,) = parts(SOUND)
    wrong = start + whole[len(start) :] if start else b"OWS"
    assert why in str(Site().take("b", [wrong]))


def test_every_reason_of_the_import_is_tested_here() -> None:
    """A rule that is added needs a case in this file."""
    here = Path(__file__).read_text()
    for module in (move_in, kinds):
        source = Path(str(module.__file__)).read_text()
        for reason in re.findall(r'raise Unfit\(\s*f?"([^"]*)"', source):
            words = max(re.split(r"\{[^}]*\}", reason), key=len).strip(" :")
            assert words[-16:] in here, reason
