"""Recorded radio links: the reader tells copies, overtaken frames, overflows and resets of the
counter apart, and keeps loss, bursts and outages as recorded.
"""

import gzip
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gateway.errors import OncewayError
from hil.bench.files import load as load_bench
from hil.svg import WIDTH, Chart, ticks
from hil.traces import cli
from hil.traces.plot import plot
from hil.traces.recording import load, own_traces
from hil.traces.trace import Frame, Outage, Trace

RECORDINGS = Path(os.environ.get("ONCEWAY_TRACES", Path(__file__).parents[4] / "shared" / "traces"))
"""Folder of real recordings. They are large and have licences of their own, so they are not in the
tree. Without this folder, the bundled recordings are read.
"""

runner = CliRunner()
fates = st.lists(st.booleans(), min_size=2, max_size=120).map(
    lambda arrived: [True, *arrived, True]
)


def record(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def sent(arrived: list[bool], start: int = 0, t: float = 0.0) -> list[dict[str, object]]:
    """Return rows of the frames that arrived. The sender sends a frame every ten seconds, from `t`
    on.
    """
    return [
        {"t": t + 10.0 * n, "fcnt": (start + n) % 65536} for n, there in enumerate(arrived) if there
    ]


def arrived_of(trace: Trace) -> list[bool]:
    return [there for _, there in trace.fates()]


@given(arrived=fates, start=st.integers(0, 65535))
def test_losses_are_counted_over_an_overflow_of_the_counter(
    tmp_path_factory: pytest.TempPathFactory, arrived: list[bool], start: int
) -> None:
    trace = load(record(tmp_path_factory.mktemp("t") / "a.jsonl", sent(arrived, start)))
    assert arrived_of(trace) == arrived
    assert (trace.sent, trace.lost, trace.resets, trace.repeats) == (
        len(arrived),
        arrived.count(False),
        0,
        0,
    )
    assert trace.bursts().total() == len(
        re.findall("0+", "".join("01"[there] for there in arrived))
    )


@given(arrived=fates, data=st.data())
def test_copies_are_left_out_and_overtaken_frames_put_in_their_place(
    tmp_path_factory: pytest.TempPathFactory, arrived: list[bool], data: st.DataObject
) -> None:
    arrived = [True, True, True, *arrived]  # so that the reader knows the usual interval
    rows = sent(arrived)
    number = data.draw(st.integers(1, len(rows) - 1))
    late = {**rows[number - 1], "t": float(str(rows[number]["t"])) + 1}
    copied = load(
        record(
            tmp_path_factory.mktemp("t") / "a.jsonl",
            [*rows[: number + 1], late, *rows[number + 1 :]],
        )
    )
    if int(str(rows[number]["fcnt"])) - int(str(late["fcnt"])) <= 16:
        assert (arrived_of(copied), copied.repeats, copied.resets) == (arrived, 1, 0)
        overtaken = [*rows[: number - 1], rows[number], late, *rows[number + 1 :]]
        if number > 1:
            trace = load(record(tmp_path_factory.mktemp("t") / "b.jsonl", overtaken))
            assert (arrived_of(trace), trace.repeats, trace.resets) == (arrived, 0, 0)


@given(before=fates, after=fates, start=st.integers(40, 30_000))
def test_restarted_sender_has_no_known_loss(
    tmp_path_factory: pytest.TempPathFactory, before: list[bool], after: list[bool], start: int
) -> None:
    rows = sent(before, start) + sent(after, 0, 10.0 * len(before) + 5)
    trace = load(record(tmp_path_factory.mktemp("t") / "a.jsonl", rows))
    assert (arrived_of(trace), trace.resets) == (before + after, 1)


def test_impossible_jump_of_a_counter_is_a_restart(tmp_path: Path) -> None:
    trace = load(record(tmp_path / "a.jsonl", sent([True] * 20) + sent([True] * 20, 40_000, 200.0)))
    assert (trace.lost, trace.resets) == (0, 1)


def test_the_rigs_own_form_says_the_same(tmp_path: Path) -> None:
    trace = load("outages")
    trace.save(tmp_path / "outages.jsonl")
    assert load(str(tmp_path / "outages.jsonl")) == trace


def test_outages_are_silences(tmp_path: Path) -> None:
    rows = sent([True] * 10 + [False] * 7 + [True] * 5)
    assert load(record(tmp_path / "a.jsonl", rows)).outages() == [Outage(90.0, 80.0, 7)]


def test_csv_with_iso_times_and_a_byte_order_mark(tmp_path: Path) -> None:
    lines = [
        "\ufeffFCnt,Time,RSSI,SNR",
        "7,2024-05-01T00:00:00Z,-101,3.5",
        "9,2024-05-01T02:00:10+02:00,,",
    ]
    with gzip.open(tmp_path / "a.csv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    assert load(str(tmp_path / "a.csv.gz")).frames == (
        Frame(0.0, 7, 0, -101.0, 3.5),
        Frame(10.0, 9, 1),
    )


@pytest.mark.parametrize("yes", ["true", "True", "1", "yes"])
@pytest.mark.parametrize("no", ["false", "FALSE", "0", "no", " false "])
def test_frame_marked_undelivered_is_lost(tmp_path: Path, yes: str, no: str) -> None:
    said = [yes, no, yes, yes, no, yes]
    table = "".join(f"{count},{10 * count},{one}\n" for count, one in enumerate(said))
    (tmp_path / "a.csv").write_text(f"fcnt,t,Delivered\n{table}")
    trace = load(str(tmp_path / "a.csv"))
    assert [frame.sequence for frame in trace.frames] == [0, 2, 3, 5]
    assert trace.lost == 2


def test_frame_marked_undelivered_in_json_is_lost(tmp_path: Path) -> None:
    said = [True, False, 1, "false", 0, "0", "true"]
    rows = [{"fcnt": n, "t": 10 * n, "delivered": one} for n, one in enumerate(said)]
    trace = load(record(tmp_path / "a.jsonl", rows))
    assert [frame.sequence for frame in trace.frames] == [0, 2, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fcnt,t,delivered\n1,0,true\n2,1,perhaps", "line 3 says delivered = 'perhaps'"),
        ("fcnt,t,delivered\n1,0,true\n2,1,", "line 3 says delivered = ''"),
        ('{"fcnt":1,"t":0,"delivered":null}', "line 1 says delivered = None"),
        (
            "fcnt,t,delivered\n1,0,false\n2,1,0",
            "no frame of this recording was delivered",
        ),
        ("", "the recording holds no frame"),
        ('{"source":"x"}', "the recording holds no frame"),
        (
            '{"fcnt":1,"t":0}\n{"fcnt":2}',
            "line 2 lacks the counter or the time.*It needs one of the columns sequence",
        ),
        ('{"fcnt":1,"t":0}\n[1]', "line 2 is not a JSON object"),
        ('{"fcnt":1,"t":0}\n{"fcnt"', "line 2 is not JSON"),
        (
            "fcnt,t\n1,0\n-2,1",
            "line 3 says fcnt = '-2', which cannot be read. Write a whole number, 0 or above",
        ),
        (
            "fcnt,time\n1,0\n2,noon",
            "line 3 says time = 'noon', which cannot be read. Write seconds, such as 12.5, or ISO",
        ),
        (
            "fcnt,t,rssi\n1,0,weak",
            "line 2 says rssi = 'weak', which cannot be read. Write a number",
        ),
        (
            "fcnt;t\n1;0\n2;1,5",
            "line 2 lacks the counter or the time. Separate the columns by commas",
        ),
        (
            '{"onceway_trace":1,"name":"x","repeats":0,"resets":0}',
            "no frame of this recording was delivered",
        ),
        ('{"onceway_trace":2}', "of version 2, this program reads 1"),
        (
            '{"onceway_trace":1,"name":"x","repeats":0,"resets":0}\n{"t":0,"sequence":1,"lost":-1}',
            "the trace is damaged",
        ),
    ],
)
def test_a_bad_recording_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(OncewayError, match=message):
        load(str(tmp_path / "a.jsonl"))


