"""The figures of a gateway are compared with the counts of the rig."""

from typing import Any

import pytest

from hil.judge import figures
from hil.judge.checker import Verdict, check
from hil.observe.history import Event
from tests.hil.judge.runs import DEVICES, UTC, S, run_of

US = UTC * 1_000_000
LAST = 4 * S
AGE = 4
SHA = "c0ffee"


def calm(**bench: Any) -> list[Event]:
    """Return a run without faults, of a bench that judges when batches are cut."""
    first, *events = run_of(3, fault=False)
    data = {**first.data, "batch_age_s": 0.0}
    data["bench"] = {**data["bench"], **bench}
    events = [event for event in events if event.event != "planned"]
    sent = [
        Event(event.t + 1, "wire", "publish", {"line": event.data["device"], "direction": "up"})
        for event in events
        if (event.hop, event.event) == ("board", "publication")
    ]
    return [Event(first.t, "rig", "run", data), *events, *sent, *landed()]


def landed() -> list[Event]:
    """Return the files of the batches of `run_of`: two rows each."""
    return [
        Event(
            LAST,
            "landing",
            "landed",
            {
                "origin": "site/e",
                "batch": number,
                "path": f"/landing/site/e/{number:012d}.parquet",
                "bytes": 100 + number,
                "sha256": SHA,
                "written": US + number * 1_000_000 + 200_000,
            },
        )
        for number in (1, 2, 3)
    ]


def told(events: list[Event], **more: Any) -> Event:
    """Return the figures of a gateway that are all right. more: figures that are not."""
    boards = [{"name": name, "last": None} for name in DEVICES]
    for board, value in zip(boards, (21, 21), strict=True):
        board["last"] = {"name": "adc0", "value": value * 5 / 1024, "unit": "V"}
    said = {"gateway": "site", "problems": []}
    data: dict[str, Any] = {
        "began": LAST - AGE * S,
        "metrics": {},
        "size": 4096,
        "free": 4096,
        "status": [said],
        "everything": [{**said, "boards": boards}],
        "uplink": {"gateway": "site", "epoch": "e"},
        "sessions": [{"client": name} for name in DEVICES],
        "radios": [],
        "site": [],
    }
    event = Event(LAST, "gateway", "figures", data)
    base = figures.numbers(data)
    life = figures.Life(event, events[0].data, events)
    for name, judge in figures.BOUNDS.items():
        low = (judge(life) or figures.ZERO)[0]
        data["metrics"][name] = more.get(name, low) - base[name]
    return event


def said(events: list[Event], **more: Any) -> list[str]:
    return figures.wrong([*events, told(events, **more)])


def test_right_figures_are_right() -> None:
    assert said(calm()) == []
    assert check([*calm(), told(calm())]).verdict is Verdict.HOLDS


@pytest.mark.parametrize("name", sorted(figures.BOUNDS))
def test_each_figure_has_bounds_in_a_run_that_shows_it(name: str) -> None:
    """A number outside its bounds is reported, above and below."""
    judged = 0
    air = {"boards": 2, "spreading_factor": 9}
    for bench in ({}, {"config": {"spool": {"max_bytes": 9000}}}, {"air": air}):
        events = calm(**bench)
        life = figures.Life(told(events), events[0].data, events)
        bounds = figures.BOUNDS[name](life)
        for wrong in (bounds[0] - 1, bounds[1] + 1) if bounds else ():
            if abs(wrong) != figures.ANY:
                [text] = said(events, **{name: wrong})
                assert text.startswith(f"gateway says {name} is ")
                judged += 1
    assert judged


@pytest.mark.parametrize(
    ("bench", "name", "wrongly"),
    [
        ({}, "onceway_retained_messages", True),
        ({"walk": True}, "onceway_retained_messages", False),
        ({"client": [{"retain": True}]}, "onceway_retained_messages", False),
        ({}, "onceway_messages_received_total", True),
        ({"walk": True}, "onceway_messages_received_total", False),
    ],
)
def test_clients_may_leave_and_send_what_the_rig_does_not_count(
    bench: dict[str, Any], name: str, wrongly: bool
) -> None:
    assert any(name in text for text in said(calm(**bench), **{name: 1000})) is wrongly


def test_each_row_of_the_spool_may_be_missed_and_counts_by_its_batch() -> None:
    """A status that the rig saw behind the last reading of a board changes nothing."""
    events = calm()
    rows = [one for one in events if (one.hop, one.event) == ("spool", "publication")]
    newest = {one.data["device"]: one.data for one in rows}
    for device, row in newest.items():
        number, position = row["sequence"] + 1, row["position"] + 100
        status = {"sequence": number, "position": position, "topic": f"sensors/{device}/status"}
        events.append(Event(LAST, "spool", "publication", {**row, **status}))
    right = told(events)
    for row in rows:
        assert figures.wrong([*(one for one in events if one is not row), right]) == []


