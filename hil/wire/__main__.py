"""`python -m hil.wire`: one wire. SIGTERM ends it."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.errors import OncewayError
from hil.formats.keys import UNO_PAGE
from hil.traces import LONGEST_OUTAGE
from hil.traces.recording import load
from hil.wire.bursts import Bursts
from hil.wire.fading import Fading
from hil.wire.line import Line
from hil.wire.noise import Noise, Weather
from hil.wire.wire import Wire

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    board: Annotated[Path, typer.Option(help="The board's port.")],
    port: Annotated[Path, typer.Option(help="Path of the port for the gateway (a symbolic link).")],
    seed: Annotated[str, typer.Option(help="Seed: the same seed harms the same bytes.")] = "1",
    noise: Annotated[
        list[float] | None,
        typer.Option(help="Share of bytes harmed in each direction; can be repeated.", max=0.5),
    ] = None,
    noise_table: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of the bench's table that describes a --noise. Give one for each --noise,"
            " in the same order."
        ),
    ] = None,
    burst_gap: Annotated[
        float,
        typer.Option(help="Mean number of bytes from one burst to the next; 0: no bursts.", min=0),
    ] = 0.0,
    burst_length: Annotated[
        float, typer.Option(help="Mean number of bytes of a burst.", min=1)
    ] = 1.0,
    trace: Annotated[
        str, typer.Option(help="A recorded link to replay: a file, or the name of a bundled one.")
    ] = "",
    pace: Annotated[
        float,
        typer.Option(
            help="Recorded seconds replayed per second; 0: each frame uses up one recorded frame.",
            min=0,
        ),
    ] = 0.0,
    longest_outage: Annotated[
        float,
        typer.Option(
            help="Length to which longer recorded outages are shortened: in frames, or in seconds"
            " if --pace is not 0.",
            min=1,
        ),
    ] = LONGEST_OUTAGE,
    baud: Annotated[int, typer.Option(help="Bits per second on the line.", min=300)] = 115200,
    real: Annotated[
        bool,
        typer.Option("--real", help="The board is real: wait while its port is away."),
    ] = False,
    flash: Annotated[
        Path | None, typer.Option(help="The board's flash image, which contains its key.")
    ] = None,
    page: Annotated[int, typer.Option(help="Address of the identity page.")] = UNO_PAGE,
) -> None:
    """Carry bytes between a board's port and the gateway's port, and harm some of them."""
    recorded = load(trace) if trace else None

    def line(direction: str) -> Line:
        weather: list[Weather] = []
        if recorded:
            weather.append(Fading(recorded, pace or None, f"{seed}/{direction}", longest_outage))
        if burst_gap:
            weather.append(Bursts(burst_gap, burst_length, f"{seed}/{direction}"))
        for number, rate in enumerate(noise or [], 1):
            name = f"{seed}/{direction}" + (f"/{number}" if number > 1 else "")
            table = noise_table[number - 1] if noise_table else number
            weather.append(Noise(rate, name, table))
        return Line(direction, baud, weather)

    wire = Wire(
        board,
        port,
        line("up"),
        line("down"),
        sys.stdin.fileno(),
        baud=baud,
        real=real,
        flash=flash,
        page=page,
    )
    signal.signal(signal.SIGTERM, wire.stop)
    # Ctrl-C in the terminal is for the rig, which ends this process by SIGTERM
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wire.run()


if __name__ == "__main__":
    try:
        app()
    except OncewayError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
