"""Many runs: each in its own process, some in parallel, with a line for each and sums at the end.
In: benches and seeds. Out: a folder with a report per run, `campaign.json` and `.md`, and
`junit.xml`. A run with the verdict `holds` leaves only its report. A campaign that was interrupted,
or in which a run did not start, continues with the missing runs when it is begun again in the same
folder. An existing run counts if it had exactly the same bench, readings and recorded link.
"""

import asyncio
import json
import os
import platform
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from gateway import __version__
from gateway.errors import OncewayError
from hil.bench import files as benches
from hil.bench.bench import Bench
from hil.judge.checker import Verdict
from hil.judge.doubts import BREAKS_OFF
from hil.observe.folder import fresh
from hil.programs.process import descendants
from hil.programs.site import onceway
from hil.report.files import HTML, JSON, JUNIT, merge_junit, read_json
from hil.report.sums import Sums, coverage_markdown, hits, markdown, show, sums

KEPT = (HTML, JSON, JUNIT)
SUMS = "campaign.json"
TABLE = "campaign.md"
END_WITHIN = 60.0  # s until an interrupted run must have written its report


@dataclass(frozen=True, slots=True)
class Item:
    """A bench of a campaign. bench: a name or a path. label: name of its runs. readings, trace:
    values in place of the bench's own; None keeps the bench's own.
    """

    bench: str
    label: str
    seed: int
    readings: int | None = None
    trace: str | None = None

    def load(self) -> Bench:
        bench = benches.load(
            self.bench, seed=self.seed, **({"readings": self.readings} if self.readings else {})
        )
        return benches.replaying(bench, self.trace) if self.trace else bench

    @property
    def name(self) -> str:
        return f"{self.label}-{self.seed}"

    @property
    def row(self) -> str:
        """Return the label of the table row in which the campaign adds up this item's runs."""
        return self.label + (f" on {Path(self.trace).name.partition('.')[0]}" if self.trace else "")


def labels(names: Sequence[str]) -> dict[str, str]:
    """Return the label of each bench's runs: its file, and as many folders above it as make the
    label unique.
    """
    bundled = benches.own_benches()
    paths = {name: (name,) if name in bundled else Path(name).absolute().parts for name in names}
    labelled = {name: _label(parts, 1) for name, parts in paths.items()}
    for depth in range(2, max(map(len, paths.values()), default=0) + 1):
        labelled = {
            name: label if [*labelled.values()].count(label) == 1 else _label(paths[name], depth)
            for name, label in labelled.items()
        }
    return labelled


def _label(parts: Sequence[str], depth: int) -> str:
    return "-".join(parts[-depth:]).removesuffix(".toml")


