"""`onceway hil …`: the rig's command line."""

import asyncio
import json
import shutil
import signal
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.commands.options import JsonOption
from gateway.errors import OncewayError
from hil.bench import files as benches
from hil.bench.bench import Bench
from hil.bench.plan import Plan, plan, recorded
from hil.boards.built import check_built
from hil.devices.simulated import HEX
from hil.faults import Fault
from hil.faults.cli import list_faults
from hil.glue.run import GlueRun
from hil.judge.checker import Verdict
from hil.observe.folder import Folder, fresh
from hil.report.compare import rows
from hil.report.files import HTML, JSON, JUNIT, read_json, write
from hil.report.findings import Findings, find
from hil.report.sums import show, side_by_side
from hil.report.text import tell
from hil.run.campaign import Campaign, Item, labels
from hil.run.display import Display
from hil.run.run import STAGES, Run
from hil.run.shrink import part, shrink
from hil.traces.cli import app as trace_app

app = typer.Typer(
    help="Break everything on purpose, and check that each reading arrived exactly once.",
    no_args_is_help=True,
)

app.add_typer(trace_app, name="trace")
app.command("faults")(list_faults)

T = TypeVar("T")
RUNS = Path("build/hil")
INTERRUPTED = 130  # exit code of a program ended by Ctrl-C


Seed = Annotated[int, typer.Option(help="Seed: the same seed plans the same faults.")]
Keep = Annotated[
    bool,
    typer.Option(
        "--keep",
        help="Keep the folder of a run that holds; folders of other runs are always kept.",
    ),
]
Directory = Annotated[
    Path, typer.Option("--dir", help="Folder of the run. An earlier run in it is removed.")
]
Shrink = Annotated[
    bool,
    typer.Option(
        "--shrink", help="If the run fails, find the fewest faults that still make it fail."
    ),
]
GATEWAYS = ("attic", "barn", "cellar")
"""Names of the gateways of a demo."""
Json = JsonOption
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a run, or its history.jsonl.")
]


@app.command()
def demo(
    seed: Seed = 1,
    readings: Annotated[
        int | None,
        typer.Option(
            help=(
                "Minimum number of readings, all boards together. The boards continue beyond it "
                "until each fault has happened."
            ),
            min=1,
            show_default="400, or 80 with --lora",
        ),
    ] = None,
    boards: Annotated[int, typer.Option(help="Number of simulated wired boards.", min=1)] = 2,
    lora: Annotated[
        bool, typer.Option("--lora", help="Add two radio boards, and radio faults.")
    ] = False,
    gateways: Annotated[
        int,
        typer.Option(help="Gateways; boards move between them.", min=1, max=len(GATEWAYS)),
    ] = 1,
    keep: Keep = False,
    folder: Directory = Path("build/demo"),
) -> None:
    """Run the whole chain on this machine, with faults: boards, gateway, uplink and ingest. Then
    print a verdict.

    Example: onceway hil demo --seed 7 --readings 50 --keep
    """
    changes: dict[str, object] = {} if readings is None else {"readings": readings}
    if lora and gateways > 1:
        raise typer.BadParameter("radio boards do not move yet: leave out --lora or --gateways")
    name = "demo-lora" if lora else "demo-site" if gateways > 1 else "demo"
    if gateways > 1:
        changes["gateway"] = [{"name": gateway} for gateway in GATEWAYS[:gateways]]
    bench = benches.load(name, seed=seed, boards=boards, **changes)
    raise typer.Exit(_run("demo", bench, plan(bench), folder, keep))


@app.command("list")
def list_benches(as_json: Json = False) -> None:
    """List the project's own benches.

    Example: onceway hil list
    """
    loaded = {name: benches.load(name) for name in sorted(benches.own_benches())}
    if as_json:
        typer.echo(
            json.dumps(
                {name: bench.model_dump(mode="json") for name, bench in loaded.items()}, indent=1
            )
        )
        return
    table = Table("bench", "boards", "readings", "until", "breaks")
    for name, bench in loaded.items():
        table.add_row(name, str(len(bench.devices)), str(bench.readings), bench.until, bench.title)
    Console().print(table)