@pytest.mark.parametrize("kind", ["gateway's store restored from a backup", "clone of the card"])
def test_copy_of_the_store_is_a_rival(kind: str) -> None:
    struck = Event(5, "gateway", "happened", {"fault": "f", "kind": kind})
    assert not any("rival" in text for text in said([*calm(), struck], **{"uplink.rival.seen": 5}))
    assert any("rival" in text for text in said(calm(), **{"uplink.rival.seen": 5}))


@pytest.mark.parametrize("twice", [False, True])
def test_series_and_rows_are_added_up(twice: bool) -> None:
    data: dict[str, Any] = told(calm()).data
    data["metrics"] = {'a_total{b="c d"}': 1.0, 'a_total{b="e"}': 2.0, "f": 3.0}
    data["status"] = [{"ports": [{"open": True, "at": {"x": 2}}] * (1 + twice), "none": None}]
    found = figures.numbers(data)
    assert (found["a_total"], found["f"], found["unknown"]) == (3, 3, 0)
    assert found["status.ports"] == found["status.ports.open"] == 1 + twice
    assert found["status.ports.at.x"] == 2 + 2 * twice


@pytest.mark.parametrize(
    ("where", "key", "value", "why"),
    [
        ("status", "gateway", "other", "says that its name is other"),
        ("everything", "problems", [{"part": "disk"}], "says that it has problems with disk"),
        ("everything", "boards", [], "shows the boards "),
    ],
)
def test_words_of_a_status_are_right(where: str, key: str, value: Any, why: str) -> None:
    event = told(calm())
    event.data[where][0][key] = value
    assert any(why in text for text in figures.wrong([*calm(), event]))


def test_silent_board_is_no_problem_of_the_gateway() -> None:
    event = told(calm())
    event.data["status"][0]["problems"] = [{"part": "boards"}]
    event.data["metrics"]["status.problems"] = 0
    assert figures.wrong([*calm(), event]) == []


@pytest.mark.parametrize("last", [None, {"name": "adc0", "value": 1.0, "unit": "V"}])
def test_last_reading_of_each_board_is_right(last: Any) -> None:
    event = told(calm())
    event.data["everything"][0]["boards"][1]["last"] = last
    [text] = figures.wrong([*calm(), event])
    assert text.startswith(f"gateway shows {last} as the last reading of uno-2, not ('adc0', 0.10")


def test_feed_and_sessions_are_those_of_the_run() -> None:
    event = told(calm())
    event.data["uplink"]["epoch"] = "f"
    event.data["sessions"].append({"client": "ghost"})
    event.data["metrics"]["sessions"] = 0
    assert figures.wrong([*calm(), event]) == [
        "gateway says that its batches are of site/f",
        "gateway shows a session of ghost",
    ]


def kept(**more: Any) -> list[str]:
    """Return the reasons of a run at whose end a store has these rows, and all others right."""
    rows = {
        "batch": [
            [n, 2 * n - 1, 2 * n, 2, 100 + n, SHA, US + n * 1_000_000, US + n * 1_000_000 + 210_000]
            for n in (1, 2, 3)
        ],
        "mark": [[name, 0xC0FFEE, 3] for name in DEVICES],
        "subscription": [[name, f"commands/{name}"] for name in DEVICES],
    }
    meta = {"gateway": "site", "epoch": "e", "uplink.batches": "3", "uplink.readings": "6"}
    meta["uplink.bytes"] = "306"
    for name, value in more.items():
        if isinstance(value, list):
            rows[name][1] = [
                new if new is not ... else old
                for new, old in zip(value, rows[name][1], strict=True)
            ]
        else:
            meta[name] = value
    event = Event(LAST, "gateway", "remains", {"meta": meta, "rows": rows})
    return figures.wrong([*calm(), told(calm()), event])