class Campaign:
    """A campaign. keep: whether to keep all files of a run with the verdict `holds`."""

    def __init__(self, items: Sequence[Item], folder: Path, keep: bool, console: Console) -> None:
        self._items = items
        self._folder = folder
        self._keep = keep
        self._console = console
        self.reports: dict[str, dict[str, Any]] = {}

    def run(self, jobs: int) -> bool:
        """Run the campaign. jobs: number of runs at a time. Return whether every run *holds* and
        has kept its limits. On Ctrl-C, started runs report; then KeyboardInterrupt is raised.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._finished():
            for item in self._items:
                with suppress(OncewayError):  # reported when the run begins
                    fresh(self._folder / item.name)
        (self._folder / SUMS).write_text(json.dumps({"finished": False}) + "\n")
        done = False
        try:
            asyncio.run(self._all(jobs))
            done = len(self.reports) == len(self._items)
        finally:
            self._sum_up(done)
        return len(self.reports) == len(self._items) and all(
            _is_kept(one) for one in self.reports.values()
        )

    def _finished(self) -> bool:
        """Whether an earlier campaign in this folder was finished. If so, its runs do not count for
        this campaign.
        """
        return (self._folder / SUMS).exists() and bool(
            read_json(self._folder / SUMS).get("finished")
        )

    async def _all(self, jobs: int) -> None:
        """Run all items. The first job begins with the runs that start Spark, which need a core.
        The other jobs begin with the runs with a radio, which are long and mostly wait.
        """
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
        )
        remaining = deque(sorted(self._items, key=_turn))
        with Progress(*columns, TimeRemainingColumn(), console=self._console) as progress:
            task = progress.add_task("runs", total=len(self._items))

            async def work(take: Callable[[], Item]) -> None:
                while remaining:
                    await self._one(take())
                    progress.advance(task)

            async with asyncio.TaskGroup() as workers:
                for number in range(jobs):
                    workers.create_task(work(remaining.pop if number else remaining.popleft))

    async def _one(self, item: Item) -> None:
        place = self._folder / item.name
        report = _report(place)
        if report is None or not self._counts(item, report):
            try:
                fresh(place)
            except OncewayError as error:
                self._say("error", item.name, error.what)
                return
            report = await self._start(item, place)
        if report:
            self._say(_word(report), item.name, _report_line(report))
            self.reports[item.name] = report
            if _is_kept(report) and not self._keep:
                _delete_all_but_report(place)
        else:
            log = _log(place).read_text(errors="replace").strip().splitlines()
            text = next(
                (line.removeprefix("error: ") for line in log if line.startswith("error:")),
                f"no report; see {_log(place)}",
            )
            self._say("error", item.name, text)

    def _counts(self, item: Item, report: dict[str, Any]) -> bool:
        """Return whether an existing run is complete and of the right bench. If not, print why."""
        if BREAKS_OFF in report["reasons"]:
            self._say("again", item.name, "it was interrupted")
        elif report.get("bench") != item.load().model_dump(mode="json"):
            self._say(
                "again",
                item.name,
                "the folder has a run of another bench, with other readings or another recorded"
                " link",
            )
        else:
            return True
        return False

    def _say(self, word: str, name: str, text: str) -> None:
        self._console.print(f"{word:7}  {name}: {text}", soft_wrap=True, markup=False)

    async def _start(self, item: Item, place: Path) -> dict[str, Any] | None:
        """Run an item. Return its report; None if the run left none."""
        argv = [
            onceway(),
            "hil",
            "run",
            item.bench,
            "--seed",
            str(item.seed),
            "--keep",
            "--dir",
            str(place),
        ]
        argv += ["--readings", str(item.readings)] if item.readings else []
        argv += ["--trace", item.trace] if item.trace else []
        with _log(place).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_WITHIN)
            raise
        finally:
            if process.returncode is None:  # kill it, and the programs that it started
                for pid in (*descendants(process.pid), process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        return _report(place)

    def _sum_up(self, finished: bool) -> None:
        found = sums(
            (item.row, self.reports[item.name]) for item in self._items if item.name in self.reports
        )
        show(self._console, found)
        for name, report in self.reports.items():
            if not _is_kept(report):
                self._say(
                    _word(report), name, next(iter([*report["reasons"], *report["exceeded"]]))
                )
        data = {
            "finished": finished,
            "sums": found,
            "coverage": hits(self.reports.values()),
            "runs": {name: report["verdict"] for name, report in self.reports.items()},
        }
        (self._folder / SUMS).write_text(json.dumps(data, indent=1) + "\n")
        (self._folder / TABLE).write_text(self._sums_text(found))
        (self._folder / JUNIT).write_text(
            merge_junit(self._folder / item.name / JUNIT for item in self._items)
        )

    def _sums_text(self, found: Sums) -> str:
        seeds = sorted({item.seed for item in self._items})
        ran = [
            f"Onceway {__version__}{_commit()}",
            f"seeds {seeds[0]} to {seeds[-1]}",
            f"{os.cpu_count()} cores ({platform.machine()})",
        ]
        struck = coverage_markdown(hits(self.reports.values()))
        return "\n".join([markdown(found), *([struck] if struck else []), f"{', '.join(ran)}.\n"])


def _commit() -> str:
    """Return " at commit COMMIT" of the rig's repository, or ""."""
    git = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty",
        "--exclude=*",
    ]
    with suppress(OSError):
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
        return f" at commit {commit}" if commit else ""
    return ""


def _report(place: Path) -> dict[str, Any] | None:
    """Return the report of an existing run; None if the report is missing or damaged."""
    try:
        return read_json(place / JSON)
    except OncewayError:
        return None


def _word(report: dict[str, Any]) -> str:
    """Return the verdict, or `limit` if the verdict is *holds* but the run exceeded a limit."""
    holds = report["verdict"] == Verdict.HOLDS
    return "limit" if holds and report["exceeded"] else str(report["verdict"])


def _turn(item: Item) -> int:
    bench = item.load()
    return 0 if bench.until == "table" else 2 if bench.air else 1


def _log(place: Path) -> Path:
    return place.with_name(place.name + ".log")


def _is_kept(report: dict[str, Any]) -> bool:
    return report["verdict"] == Verdict.HOLDS and not report["exceeded"]


def _report_line(report: dict[str, Any]) -> str:
    readings, outcomes = report["readings"], report["outcomes"]
    wrong = ", ".join(
        f"{count} {name}" for name, count in outcomes.items() if count and name != "ok"
    )
    reasons = "; ".join([*report["reasons"], *report["exceeded"]])
    faults = sum(report["faults"]["happened"].values())
    return (
        f"{readings['produced']} produced, {readings['arrived']} arrived, {faults} faults"
        + "".join(f" · {text}" for text in (wrong, reasons) if text)
    )


def _delete_all_but_report(place: Path) -> None:
    for path in place.iterdir():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
