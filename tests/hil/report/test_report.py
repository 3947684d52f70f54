"""Reports agree with the history. Machines can read them, and browsers can show them."""

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.errors import OncewayError
from hil import cli
from hil.judge.checker import Verdict
from hil.judge.coverage import ACKNOWLEDGED, COMMITTED, RECEIVED
from hil.observe.history import Event
from hil.report.compare import rows
from hil.report.files import merge_junit, read_json
from hil.report.findings import findings
from hil.report.html import page
from hil.report.junit import junit
from hil.report.sums import coverage_markdown, hits, markdown, side_by_side, sums
from hil.report.text import sentence
from tests.hil.judge.runs import message, of_client

runner = CliRunner()

SECOND = 10**9
EVIL = "<script>alert(1)</script>&"
KEY = {"device": "uno-1", "incarnation": 7}
SENT = {"frames": 40, "frames_again": 7, "publishes": 12, "publishes_again": 2}
ANSWERED = {"frames": 30, "frames_again": 1, "publishes": 0, "publishes_again": 0}
SECOND_OF_CLIENT = {"device": "client-1", "incarnation": 1, "sequence": 2}
PAYLOAD = "81a42166756e6f2d313a00646164633001615602fa40200000"  # uno-1:adc0 = 2.5


def publication(t: float, hop: str, sequence: int) -> Event:
    data = {**KEY, "sequence": sequence}
    if hop == "board":
        data.update(kind="reading", records=[["uno-1:adc0", 2.5, None, "V"]])
    else:
        data.update(origin="site/e", position=sequence, payload=PAYLOAD)
    return Event(int(t * SECOND), hop, "publication", data)


def run(lost: int = 0) -> list[Event]:
    """Return a run of ten readings, one a second. Each takes two seconds from the board to its
    batch, but the last `lost` readings never arrive. Of two planned faults, one happens.
    """
    events = [
        Event(
            0,
            "rig",
            "run",
            {
                "version": "1.2",
                "bench": {"title": f"A bench {EVIL}", "until": "batch"},
                "plan": {"seed": 3, "readings": {"uno-1": 10}},
                "hops": ["board", "batch"],
            },
        ),
        Event(
            0,
            "rig",
            "planned",
            {"fault": "gateway/gateway-kill-1", "kind": "kill", "counter": "spooled", "at": 4},
        ),
        Event(
            0,
            "rig",
            "planned",
            {"fault": "uno-1/line-cut-1", "kind": "line cut", "counter": "sampled uno-1", "at": 5},
        ),
        Event(
            5 * SECOND,
            "gateway",
            "happened",
            {"fault": "gateway/gateway-kill-1", "kind": "kill", "evidence": EVIL},
        ),
        Event(SECOND, "wire", "open", {"line": "uno-1"}),
        Event(5 * SECOND, "wire", "close", {"line": "uno-1"}),
        Event(6 * SECOND, "wire", "open", {"line": "uno-1"}),
    ]
    for t, pid, cpu, written in ((1, 1, 0.5, 1000), (4, 1, 1.5, 3000), (6, 2, 0.25, 2000)):
        events.append(
            Event(
                t * SECOND,
                "gateway",
                "usage",
                {"pid": pid, "cpu": cpu, "memory": 50_000_000 + t, "written": written},
            )
        )
    count = {
        "line": "uno-1",
        "final": True,
        "up": {"sent": 9, "arrived": 8, "dropped": 1, "lose": 1},
        "link": {"up": SENT, "down": ANSWERED},
    }
    events.append(
        Event(
            12 * SECOND,
            "wire",
            "count",
            {**count, "down": {"sent": 5, "arrived": 5, "dropped": 0, "lose": 0}},
        )
    )
    for number in range(1, 11):
        events.append(publication(number, "board", number))
        events += [
            publication(number + lag, hop, number)
            for lag, hop in ((1, "spool"), (2, "batch"))
            if number <= 10 - lost
        ]
    return [
        *events,
        Event(13 * SECOND, "board", "complete"),
        Event(13 * SECOND, "batch", "complete"),
        Event(13 * SECOND, "rig", "end"),
    ]