@app.command()
def run(
    bench: Annotated[
        list[str] | None,
        typer.Argument(
            help=(
                "Names of benches (`onceway hil list`), or TOML files. None: all of the "
                "project's benches."
            ),
            autocompletion=lambda incomplete: [
                one for one in benches.own_benches() if one.startswith(incomplete)
            ],
        ),
    ] = None,
    core: Annotated[
        bool,
        typer.Option("--core", help="Leave out benches whose claims other benches judge too."),
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the bench's.")] = None,
    readings: Annotated[
        int | None, typer.Option(help="Number of readings, instead of the bench's.", min=1)
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            help=(
                "A recorded link, instead of the one that a bench replays; or a folder of recorded"
                " links, which the runs replay in turn."
            )
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option(help="Number of runs of each bench. Each run has the next seed.", min=1)
    ] = 1,
    jobs: Annotated[int, typer.Option(help="Number of runs at the same time.", min=1)] = 1,
    shrink_it: Shrink = False,
    keep: Keep = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Folder of the run or campaign, instead of one below build/hil."
        ),
    ] = None,
) -> None:
    """Run benches. Exit code 0: every run holds and keeps its limits.

    Several runs are a campaign. After an interruption, the same command continues it.

    Example: onceway hil run gateway-kills power-cuts --repeat 10 --jobs 2
    """
    if bench and core:
        raise typer.BadParameter("--core cannot be combined with names of benches")
    named = labels(
        bench or sorted(benches.own_benches().keys() - (benches.BESIDE if core else set()))
    )
    changes = {
        name: value
        for name, value in {"seed": seed, "readings": readings}.items()
        if value is not None
    }
    first = {name: benches.load(name, **changes) for name in named}
    if trace and not any(one.replays for one in first.values()):
        raise OncewayError(
            "no bench here replays a recorded link",
            trace,
            'A bench replays a link if it has a [[fault]] of kind = "line-trace", or [air] trace',
        )
    traces = _recordings(trace) if trace else [None]
    items = [
        Item(
            name,
            named[name],
            one.seed + number,
            readings,
            traces[number % len(traces)] if one.replays else None,
        )
        for number in range(repeat)
        for name, one in first.items()
    ]
    loaded = [item.load() for item in items]  # all, before any run begins
    _need_firmware()
    if len(items) == 1:
        [item], [only] = items, loaded
        raise typer.Exit(
            _run(item.label, only, plan(only), folder or RUNS / item.name, keep, shrink_it)
        )
    if shrink_it:
        raise typer.BadParameter(
            "--shrink is for a single run; onceway hil replay RUN --shrink shrinks one run of a"
            " campaign"
        )
    campaign = Campaign(items, (folder or RUNS).absolute(), keep, Console(highlight=False))
    try:
        holds = campaign.run(jobs)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(0 if holds else 1)


@app.command()
def glue(
    bench: Annotated[
        str, typer.Argument(help="A bench (TOML file) with faults that the glue can make.")
    ] = "glue",
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the bench's.")] = None,
    folder: Directory = RUNS / "glue",
    as_json: Json = False,
) -> None:
    """Run a common do-it-yourself setup (the glue) and Onceway under the same faults, and compare
    both.

    The glue: a sketch, a serial script, mosquitto, files of JSON lines, Spark's file source. Needs
    Debian's mosquitto. The results of both runs stay in the folder. Exit code 0: Onceway's run
    holds.

    Example: onceway hil glue --seed 7
    """
    loaded = benches.load(bench, **({} if seed is None else {"seed": seed}))
    made = plan(loaded)
    places = [fresh(folder / name) for name in ("glue", "ours")]
    console = Console(highlight=False, stderr=as_json)
    console.print("the glue runs (1 min, or 3 if the bench ends in the table)", soft_wrap=True)
    try:
        theirs = asyncio.run(until_terminated(GlueRun(loaded, made, places[0].root).go()))
    except asyncio.CancelledError:
        console.print("interrupted; everything that was started has ended")
        raise typer.Exit(INTERRUPTED) from None
    ours = _carry_out(bench, loaded, made, places[1], console)
    tell(console, ours)
    results = {
        **{f"glue, {claim}": result for claim, result in theirs.items()},
        f"onceway, {loaded.until}": ours.result,
    }
    found = side_by_side(results)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        show(console, found)
    raise typer.Exit(0 if ours.result.verdict is Verdict.HOLDS else 1)


@app.command()
def replay(
    history: RunArgument,
    shrink_it: Shrink = False,
    keep: Keep = False,
    folder: Directory = RUNS / "replay",
) -> None:
    """Run the bench again with the seed and the faults that are recorded in a history.

    Example: onceway hil replay build/demo
    """
    bench, made = recorded(_history(history))
    benches.refuse_settings(bench)
    raise typer.Exit(_run(f"replay of {history.name}", bench, made, folder, keep, shrink_it))


@app.command("check")
def check_history(history: RunArgument, as_json: Json = False) -> None:
    """Judge a history again. Exit code 0: the verdict is `holds`.

    A history that cannot be read proves nothing: the verdict is unknown. A broken limit of the
    bench is shown, and does not change the exit code here.

    Example: onceway hil check build/demo
    """
    try:
        found = find(_history(history))
    except OncewayError as error:
        if as_json:
            typer.echo(json.dumps({"verdict": Verdict.UNKNOWN, "reasons": [str(error)]}, indent=1))
        else:
            Console(highlight=False).print(
                f"{Verdict.UNKNOWN}: {error}", soft_wrap=True, markup=False
            )
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
    else:
        tell(Console(highlight=False), found)
    raise typer.Exit(0 if found.result.verdict is Verdict.HOLDS else 1)


