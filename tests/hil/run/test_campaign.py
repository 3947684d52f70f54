"""Campaigns: every run is reported, sums are right, finished runs are not run again, and one failed
run fails the campaign.
"""

import asyncio
import io
import json
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from gateway import __version__
from hil.bench.files import load
from hil.observe.counters import wait_until
from hil.run import campaign
from hil.run.campaign import Campaign, Item, labels
from tests.hil.programs.test_process import alive

PROGRAM = """#!PYTHON
import json, pathlib, sys
seed = int(sys.argv[sys.argv.index("--seed") + 1])
folder = pathlib.Path(sys.argv[sys.argv.index("--dir") + 1])
with open("STARTED", "a") as started:
    print(seed, file=started)
if seed == 13:
    sys.exit("error: bad luck")
folder.mkdir(exist_ok=True)
(folder / "history.jsonl").write_text("much")
(folder / "logs").mkdir(exist_ok=True)
lost = int(seed == 7)
report = {
    "verdict": "fails" if lost else "holds",
    "reasons": ["1 lost"] * lost,
    "exceeded": ["delay_p99_s is 9.0, but must not exceed 5"] * (seed == 9),
    "readings": {"produced": 10, "arrived": 10 - lost},
    "outcomes": {"ok": 10 - lost, "lost": lost, "duplicate": 0, "altered": 0},
    "faults": {"happened": {"power cut": seed}},
    "delay_s": {"p100": seed / 2},
    "bench": json.loads(pathlib.Path("BENCH").read_text()) | {"seed": seed},
}
if "--readings" in sys.argv:
    report["bench"]["readings"] = int(sys.argv[sys.argv.index("--readings") + 1])
(folder / "report.json").write_text(json.dumps(report))
(folder / "junit.xml").write_text("<testsuites><testsuite/></testsuites>")
"""
"""A replacement of `onceway`: a run of seed 7 fails, one of seed 13 does not start."""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a file that gets the seed of each started run, one a line."""
    program = tmp_path / "onceway"
    (tmp_path / "bench.json").write_text(json.dumps(load("demo").model_dump(mode="json")))
    text = PROGRAM.replace("PYTHON", sys.executable).replace("STARTED", str(tmp_path / "started"))
    program.write_text(text.replace("BENCH", str(tmp_path / "bench.json")))
    program.chmod(0o755)
    monkeypatch.setattr(campaign, "onceway", lambda: str(program))
    return tmp_path / "started"


def run(
    folder: Path,
    *seeds: int,
    readings: int | None = None,
    keep: bool = False,
    trace: str | None = None,
) -> tuple[bool, str]:
    out = io.StringIO()
    made = Campaign(
        [Item("demo", "demo", seed, readings, trace) for seed in seeds],
        folder,
        keep,
        Console(file=out, width=80),
    )
    return made.run(jobs=2), out.getvalue()


def test_runs_that_hold_leave_their_reports(tmp_path: Path, started: Path) -> None:
    holds, out = run(tmp_path / "all", 1, 2, 3)
    assert holds
    assert "holds    demo-2: 10 produced, 10 arrived, 2 faults" in out
    assert "gateway cuts" in out  # nothing is cut off
    assert "worst delay (s)" in out
    [sums] = [line for line in out.splitlines() if re.match("│ all ", line)]
    assert re.findall(r"[\d.]+", sums) == ["3", "3", "6", "0", "6", "30", "0", "0", "0", "0", "1.5"]
    assert sorted(path.name for path in (tmp_path / "all" / "demo-1").iterdir()) == [
        "junit.xml",
        "report.json",
    ]
    assert (tmp_path / "all" / "junit.xml").read_text().count("<testsuite ") == 3
    assert run(tmp_path / "all", 1, 2, 3)[0]
    assert len(started.read_text().split()) == 6  # a campaign that has ended begins again


def test_failing_run_fails_the_campaign_and_keeps_its_files(tmp_path: Path, started: Path) -> None:
    holds, out = run(tmp_path / "all", 7, 8)
    assert not holds
    assert "fails    demo-7: 10 produced, 9 arrived, 7 faults · 1 lost" in out
    assert out.splitlines()[-1] == "fails    demo-7: 1 lost"
    assert (tmp_path / "all" / "demo-7" / "history.jsonl").exists()


def test_sums_are_reported_by_recorded_link_and_say_how_to_repeat_them(
    tmp_path: Path, started: Path
) -> None:
    run(tmp_path / "all", 1, 7, trace="recordings/valley.jsonl.gz")
    told = (tmp_path / "all" / "campaign.md").read_text()
    assert "| demo on valley | 2 | 1 | 8 | 0 | 8 | 20 | 1 | 0 | 0 | 0 | 3.5 |\n" in told
    assert re.search(
        rf"\nOnceway {re.escape(__version__)}( at commit \S+)?, seeds 1 to 7, \d+ cores", told
    )


def test_run_beyond_a_limit_fails_the_campaign(tmp_path: Path, started: Path) -> None:
    holds, out = run(tmp_path / "all", 9)
    assert not holds
    assert (
        "limit    demo-9: 10 produced, 10 arrived, 9 faults · delay_p99_s is 9.0, but must not"
        " exceed 5" in out
    )


def test_run_that_does_not_start_is_reported_and_tried_again_next_time(
    tmp_path: Path, started: Path
) -> None:
    for _ in range(2):
        holds, out = run(tmp_path / "all", 12, 13)
        assert not holds
        assert "error    demo-13: bad luck" in out
    assert sorted(started.read_text().split()) == ["12", "13", "13"]


def interrupt(campaign: Path) -> None:
    sums = campaign / "campaign.json"
    sums.write_text(json.dumps({**json.loads(sums.read_text()), "finished": False}))


def test_report_of_another_bench_does_not_count(tmp_path: Path, started: Path) -> None:
    run(tmp_path / "all", 1, 2)
    interrupt(tmp_path / "all")
    _, out = run(tmp_path / "all", 1, 2, 3, readings=80)
    assert (
        "again    demo-1: the folder has a run of another bench, with other readings or another"
        " recorded link" in out
    )
    assert sorted(started.read_text().split()) == ["1", "1", "2", "2", "3"]
    interrupt(tmp_path / "all")
    assert "again" not in run(tmp_path / "all", 1, 2, 3, readings=80)[1]


def test_results_of_an_ended_campaign_do_not_count_for_a_new_one(
    tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "all", 1, 2)

    async def breaks_off(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(Campaign, "_one", breaks_off)
        with pytest.raises(ExceptionGroup):
            run(tmp_path / "all", 1, 2)
    assert run(tmp_path / "all", 1, 2)[0]
    assert sorted(started.read_text().split()) == ["1", "1", "2", "2"]


def test_a_run_that_fails_counts_when_its_campaign_goes_on(tmp_path: Path, started: Path) -> None:
    run(tmp_path / "all", 7)
    interrupt(tmp_path / "all")
    assert not run(tmp_path / "all", 7, 8)[0]
    assert started.read_text().split() == ["7", "8"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, started: Path) -> None:
    (tmp_path / "all" / "demo-1").mkdir(parents=True)
    (tmp_path / "all" / "demo-1" / "thesis.txt").write_text("years of work")
    holds, out = run(tmp_path / "all", 1, 2)
    assert not holds
    assert "error    demo-1: this folder holds something other than an earlier run" in out
    assert "holds    demo-2" in out
    assert (tmp_path / "all" / "demo-1" / "thesis.txt").exists()


def test_spark_and_what_mostly_waits_run_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    async def one(_: Campaign, item: Item) -> None:
        begun.append(item.bench)
        await asyncio.sleep(0)

    monkeypatch.setattr(Campaign, "_one", one)
    items = [Item(bench, bench, 1) for bench in ("resets", "bursts", "demo", "glue", "pauses")]
    Campaign(items, tmp_path / "all", False, Console(file=io.StringIO())).run(jobs=2)
    assert begun[:4] == ["demo", "pauses", "glue", "bursts"]
    assert sorted(begun) == ["bursts", "demo", "glue", "pauses", "resets"]


def test_benches_have_names_of_their_own() -> None:
    assert labels(["demo", "resets"]) == {"demo": "demo", "resets": "resets"}
    assert labels(["a/lines.v2.toml", "other.toml"]) == {
        "a/lines.v2.toml": "lines.v2",
        "other.toml": "other",
    }
    assert labels(["/a/x/lines.toml", "/b/x/lines.toml"]) == {
        "/a/x/lines.toml": "a-x-lines",
        "/b/x/lines.toml": "b-x-lines",
    }
    assert labels(["demo", "/mine/demo.toml"]) == {"demo": "demo", "/mine/demo.toml": "mine-demo"}


def test_output_of_a_run_is_beside_its_folder(tmp_path: Path, started: Path) -> None:
    for label in ("lines.v1", "lines.v2"):
        made = Campaign(
            [Item("demo", label, 1)], tmp_path / "all", False, Console(file=io.StringIO())
        )
        made.run(1)
    assert {"lines.v1-1.log", "lines.v2-1.log"} <= {
        path.name for path in (tmp_path / "all").iterdir()
    }


HANGS = """#!/bin/sh
trap '' INT
sleep 600 &
echo $$ $! > PIDS
mkfifo PIDS.written
wait
"""


def test_a_run_that_does_not_end_when_it_is_asked_takes_its_programs_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, pids = tmp_path / "onceway", tmp_path / "pids"
    program.write_text(HANGS.replace("PIDS", str(pids)))
    program.chmod(0o755)
    monkeypatch.setattr(campaign, "onceway", lambda: str(program))
    monkeypatch.setattr(campaign, "END_WITHIN", 0.1)
    made = Campaign([Item("demo", "demo", 1)], tmp_path / "all", False, Console(file=io.StringIO()))

    async def interrupt() -> None:
        running = asyncio.create_task(made._all(1))
        await wait_until((tmp_path / "pids.written").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for pid in map(int, pids.read_text().split()):
            await wait_until(lambda pid=pid: not alive(pid))  # type: ignore[misc]

    asyncio.run(asyncio.wait_for(interrupt(), 30))


def test_interrupted_campaign_continues_with_the_missing_runs(
    tmp_path: Path, started: Path
) -> None:
    run(tmp_path / "all", 1, 2)
    interrupt(tmp_path / "all")
    interrupted = tmp_path / "all" / "demo-2" / "report.json"
    interrupted.write_text(
        json.dumps(
            {
                **json.loads(interrupted.read_text()),
                "verdict": "unknown",
                "reasons": ["the history breaks off"],
            }
        )
    )
    holds, out = run(tmp_path / "all", 1, 2, 3)
    assert holds
    assert re.search(r"│ all +│ 3 ", out)
    assert sorted(started.read_text().split()) == ["1", "2", "2", "3"]