_ = ...


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"uplink.batches": "4"}, "counts 4 batches of its uplink, but it must be 3"),
        ({"uplink.readings": "3"}, "counts 3 readings of its uplink, but it must be 6"),
        ({"uplink.bytes": "0"}, "counts 0 bytes of its uplink, but it must be 306"),
        ({"uplink.failures": "1"}, "counts 1 failures of its uplink, but it must be 0"),
        ({"uplink.outage": "{}"}, "keeps uplink.outage, but all has landed"),
        ({"uplink.held": "1"}, "keeps uplink.held, but all has landed"),
        ({"gateway": "other"}, "keeps the name other, but is called site"),
        ({"epoch": "f"}, ""),
        ({"batch": [9, _, _, _, _, _, _, _]}, "has forgotten batch 2 of site/e, which has landed"),
        ({"batch": [_, 2, _, _, _, _, _, _]}, "keeps for batch 2 of site/e rows 2 to 4"),
        ({"batch": [_, _, 5, _, _, _, _, _]}, "keeps for batch 2 of site/e rows 3 to 5"),
        ({"batch": [_, _, _, 3, _, _, _, _]}, "keeps for batch 2 of site/e 3 rows"),
        ({"batch": [_, _, _, _, 9, _, _, _]}, "keeps for batch 2 of site/e 9 bytes"),
        ({"batch": [_, _, _, _, _, "0", _, _]}, "keeps for batch 2 of site/e the checksum 0"),
        ({"batch": [_, _, _, _, _, _, US + 9_000_000, _]}, "of site/e another time of its cut"),
        ({"batch": [_, _, _, _, _, _, _, US]}, "of site/e another time of its landing"),
        ({"batch": [_, _, _, _, _, _, _, US + 60_000_000]}, "another time of its landing"),
        ({"batch": [_, _, _, _, _, _, _, None]}, "another time of its landing"),
        ({"mark": [_, _, 2]}, "keeps 2 as the last number of uno-2, but that is 3"),
        ({"subscription": [_, "commands/#"]}, "keeps a subscription of uno-2 to commands/#"),
    ],
)
def test_rows_that_stay_in_a_store_are_right(more: dict[str, Any], why: str) -> None:
    assert kept() == []
    found = kept(**more)
    assert any(text.startswith("gateway ") and why in text for text in found) or not why


@pytest.mark.parametrize(
    "kind", ["", "batch landed twice", "gateway's store restored from a backup"]
)
def test_rows_that_a_fault_has_landed_are_not_counted(kind: str) -> None:
    """kind: a fault. After some faults, batches have landed that the gateway has not counted."""
    happened = Event(8, "uplink", "happened", {"fault": "uplink/fault-1", "kind": kind})
    events = [*calm(), happened]
    meta = {"gateway": "site", "epoch": "e", "uplink.batches": "2", "uplink.readings": "5"}
    rows: dict[str, Any] = {"batch": [[n, *[0] * 7] for n in (1, 2, 3)], "mark": []}
    left = Event(LAST, "gateway", "remains", {"meta": meta, "rows": {**rows, "subscription": []}})
    found = figures.wrong([*events, told(events), left])
    assert any("counts 2 batches" in text for text in found) == (not kind)


@pytest.mark.parametrize(
    ("kind", "times", "low", "high"),
    [
        ("landing place refuses", 3, 1, 3),
        ("upload cut half-way", 2, 1, 2),
        ("landing place unwritable", 0, 1, figures.ANY),
        ("board power cut", 0, 0, 0),
    ],
)
def test_failures_of_the_landing_place_are_counted(
    kind: str, times: int, low: float, high: float
) -> None:
    hop = "uno-1" if kind.startswith("board") else "landing"
    data = {"fault": "landing/fault-1", "kind": kind, "times": times}
    events = [*calm(), Event(8, hop, "happened", data)]
    life = figures.Life(told(events), events[0].data, events)
    assert life.total("failures") == (low, high)


def test_gateway_that_gives_no_figures_is_reported() -> None:
    meta = {"gateway": "site", "epoch": "e"}
    rows: dict[str, Any] = {"batch": [], "mark": [], "subscription": []}
    left = Event(LAST, "gateway", "remains", {"meta": meta, "rows": rows})
    assert "gateway gives no figures" in figures.wrong([*calm(), left])
    dead = {"fault": "f", "kind": "", "gateway": "attic", "died": 0, "since": 1}
    assert (
        figures.wrong(
            [
                *calm(),
                Event(8, "gateway", "happened", dead),
                Event(LAST, "gateway-attic", "remains", left.data),
            ]
        )
        == []
    )


@pytest.mark.parametrize("several", [False, True])
def test_landing_place_may_have_failed_for_another_gateway(several: bool) -> None:
    data = {"fault": "landing/fault-1", "kind": "landing place unwritable"}
    events = [*calm(gateway=[{"name": "site"}] * several), Event(8, "landing", "happened", data)]
    life = figures.Life(told(events), events[0].data, events)
    assert life.total("failures") == (not several, figures.ANY)
