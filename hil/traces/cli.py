"""`onceway hil trace …`: recorded links."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gateway.commands.options import JsonOption
from gateway.errors import OncewayError
from hil.traces.plot import plot
from hil.traces.recording import load, place
from hil.traces.trace import Trace

app = typer.Typer(
    help=(
        "Recorded links: read, describe and draw them; a bench replays one with a fault of kind"
        " line-trace."
    ),
    no_args_is_help=True,
)

OUTAGES_SHOWN = 5

Source = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help=(
            "A recording (JSON Lines or CSV, also .gz), or the name of one of the project's traces."
        ),
    ),
]


@app.command("import")
def import_(
    recording: Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the trace.")],
    as_json: JsonOption = False,
) -> None:
    """Read a recording of frames that arrived, and write it in the rig's own form.

    Each line is a frame that arrived. It has a counter and a time, and rssi and snr if known.

    The counter is called sequence, seq, fcnt, fcntup or counter; its gaps are the lost frames.

    The time is called t, time, timestamp or received, in seconds or ISO 8601.

    With a column called delivered, a line that has false, no or 0 there is a frame that did not
    arrive.

    Example: onceway hil trace import frames.csv -o frames.jsonl
    """
    trace = load(recording)
    _spare(recording, out)
    trace.save(out)
    if as_json:
        typer.echo(json.dumps(describe(trace) | {"written": str(out)}))
        return
    Console(highlight=False).print(_line(trace), soft_wrap=True)


@app.command()
def show(trace: Source, as_json: JsonOption = False) -> None:
    """Show loss, bursts and outages of a recorded link.

    Example: onceway hil trace show bursts
    """
    found = load(trace)
    if as_json:
        typer.echo(json.dumps(describe(found), indent=1))
        return
    console = Console(highlight=False)
    console.print(_line(found), soft_wrap=True)
    bursts = Table("lost in a row", "times")
    for length, count in sorted(found.bursts().items()):
        bursts.add_row(str(length), str(count))
    if bursts.row_count:
        console.print(bursts)
    outages = sorted(found.outages(), key=lambda outage: -outage.seconds)
    console.print(
        f"{len(outages)} outages (silence of more than 5 intervals of {found.interval:.4g} s)",
        soft_wrap=True,
    )
    for outage in outages[:OUTAGES_SHOWN]:
        console.print(
            f"  {outage.seconds:.0f} s from second {outage.t:.0f} on, {outage.lost} frames lost",
            soft_wrap=True,
        )


@app.command("plot")
def plot_(
    trace: Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The SVG file to write.")] = Path(
        "trace.svg"
    ),
    as_json: JsonOption = False,
) -> None:
    """Draw loss, outages, signal strength and bursts as an SVG.

    Example: onceway hil trace plot bursts -o bursts.svg
    """
    drawing = plot(load(trace))
    _spare(trace, out)
    try:
        out.write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise OncewayError(f"cannot write the drawing ({error.strerror})", str(out)) from error
    if as_json:
        typer.echo(json.dumps({"written": str(out)}))
        return
    Console(highlight=False).print(f"written: {out}", soft_wrap=True, markup=False)


def describe(trace: Trace) -> dict[str, Any]:
    """Return the content of `show --json`. Times are in seconds."""
    bursts = trace.bursts()
    return {
        "name": trace.name,
        "seconds": trace.seconds,
        "interval": trace.interval,
        "sent": trace.sent,
        "arrived": len(trace.frames),
        "lost": trace.lost,
        "repeats": trace.repeats,
        "resets": trace.resets,
        "mean_burst": trace.lost / bursts.total() if bursts else 0.0,
        "bursts": {str(length): count for length, count in sorted(bursts.items())},
        "outages": [
            {"t": outage.t, "seconds": outage.seconds, "lost": outage.lost}
            for outage in trace.outages()
        ],
    }


def _spare(recording: str, out: Path) -> None:
    """Raise OncewayError if writing `out` would destroy the recording, which cannot be repeated."""
    if out.exists() and out.samefile(place(recording)):
        raise OncewayError("--out is the recording itself", str(out), "Name another file")


def _line(trace: Trace) -> str:
    found = describe(trace)
    share = trace.lost / trace.sent if trace.sent else 0.0
    parts = [f"{trace.sent} frames in {trace.seconds:.0f} s", f"{trace.lost} lost ({share:.2%})"]
    parts += [
        f"bursts of {found['mean_burst']:.1f} frames on average, {max(trace.bursts(), default=0)}"
        " at most"
    ]
    parts += [f"{trace.repeats} copies", f"{trace.resets} restarts of the frame counter"]
    return f"{trace.name}: " + " · ".join(parts)