def test_a_bench_on_a_recording_that_delivered_nothing_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "silent.jsonl"
    trace.write_text('{"onceway_trace":1,"name":"silent","repeats":0,"resets":0}\n')
    bench = tmp_path / "bench.toml"
    bench.write_text(f'title = "t"\n[[fault]]\nkind = "line-trace"\ntrace = "{trace}"\n')
    with pytest.raises(OncewayError, match="no frame of this recording was delivered"):
        load_bench(str(bench))


def test_no_such_recording() -> None:
    with pytest.raises(
        OncewayError,
        match=r"cannot read the recording.*Traces that come with the project: bursts, outages",
    ):
        load("nothing-here.jsonl")


@pytest.mark.parametrize("name", [*own_traces(), *map(str, sorted(RECORDINGS.glob("*")))])
def test_every_recording_is_shown_drawn_and_imported(tmp_path: Path, name: str) -> None:
    shown = runner.invoke(cli.app, ["show", name, "--json"])
    said = json.loads(shown.output)
    assert 0.01 < said["lost"] / said["sent"] < 0.35
    assert said["mean_burst"] > 1.2
    assert sum(int(length) * times for length, times in said["bursts"].items()) == said["lost"]
    assert "lost in a row" in runner.invoke(cli.app, ["show", name]).output
    assert runner.invoke(cli.app, ["plot", name, "-o", str(tmp_path / "a.svg")]).exit_code == 0
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert runner.invoke(cli.app, ["import", name, "-o", str(tmp_path / "a.jsonl")]).exit_code == 0
    again = json.loads(runner.invoke(cli.app, ["show", str(tmp_path / "a.jsonl"), "--json"]).output)
    assert again == said


@pytest.mark.parametrize("command", ["import", "plot"])
def test_converted_recording_does_not_overwrite_its_source(tmp_path: Path, command: str) -> None:
    name = record(tmp_path / "a.jsonl", sent([True, False, True]))
    (link := tmp_path / "link.jsonl").symlink_to(name)
    before = Path(name).read_bytes()
    for out in (name, str(link)):
        done = runner.invoke(cli.app, [command, name, "-o", out])
        assert "--out is the recording itself. Name another file" in str(done.exception)
    assert Path(name).read_bytes() == before


@given(start=st.integers(0, 100))
def test_a_drawing_of_any_short_trace_is_xml(start: int) -> None:
    for frames in (
        (),
        (Frame(0.0, start),),
        (Frame(0.0, start, 0, -90.0), Frame(0.0, start + 1, 0, -90.0)),
    ):
        ElementTree.fromstring(plot(Trace("<&>", frames)))


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6))
def test_ticks_are_few_and_within(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 1 <= len(found) <= 12
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in found)


def test_the_last_number_of_an_axis_stays_inside_the_chart() -> None:
    drawn = Chart("", (0, 10_000), (0, 1), "time (s)", "").element()
    assert f'<text x="{WIDTH}" text-anchor="end" y="199">10000</text>' in drawn
    assert 'text-anchor="middle" y="199">8000</text>' in drawn