def save(folder: Path, events: list[Event]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "history.jsonl").write_text("".join(event.to_line() for event in events))
    return folder


def test_findings_of_a_run() -> None:
    found = findings(run())
    assert found.result.verdict is Verdict.UNKNOWN
    assert (found.seconds, found.seed, found.percentile(50), found.percentile(100)) == (
        13.0,
        3,
        2.0,
        2.0,
    )
    assert {fault.id: fault.t for fault in found.faults.values()} == {
        "gateway/gateway-kill-1": 5.0,
        "uno-1/line-cut-1": None,
    }
    assert found.cpu("gateway") == 1.75  # of both processes
    assert found.written_per_reading == 500
    assert found.links == {"uno-1": [(1.0, True), (5.0, False), (6.0, True)]}
    assert {hop: len(times) for hop, times in found.arrivals.items()} == {
        "board": 10,
        "spool": 10,
        "batch": 10,
        "table": 0,
    }


def test_a_history_that_breaks_off_has_findings() -> None:
    found = findings(run()[:3])
    assert found.result.reasons[0] == "the history breaks off"
    assert found.percentile(50) is None
    assert found.written_per_reading is None
    assert "unknown" in page(found)
    assert "unknown" in page(findings([]))
    assert "Publications at each hop" not in page(findings([]))


