"""`onceway hil`: its output, its exit codes, and folders that the rig did not make."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gateway.errors import OncewayError
from hil import cli
from hil.bench.bench import Bench
from hil.bench.files import load, own_benches
from hil.bench.plan import Plan
from hil.bench.plan import plan as make_plan
from hil.faults import KINDS
from hil.glue.run import GlueRun
from hil.judge.checker import Result
from hil.observe.folder import Folder
from hil.report.findings import Findings, find
from hil.run.display import Display

runner = CliRunner()

GOOD = """\
{"t":0,"hop":"rig","event":"run","version":"1","bench":{"title":"A bench","until":"table"},\
"plan":{"seed":1,"readings":{"uno-1":1}},"hops":["board","table"]}
{"t":1,"hop":"rig","event":"planned","fault":"gateway/kill-1","kind":"kill -9 of the gateway",\
"counter":"spooled","at":1,"detail":{}}
{"t":2,"hop":"gateway","event":"happened","fault":"gateway/kill-1",\
"kind":"kill -9 of the gateway","evidence":"gone"}
{"t":3,"hop":"board","event":"publication","device":"uno-1","incarnation":7,"sequence":1,\
"kind":"reading","records":[["uno-1:adc0",2.5,null,"V"]]}
{"t":4,"hop":"table","event":"publication","device":"uno-1","incarnation":7,"sequence":1,\
"origin":"site/e","position":1,"payload":"PAYLOAD"}
{"t":5,"hop":"board","event":"complete"}
{"t":6,"hop":"table","event":"complete"}
{"t":7,"hop":"rig","event":"end"}
""".replace("PAYLOAD", "81a42166756e6f2d313a006461646330016156" + "02fa40200000")


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    return str(path)


def test_a_history_that_holds(tmp_path: Path) -> None:
    done = runner.invoke(cli.app, ["check", write(tmp_path, GOOD)])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "holds: 1 × kill -9 of the gateway",
        "1 produced · 1 in the table · 0 lost · 0 doubled · 0 altered",
    ]
    done = runner.invoke(cli.app, ["check", "--json", write(tmp_path, GOOD)])
    assert (done.exit_code, json.loads(done.output)["verdict"]) == (0, "holds")


def test_offenders_are_named_by_device_and_sequence(tmp_path: Path) -> None:
    lost = "".join(
        line
        for line in GOOD.splitlines(keepends=True)
        if '"hop":"table","event":"publication"' not in line
    )
    done = runner.invoke(cli.app, ["check", write(tmp_path, lost)])
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "lost: uno-1 sequence 1, wrong from hop spool on; seen at: board",
        "        0.000 s  board  uno-1:adc0=2.5 without a time",
        "1 lost",
        "no publication was seen at hop table",
        "fails: 1 × kill -9 of the gateway",
        "1 produced · 0 in the table · 1 lost · 0 doubled · 0 altered",
    ]


def test_a_fault_that_did_not_happen_is_exit_1(tmp_path: Path) -> None:
    done = runner.invoke(
        cli.app,
        [
            "check",
            write(
                tmp_path,
                "".join(GOOD.splitlines(keepends=True)[:2] + GOOD.splitlines(keepends=True)[3:]),
            ),
        ],
    )
    assert done.exit_code == 1
    assert "planned fault did not happen: gateway/kill-1 (kill -9 of the gateway)" in done.output
    assert "unknown: no faults" in done.output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("years of work\n", "line 1 is not an event"),
        (GOOD.replace('"sequence":1,', ""), "breaks hil/HISTORY.md (KeyError: 'sequence')"),
        (GOOD.replace('"plan"', '"plans"'), "breaks hil/HISTORY.md (KeyError: 'plan')"),
        (GOOD[: len(GOOD) // 2], "the history breaks off"),
        (
            GOOD + '{"t":8,"hop":"mars","event":"landed"}\n',
            "line 9: nothing is known of an event `landed` of hop `mars`",
        ),
        (
            GOOD.replace('"gateway","event":"happened"', '"gateway","event":"hapened"'),
            "line 3: nothing is known of an event `hapened` of hop `gateway`",
        ),
    ],
)
def test_a_history_that_cannot_be_read_proves_nothing(
    tmp_path: Path, text: str, reason: str
) -> None:
    done = runner.invoke(cli.app, ["check", write(tmp_path, text)])
    assert (done.exit_code, done.exception.__class__) == (1, SystemExit)
    assert reason in done.output
    assert "unknown: " in done.output
    told = runner.invoke(cli.app, ["check", "--json", str(tmp_path / "history.jsonl")])
    assert (told.exit_code, json.loads(told.stdout)["verdict"]) == (1, "unknown")


def test_missing_history_proves_nothing(tmp_path: Path) -> None:
    done = runner.invoke(cli.app, ["check", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert "unknown: " in done.output
    assert "cannot read the history" in done.output
    assert "only with --keep" in done.output


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = runner.invoke(cli.app, ["demo", "--dir", str(tmp_path)])
    assert isinstance(done.exception, OncewayError)
    assert "this folder holds something other than an earlier run" in str(done.exception)
    assert (tmp_path / "thesis.txt").exists()


def test_firmware_that_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "HEX", tmp_path / "none.hex")
    done = runner.invoke(cli.app, ["demo", "--dir", str(tmp_path / "run")])
    assert "the firmware is not built. Run `make firmware`" in str(done.exception)
    assert not (tmp_path / "run").exists()


def test_too_few_readings_for_the_faults(tmp_path: Path) -> None:
    done = runner.invoke(cli.app, ["demo", "--readings", "3", "--dir", str(tmp_path / "run")])
    assert "need at least 8 readings, not 3" in str(done.exception)


def test_the_list_names_every_bench_that_ships() -> None:
    done = runner.invoke(cli.app, ["list"])
    assert done.exit_code == 0
    assert all(name in done.output for name in own_benches())
    told = json.loads(runner.invoke(cli.app, ["list", "--json"]).output)
    assert set(told) == set(own_benches())
    assert told["demo"]["readings"] == 400


def test_plain_lines_without_a_terminal() -> None:
    out = io.StringIO()
    with Display("t", ("build", "run"), 4, 2, Console(file=out)) as display, display.stage("build"):
        display.fault("gateway/kill-1 (kill -9 of the gateway): process 7 killed")
    assert [re.sub(r"^\d\d:\d\d  ", "", line) for line in out.getvalue().splitlines()] == [
        "build",
        "  ⚡ gateway/kill-1 (kill -9 of the gateway): process 7 killed",
    ]


def test_a_live_footer_on_a_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with Display("Onceway demo, seed 7", ("build", "run"), 4, 2, console) as display:
        with display.stage("build"):
            pass
        with display.stage("run"):
            display.counts({"sampled": 3, "in the table": 1})
            display.fault("one")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "Onceway demo, seed 7" in shown
    assert "✓ build" in shown
    assert re.search(r"sampled\s+[━╸╺]+\s+3", shown)
    assert re.search(r"planned faults\s+[━╸╺]+\s+1", shown)


def test_a_run_that_fails_is_shrunk_to_the_faults_that_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[int, int]] = []

    def carry_out(name: str, bench: Bench, made: Plan, place: Folder, console: Console) -> Findings:
        """Return the findings of a run, which fail if the plan has the second kill of the
        gateway.
        """
        tried.append((len(made.faults), len(bench.fault)))
        lost = any(fault.id == "gateway/gateway-kill-2" for fault in made.faults)
        events = [
            line
            for line in GOOD.splitlines(keepends=True)
            if not (lost and '"hop":"table","event":"publication"' in line)
        ]
        place.history.write_text("".join(events))
        return find(place.history)

    monkeypatch.setattr(cli, "_carry_out", carry_out)
    monkeypatch.setattr(cli, "_need_firmware", lambda: None)
    done = runner.invoke(cli.app, ["run", "demo", "--shrink", "--dir", str(tmp_path / "run")])
    assert done.exit_code == 1
    assert tried[0] == (15, 8)
    runs = tmp_path.glob("run-shrink-*")
    last = tmp_path / f"run-shrink-{max(int(path.name.rpartition('-')[2]) for path in runs)}"
    assert done.output.splitlines()[-2:] == [
        f"after {len(tried) - 1} runs: the bench fails with only 1 of 15 faults; the last failing"
        f" run is in {last}",
        next(
            line
            for line in done.output.splitlines()
            if line.startswith("  gateway/gateway-kill-2 (kill -9 of the gateway) at ")
        ),
    ]
    assert not (tmp_path / "run-shrink-1").exists() or last.name == "run-shrink-1"


def test_shrinking_is_for_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_need_firmware", lambda: None)
    done = runner.invoke(cli.app, ["run", "demo", "--repeat", "2", "--shrink"])
    assert done.exit_code == 2
    assert "--shrink is for a single run" in done.output


def test_the_glue_beside_ours_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def theirs(self: GlueRun) -> dict[str, Result]:
        write(tmp_path / "runs" / "glue", lost)
        return {"batch": find(tmp_path / "runs" / "glue" / "history.jsonl").result}

    def ours(name: str, bench: Bench, made: Plan, place: Folder, console: Console) -> Findings:
        place.history.write_text(GOOD)
        return find(place.history)

    lost = "".join(
        line
        for line in GOOD.splitlines(keepends=True)
        if '"hop":"table","event":"publication"' not in line
    )
    monkeypatch.setattr(GlueRun, "go", theirs)
    monkeypatch.setattr(GlueRun, "__init__", lambda *_: None)
    monkeypatch.setattr(cli, "_carry_out", ours)
    for _ in range(2):  # into the folder of the previous run
        done = runner.invoke(cli.app, ["glue", "--dir", str(tmp_path / "runs")])
        assert done.exit_code == 0, done.output
        assert re.search(r"glue, batch +│ fails +│ 1 +│ 0 +│ 1 +│ 0 ", done.output)
        assert re.search(r"onceway, table +│ holds +│ 1 +│ 1 +│ 0 +│ 0 ", done.output)
    told = json.loads(
        runner.invoke(cli.app, ["glue", "--json", "--dir", str(tmp_path / "runs")]).stdout
    )
    assert [row["lost"] for row in told.values()] == [1, 0]


def test_a_recorded_link_is_for_a_bench_that_replays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_need_firmware", lambda: None)
    done = runner.invoke(cli.app, ["run", "gateway-kills", "--trace", "bursts"])
    assert "bursts: no bench here replays a recorded link" in str(done.exception)


@pytest.mark.parametrize(
    ("bench", "reason"),
    [
        ("clients", r"leave out \[\[board\]\] and \[\[client\]\]"),
        ("resets", "the glue does not support the fault board-reset"),
    ],
)
def test_the_glue_takes_no_bench_with_what_it_does_not_know(
    tmp_path: Path, bench: str, reason: str
) -> None:
    found = load(bench).model_copy(update={"fault": []} if bench == "clients" else {})
    with pytest.raises(OncewayError, match=reason):
        GlueRun(found, make_plan(found), tmp_path)


def test_the_kinds_of_faults_are_reported_with_all_that_a_bench_may_say_of_them() -> None:
    """The test also covers a kind whose class only changes the default of a key that it shares with
    many kinds.
    """
    done = runner.invoke(cli.app, ["faults", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    parts = ["line", "board", "gateway", "other broker", "client"]
    parts += ["uplink", "landing", "ingest"]
    assert list(told) == parts
    kinds = {name: one for part in told.values() for name, one in part.items()}
    assert kinds.keys() == KINDS.keys()
    for name, one in kinds.items():
        keys = {key["key"] for key in one["keys"]}
        useless = {"kind", "table", "drawn"} | KINDS[name].useless()
        assert keys | {"on"} == KINDS[name].model_fields.keys() - useless | {"on"}
        assert len(one["does"]) > 20
        assert all(key["meaning"] for key in one["keys"])
    assert told["line"]["line-noise"]["keys"][-1] == {
        "key": "rate",
        "unit": "share of the bytes",
        "values": None,
        "needed": True,
        "default": None,
        "meaning": "Share of harmed bytes, in each direction.",
    }
    assert {key["key"] for key in told["line"]["line-bursts"]["keys"]} == {"on", "gap", "length"}
    assert "between" not in {key["key"] for key in told["ingest"]["ingest-kill"]["keys"]}
    assert "on" not in {key["key"] for key in told["ingest"]["ingest-stop"]["keys"]}


def test_kinds_of_faults_are_listed_by_the_harmed_part() -> None:
    done = runner.invoke(cli.app, ["faults"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "LINE"
    at = lines.index(
        "  gateway-pause: gateway paused. SIGSTOP, and SIGCONT after some seconds: a"
        " machine that hangs. Links and sessions may time out in the meantime."
    )
    assert "      seconds = 3.0 (s): Length of the pause." in lines[at : at + 6]
