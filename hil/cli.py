"""`onceway hil …`: the rig's command line."""

import asyncio
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gateway.errors import OncewayError
from hil import bench as benches
from hil.bench import Bench
from hil.checker import Outcome, Publication, Result, Verdict, check
from hil.device import HEX
from hil.display import Display
from hil.history import HOPS, read
from hil.plan import Plan, plan, recorded
from hil.run import STAGES, Run
from hil.site import Folder

app = typer.Typer(help="Break everything on purpose, and check that each reading arrived exactly once.", no_args_is_help=True)

OFFENDERS_SHOWN = 20
INTERRUPTED = 130  # exit code of a program ended by Ctrl-C


Seed = Annotated[int, typer.Option(help="The same seed plans the same faults.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the folder to look at. A run that does not hold always leaves it.")]
Directory = Annotated[Path, typer.Option("--dir", help="Folder of the run; one of an earlier run is replaced.")]


@app.command()
def demo(
    seed: Seed = 1,
    readings: Annotated[int, typer.Option(help="Readings to take, of all boards together.", min=1)] = 400,
    boards: Annotated[int, typer.Option(help="Simulated boards.", min=1)] = 2,
    keep: Keep = False,
    folder: Directory = Path("build/demo"),
) -> None:
    """The main job on this machine, with faults: boards, gateway, uplink and ingest, and a verdict.

    Example: onceway hil demo --seed 7 --readings 50 --keep
    """
    bench = benches.load("demo", seed=seed, readings=readings, boards=boards)
    raise typer.Exit(_run("demo", bench, plan(bench), folder, keep))


@app.command("list")
def list_benches() -> None:
    """The benches that come with the project."""
    table = Table("bench", "boards", "readings", "until", "what it breaks")
    for name in sorted(benches.shipped()):
        bench = benches.load(name)
        table.add_row(name, str(bench.boards), str(bench.readings), bench.until, bench.title)
    Console().print(table)


@app.command()
def run(
    bench: Annotated[str, typer.Argument(help="A bench that comes with the project, or a TOML file.")],
    seed: Annotated[int | None, typer.Option(help="Instead of the bench's.")] = None,
    readings: Annotated[int | None, typer.Option(help="Instead of the bench's.", min=1)] = None,
    repeat: Annotated[int, typer.Option(help="So many runs, each with the next seed.", min=1)] = 1,
    keep: Keep = False,
    folder: Directory = Path("build/hil"),
) -> None:
    """Run a bench. Exit code 0 if every run holds.

    Example: onceway hil run gateway-kills --repeat 10
    """
    changes = {name: value for name, value in {"seed": seed, "readings": readings}.items() if value is not None}
    first = benches.load(bench, **changes)
    codes = []
    for number in range(repeat):
        loaded = first.model_copy(update={"seed": first.seed + number})
        codes.append(_run(Path(bench).stem, loaded, plan(loaded), folder / f"{Path(bench).stem}-{loaded.seed}", keep))
    raise typer.Exit(max(codes))


@app.command()
def replay(
    history: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or its history.jsonl.")],
    keep: Keep = False,
    folder: Directory = Path("build/hil/replay"),
) -> None:
    """The same bench, seed and faults again, whatever the version of the bench's file is by now.

    Example: onceway hil replay build/demo
    """
    bench, made = recorded(history / "history.jsonl" if history.is_dir() else history)
    raise typer.Exit(_run(f"replay of {history.name}", bench, made, folder, keep))


def _run(name: str, bench: Bench, made: Plan, folder: Path, keep: bool) -> int:
    """Run, report, and return the exit code."""
    if not HEX.exists():
        raise OncewayError("the firmware is not built", str(HEX), "Run `make firmware`")
    place = Folder(_fresh(folder))
    console = Console(highlight=False)
    try:
        with Display(f"Onceway {name}, seed {made.seed}", STAGES, bench.readings, len(made.faults), console) as display:
            result = asyncio.run(Run(bench, made, place, display).go())
    except KeyboardInterrupt:
        console.print(f"interrupted; everything that was started has ended. What there is of the run: {place.root}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    if result.verdict is not Verdict.HOLDS or keep:
        console.print(f"the run is in {place.root}, its history in {place.history.name} there", soft_wrap=True)
    else:
        shutil.rmtree(place.root)
    report(console, result)
    return 0 if result.verdict is Verdict.HOLDS else 1


@app.command("check")
def check_history(history: Annotated[Path, typer.Argument(help="history.jsonl of a run.")]) -> None:
    """Judge a history again.

    Example: onceway hil check build/demo/history.jsonl
    """
    result = check(read(history))
    report(Console(highlight=False), result)
    raise typer.Exit(0 if result.verdict is Verdict.HOLDS else 1)


def report(console: Console, result: Result) -> None:
    """The verdict, its reasons, the offending publications; the summary comes last."""
    wrong = [publication for publication in result.publications if publication.outcome is not Outcome.OK]
    for publication in wrong[:OFFENDERS_SHOWN]:
        console.print(_offender(publication), soft_wrap=True)
    if len(wrong) > OFFENDERS_SHOWN:
        console.print(f"… and {len(wrong) - OFFENDERS_SHOWN} more")
    for reason in result.reasons:
        console.print(reason, soft_wrap=True)
    happened = ", ".join(f"{count} × {kind}" for kind, count in sorted(result.faults.items()))
    statuses = f"; {result.statuses} status messages of the boards, judged alike" if result.statuses else ""
    console.print(f"{result.verdict}: {happened or 'no faults'}{statuses}", soft_wrap=True)
    console.print(result.summary(), style="bold green" if result.verdict is Verdict.HOLDS else "bold red", soft_wrap=True)


def _offender(publication: Publication) -> str:
    key, way = publication.key, publication.way
    seen = ", ".join(f"{hop} {len(way[hop])}×" if len(way[hop]) > 1 else hop for hop in HOPS if way[hop])
    return f"{publication.outcome}: {key.device} sequence {key.sequence}, wrong from {publication.hop} on; seen at: {seen}"


def _fresh(folder: Path) -> Path:
    """An empty folder; what an earlier run left there is removed, and nothing else."""
    folder = folder.absolute()
    try:
        if folder.exists() and any(folder.iterdir()):
            if not (folder / "history.jsonl").is_file():
                raise OncewayError("this folder holds something else than an earlier run", str(folder), "Name another one with --dir")
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OncewayError(f"cannot make the folder of the run ({error.strerror})", str(folder)) from error
    return folder