class Page(HTMLParser):
    """A parser that collects the tags of a page, and the addresses that the page would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("lost", [0, 3])
def test_the_page_stands_alone_and_escapes_what_it_shows(lost: int) -> None:
    text = page(findings(run(lost)))
    shown = Page(text)
    assert shown.fetched == []
    assert shown.open == []
    assert not {"script", "link", "img", "iframe"} & set(shown.tags)
    assert shown.tags.count("svg") == 5  # progress, faults, delays, memory, CPU
    assert "did not happen" in text
    assert ("lost: uno-1 sequence 10" in text) == bool(lost)
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text


def test_fault_of_the_whole_run_has_no_other_place() -> None:
    noise = {"fault": "uno-1/line-noise-1", "kind": "line noise", "at": 1, "whole_run": True}
    planned = Event(0, "rig", "planned", {**noise, "counter": "sampled uno-1"})
    assert findings([*run(), planned]).faults["uno-1/line-noise-1"].place == "the whole run"


def test_junit_has_a_case_for_the_promise_and_one_for_each_fault(tmp_path: Path) -> None:
    [suite] = ElementTree.fromstring(junit([findings(run(3))]))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    promise, *faults = suite
    told = str(promise.findtext("failure"))
    assert "lost: uno-1 sequence 8" in told
    assert "7.000 s  board  uno-1:adc0=2.5 without a time" in told
    assert [case.get("name") for case in faults if case.find("error") is not None] == [
        "uno-1/line-cut-1 happened"
    ]
    (tmp_path / "a.xml").write_text(junit([findings(run())]))
    (tmp_path / "b.xml").write_text(junit([findings(run())]))
    merged = ElementTree.fromstring(
        merge_junit([tmp_path / "a.xml", tmp_path / "none.xml", tmp_path / "b.xml"])
    )
    assert len(merged.findall("testsuite")) == 2


def test_retransmissions_are_in_every_report(tmp_path: Path) -> None:
    found = findings(run())
    told = found.to_json()
    assert (told["frames_again"], told["publishes_again"]) == (8, 2)
    assert told["sent"] == {"uno-1": {"up": SENT, "down": ANSWERED}}
    assert (
        "<td>uno-1</td><td>up</td><td class=n>40</td><td class=n>7</td><td class=n>12</td><td"
        " class=n>2</td>" in page(found)
    )
    said = runner.invoke(cli.app, ["check", str(save(tmp_path / "one", run()))]).output
    assert (
        "uno-1 up: 9 bytes, 40 frames, 7 of them sent again; 12 PUBLISH, 2 with DUP, down: 5 bytes,"
        " 30 frames, 1 of them sent again" in said
    )
    earlier = findings([event for event in run() if event.event != "count"])
    assert (earlier.again("frames"), earlier.to_json()["publishes_again"]) == (None, None)
    assert "Sent again" not in page(earlier)


def test_junit_holds_what_xml_cannot(tmp_path: Path) -> None:
    events = run(1)
    events[3].data["evidence"] = "a colourful \x1b[31mlog\x00, a half \ud800 and a whole \U0001f600"
    events[0].data["bench"]["title"] = "a\x07bell"
    text = junit([findings(events)])
    [suite] = ElementTree.fromstring(text)
    assert suite.get("name") == "a\ufffdbell, seed 3"
    assert (
        "a colourful \ufffd[31mlog\ufffd, a half \ufffd and a whole \U0001f600"
        in ElementTree.tostring(suite, encoding="unicode")
    )
    (tmp_path / "junit.xml").write_text(text, encoding="utf-8")
    assert merge_junit([tmp_path / "junit.xml"])


def test_publications_of_clients_do_not_count_as_goodput_of_lines() -> None:
    message = {"device": "client-1", "incarnation": 1, "sequence": 1, "payload": "00" * 5000}
    sent = Event(SECOND, "board", "publication", {**message, "kind": "message", "qos": 2})
    stored = [
        Event(t * SECOND, hop, "publication", {**message, "origin": "site/e", "position": 99})
        for t, hop in ((30, "spool"), (31, "batch"))
    ]
    alone, beside = findings(run()), findings([*run(), sent, *stored])
    assert (beside.goodput, beside.line_share, beside.readings_per_s) == (
        alone.goodput,
        alone.line_share,
        alone.readings_per_s,
    )
    assert beside.result.produced == alone.result.produced + 1


def test_a_long_run_makes_no_heavy_page() -> None:
    begin = Event(
        0,
        "rig",
        "run",
        {
            "version": "1",
            "bench": {"title": "", "until": "batch"},
            "plan": {"seed": 1, "readings": {}},
        },
    )
    assert len(page(findings([begin, *used(1, *range(50_000_000, 50_020_000))]))) < 150_000


def test_json_names_what_is_not_ok() -> None:
    told = findings(run(1)).to_json()["offenders"]
    seen = {"board": 1, "spool": 0, "batch": 0, "table": 0}
    outcome = {"outcome": "lost", "hop": "spool", "why": ""}
    assert told == [{**KEY, "sequence": 10, **outcome, "seen": seen}]


def test_limits_are_judged_by_what_was_measured() -> None:
    events = run()
    limits = {
        "delay_p99_s": 1.5,
        "delay_max_s": 2.0,
        "memory_mb": 50.1,
        "written_per_reading": 499.0,
    }
    events[0].data["bench"]["limits"] = {**limits, "unset": None}
    found = findings(events)
    told = [
        "delay_p99_s is 2.0, but must not exceed 1.5",
        "written_per_reading is 500.0, but must not exceed 499",
    ]
    assert found.exceeded == told
    assert not found.is_kept
    assert all(limit in page(found) for limit in told)
    [suite] = ElementTree.fromstring(junit([found]))
    assert (suite.get("failures"), suite.get("tests")) == ("2", "5")
    unmeasured = [event for event in events if event.event != "usage"]
    assert findings(unmeasured).exceeded[1:] == [
        "memory_mb is unknown; the limit is 50.1",
        "written_per_reading is unknown; the limit is 499",
    ]


def test_limit_of_delays_holds_for_each_device() -> None:
    """One device is slow, which the delays of all devices together do not show."""
    found = findings(run())
    found.delays_of = {"uno-1": [1.0] * 500, "uno-2": [1.0] * 3 + [9.0]}
    found.delays = sorted([*found.delays_of["uno-1"], *found.delays_of["uno-2"]])
    found.limits = {"delay_p99_s": 5.0}
    assert found.percentile(99) == 1.0
    assert found.exceeded == ["delay_p99_s is 9.0, but must not exceed 5"]


def test_a_limit_that_was_not_kept_stands_in_the_headline(tmp_path: Path) -> None:
    events = of_client(2)
    events[0].data["bench"]["limits"] = {"memory_mb": 5}
    found = findings(events)
    assert (found.result.verdict, found.is_kept) == (Verdict.HOLDS, False)
    text = page(found)
    assert '<span class="verdict unknown">holds, but a limit was not kept</span>' in text
    assert "<title>t: holds, but a limit was not kept</title>" in text
    save(tmp_path / "run", events)
    done = runner.invoke(cli.app, ["check", str(tmp_path / "run")])
    assert (done.exit_code, "holds, but a limit was not kept: no faults" in done.output) == (
        0,
        True,
    )
    assert "memory_mb is unknown; the limit is 5" in done.output
    done = runner.invoke(cli.app, ["report", str(tmp_path / "run")])
    assert done.output.endswith("report.html, report.json and junit.xml\n")
    assert done.output.startswith("holds, but a limit was not kept; written:")


def test_goodput_of_lines_is_measured_and_has_a_floor() -> None:
    events = run()
    found = findings(events)
    assert found.readings_per_s == pytest.approx(10 / 9)
    assert found.goodput == pytest.approx(10 / 9 * len(PAYLOAD) / 2)
    assert found.line_share == pytest.approx(10 * len(PAYLOAD) / 2 / 9)
    events[0].data["bench"]["limits"] = {"readings_per_s": 1.2, "goodput": 20.0}
    assert findings(events).exceeded == ["readings_per_s is 1.1, but must be at least 1.2"]
    assert findings(events[:1]).exceeded == [
        "readings_per_s is unknown; the limit is 1.2",
        "goodput is unknown; the limit is 20",
    ]


def used(pid: int, *memory: int) -> list[Event]:
    return [
        Event(t * SECOND, "gateway", "usage", {"pid": pid, "cpu": 0, "memory": size, "written": 0})
        for t, size in enumerate(memory)
    ]


def test_a_leak_is_distinguished_from_a_cache_that_fills() -> None:
    leaking = used(1, *range(50_000_000, 90_000_000, 1_000_000))
    filled = used(1, 50_000_000, *[80_000_000] * 39)
    assert findings(leaking).growth("gateway") == pytest.approx(20e6)
    assert findings(filled).growth("gateway") == 0
    # both were killed too soon
    assert findings(used(1, 1, 2) + used(2, 3, 4)).growth("gateway") is None
    begin = Event(
        0,
        "rig",
        "run",
        {
            "version": "1",
            "bench": {"title": "", "until": "batch", "limits": {"growth_mb": 5}},
            "plan": {"seed": 1, "readings": {}},
        },
    )
    assert findings([begin, *leaking]).exceeded == ["growth_mb is 20.0, but must not exceed 5"]
    assert not findings([begin, *filled]).exceeded
    assert findings([begin, *used(1, 1)]).exceeded == ["growth_mb is unknown; the limit is 5"]


def test_sums_of_a_campaign() -> None:
    one = findings(run(3)).to_json()
    one["faults"]["happened"] = {
        "power cut": 3,
        "power cut in an exchange": 2,
        "kill -9 of the gateway": 4,
        "power cut of the gateway": 1,
        "kill -9 of the uplink": 7,
    }
    found = sums([("a", one), ("b", findings(run()).to_json())])
    assert list(found) == ["a", "b", "all"]
    cuts = {"runs": 2, "hold": 0, "board cuts": 5, "gateway cuts": 5, "faults": 18, "readings": 20}
    assert found["all"] == {
        **cuts,
        "lost": 3,
        "doubled": 0,
        "altered": 0,
        "other": 0,
        "worst delay (s)": 2.0,
    }
    assert markdown(found).splitlines()[2].startswith("| a | 1 | 0 | 5 | 5 | 17 | 10 | 3 |")


def test_results_side_by_side() -> None:
    found = side_by_side({"glue": findings(run(3)).result, "ours": findings(run()).result})
    columns = {"readings": 10, "doubled": 0, "altered": 0, "other": 0}
    assert found["glue"] == {**columns, "verdict": "fails", "arrived": 7, "lost": 3}
    assert found["ours"] == {**columns, "verdict": "unknown", "arrived": 10, "lost": 0}


def test_two_runs_side_by_side() -> None:
    one, other = findings(run()).to_json(), findings(run(5)).to_json()
    told = {name: values for name, *values in rows(one, other)}
    assert told["outcomes: lost"] == ["0", "5", ""]
    assert told["readings: arrived"] == ["10", "5", "-50%"]
    assert told["verdict"] == ["unknown", "fails", ""]
    assert not [name for name in told if name.startswith("bench")]


def test_runs_of_different_benches_side_by_side(tmp_path: Path) -> None:
    other = run()
    other[0].data["bench"].update(title="[bold]other", boards=3)
    told = {
        name: values for name, *values in rows(findings(run()).to_json(), findings(other).to_json())
    }
    assert told["bench: boards"] == ["", "3", ""]
    assert "bench: title" not in told
    said = runner.invoke(
        cli.app,
        ["compare", str(save(tmp_path / "one", run())), str(save(tmp_path / "other", other))],
    ).output
    assert "[bold]other" in said


def test_report_and_compare_on_the_command_line(tmp_path: Path) -> None:
    one, other = save(tmp_path / "one", run()), save(tmp_path / "other", run(2))
    assert runner.invoke(cli.app, ["report", str(one)]).exit_code == 0
    assert (
        runner.invoke(
            cli.app, ["report", str(one), "--dir", str(tmp_path / "else" / "where")]
        ).exit_code
        == 0
    )
    assert (tmp_path / "else" / "where" / "report.html").exists()
    assert sorted(path.name for path in one.iterdir()) == [
        "history.jsonl",
        "junit.xml",
        "report.html",
        "report.json",
    ]
    said = json.loads(
        runner.invoke(cli.app, ["report", str(one / "history.jsonl"), "--json"]).output
    )
    assert said == read_json(one / "report.json")
    compared = json.loads(
        runner.invoke(cli.app, ["compare", str(one), str(other), "--json"]).output
    )
    assert {"name": "outcomes: lost", "one": "0", "other": "2", "change": ""} in compared
    assert "outcomes: lost" in runner.invoke(cli.app, ["compare", str(one), str(other)]).output


def test_no_report_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match="To make the report: onceway hil report RUN"):
        read_json(tmp_path / "report.json")
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(OncewayError, match="the report is damaged"):
        read_json(tmp_path / "report.json")


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (0, "Nothing is proven: planned fault did not happen: "),
        (3, "The promise is broken: 3 lost (10 publications, 2 planned faults)."),
    ],
)
def test_the_page_opens_with_the_verdict_in_one_sentence(lost: int, said: str) -> None:
    text = page(findings(run(lost)))
    assert said in text[: text.index("</h1>") + 400]


def test_counts_of_the_page_agree() -> None:
    """Status messages of boards count in the figures of the hops, but not in those of produced
    readings.
    """
    status = {**KEY, "sequence": 11, "kind": "status", "records": []}
    events = [Event(1, "board", "publication", status)]
    events += [event for event in run(10) if event.data.get("fault") != "uno-1/line-cut-1"]
    text = page(findings(events))
    assert "(10 publications and 1 status, 1 planned fault)" in text
    assert "Publications at each hop, with 1 status of the boards" in text
    assert "<td>board</td><td class=n>11</td>" in text
    assert "Publications at each hop</h2>" in page(findings(run()))


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (of_client(2), "each publication is at the landing place exactly once (3 publications"),
        (
            [one for one in of_client(0) if one.hop == "board" or one.data.get("sequence") != 2],
            "each publication that had to arrive is at the landing place exactly once (3"
            " publications, no fault planned); 1 at QoS 0 not delivered.",
        ),
        (
            [*of_client(1), Event(2, "board", "resent", SECOND_OF_CLIENT)]
            + [message(hop, 2, 1, position=9) for hop in ("spool", "batch")],
            "each publication is at the landing place at least once (3 publications, no fault"
            " planned); 1 arrived more than once, which the claim allows.",
        ),
    ],
    ids=["at QoS 2", "one lost at QoS 0", "one twice at QoS 1"],
)
def test_the_sentence_says_no_more_than_what_was_proven(events: list[Event], said: str) -> None:
    found = findings(events)
    assert found.result.verdict is Verdict.HOLDS, found.result.reasons
    assert f"The promise holds: {said}" in sentence(found)


@pytest.mark.parametrize("hop", ["wire", "air"])
def test_a_recorded_link_says_how_much_of_it_was_replayed(hop: str) -> None:
    replayed = {
        "trace": "roof",
        "begin": 100.0,
        "seconds": 250.0,
        "of": 1000.0,
        "frames": 40,
        "lost": 10,
        "run_s": 20.0,
        "up_s": 15.0,
        "longest_outage": 20,
        "shortened": 2,
    }
    found = findings(
        [*run(), Event(0, hop, "replayed", {"line": "uno-1", "direction": "up", **replayed})]
    )
    said = (
        "uno-1 up: 250 of 1000 s of roof, from second 100 on; the link was up 75% of the time, "
        "10 of 40 frames lost; 2 outages of the recording are shortened to 20"
        " (longest_outage)"
    )
    assert said in page(found)
    assert found.to_json()["replayed"] == [{"line": "uno-1", "direction": "up", **replayed}]


def struck(window: str) -> Event:
    kind = "kill -9 of the gateway"
    data = {"fault": "gateway/gateway-kill-1", "kind": kind, "evidence": "gone", "window": window}
    return Event(SECOND, "gateway", "happened", data)


def test_the_page_says_how_often_each_window_was_hit_and_which_was_not() -> None:
    found = findings([*run(), struck(COMMITTED), struck(COMMITTED)])
    assert found.to_json()["coverage"] == {"kill -9 of the gateway": {COMMITTED: 2}}
    text = page(found)
    assert text.index("Where the faults struck") < text.index("Publications at each hop")
    assert f"<td>{COMMITTED}</td><td class=n>2</td>" in text
    assert f"<tr class=missed><td>kill -9 of the gateway</td><td>{RECEIVED}</td>" in text


def test_unplanned_window_was_not_missed() -> None:
    events = [*run(), struck(COMMITTED)]
    for number, window in enumerate((COMMITTED, RECEIVED), 1):
        kill = {"fault": f"gateway/gateway-kill-{number}", "kind": "kill -9 of the gateway"}
        events.append(Event(0, "rig", "planned", {**kill, "aim": {"window": window}, "at": 1}))
    text = page(findings(events))
    assert f"<td>{COMMITTED}</td><td class=n>1</td>" in text
    assert f"<tr class=missed><td>kill -9 of the gateway</td><td>{RECEIVED}</td>" in text
    assert ACKNOWLEDGED not in text


def test_windows_are_summed_up_over_runs() -> None:
    one, other = (
        findings([*run(), struck(window)]).to_json() for window in (COMMITTED, ACKNOWLEDGED)
    )
    found = hits([one, other, one])
    assert found == {"kill -9 of the gateway": {COMMITTED: 2, ACKNOWLEDGED: 1}}
    assert f"| kill -9 of the gateway | {COMMITTED} | 2 |" in coverage_markdown(found)
    assert f"| kill -9 of the gateway | {RECEIVED} | 0 |" in coverage_markdown(found)
    assert coverage_markdown({}) == ""