@app.command()
def report(
    history: RunArgument,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Where to write report.html, report.json and junit.xml; else beside the history.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for programs; write nothing.")
    ] = False,
) -> None:
    """Write the results of a run: a page (HTML), JUnit XML and JSON.

    Example: onceway hil report build/demo
    """
    found = find(file := _history(history))
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
        return
    place = folder or file.parent
    write(place, found)
    Console(highlight=False).print(
        f"{found.headline}; written: {place / HTML}, {JSON} and {JUNIT}", soft_wrap=True
    )


@app.command()
def compare(one: RunArgument, other: RunArgument, as_json: Json = False) -> None:
    """Show the figures of two runs side by side.

    Example: onceway hil compare build/hil/bursts-1 build/hil/bursts-2
    """
    found = list(
        rows(
            *(
                read_json(run / JSON) if (run / JSON).exists() else find(_history(run)).to_json()
                for run in (one, other)
            )
        )
    )
    if as_json:
        typer.echo(
            json.dumps(
                [dict(zip(("name", "one", "other", "change"), row, strict=True)) for row in found],
                indent=1,
            )
        )
        return
    table = Table("", one.name, other.name, "change")
    for row in found:
        table.add_row(*map(escape, row))
    Console().print(table)


def _recordings(trace: str) -> list[str]:
    """Return the recordings to read: the files in the folder `trace`, or the file `trace`."""
    if not Path(trace).is_dir():
        return [trace]
    if not (found := sorted(str(path) for path in Path(trace).iterdir() if path.is_file())):
        raise OncewayError("there is no recording in this folder", trace)
    return found


def _run(
    name: str, bench: Bench, made: Plan, folder: Path, keep: bool, shrink_it: bool = False
) -> int:
    """Run a plan, write the report, and return the exit code."""
    _need_firmware()
    place = fresh(folder)
    console = Console(highlight=False)
    found = _carry_out(name, bench, made, place, console)
    if not found.is_kept or keep:
        console.print(
            f"the run is in {place.root}: history {place.history.name}, report {HTML}",
            soft_wrap=True,
        )
    else:
        shutil.rmtree(place.root)
    tell(console, found)
    if found.result.verdict is Verdict.FAILS and shrink_it:
        _shrink(name, bench, made, place, console)
    return 0 if found.is_kept else 1


def _carry_out(name: str, bench: Bench, made: Plan, place: Folder, console: Console) -> Findings:
    """Run a plan, and write the report, even if the run was interrupted."""
    try:
        with Display(
            f"Onceway {name}, seed {made.seed}", STAGES, bench.readings, made.breaks, console
        ) as display:
            asyncio.run(until_terminated(Run(bench, made, place, display).go()))
        write(place.root, found := find(place.history))
        return found
    except (KeyboardInterrupt, asyncio.CancelledError):
        write(place.root, find(place.history))
        console.print(
            "interrupted; everything that was started has ended. The unfinished run is in"
            f" {place.root}",
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED) from None


async def until_terminated(run: Awaitable[T]) -> T:
    """Await a run. SIGTERM ends the run like Ctrl-C. A second signal is ignored, because it must
    not stop the cleanup that ends the programs.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101

    def on_sigterm() -> None:
        if not task.cancelling():
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_sigterm)
    return await run


def _shrink(name: str, bench: Bench, made: Plan, failed: Folder, console: Console) -> None:
    """Find a part of the faults with which a run fails, and in which every fault is needed. The
    runs get folders next to the failed one. Print these faults and the folder of their run.
    """
    tried = 0
    last = failed.root

    def fails(faults: Sequence[Fault]) -> bool:
        nonlocal tried, last
        tried += 1
        place = fresh(failed.root.with_name(f"{failed.root.name}-shrink-{tried}"))
        smaller, smaller_plan = part(bench, made, faults)
        result = _carry_out(
            f"{name} with {len(faults)} of {len(made.faults)} faults",
            smaller,
            smaller_plan,
            place,
            console,
        ).result
        if result.verdict is Verdict.FAILS:
            last = place.root
            return True
        shutil.rmtree(place.root)
        return False

    needed = shrink(made.faults, fails)
    console.print(
        f"after {tried} runs: the bench fails with only {len(needed)} of {len(made.faults)} faults;"
        f" the last failing run is in {last}",
        soft_wrap=True,
    )
    for fault in needed:
        console.print(
            f"  {fault} at {fault.at} {fault.counter} {fault.detail or ''}", soft_wrap=True
        )


def _need_firmware() -> None:
    if not HEX.exists():
        raise OncewayError("the firmware is not built", str(HEX), "Run `make firmware`")
    check_built("uno/sensor.hex", "uno/sensor-lora.hex")


def _history(run: Path) -> Path:
    return run / "history.jsonl" if run.is_dir() else run
