"""`onceway spool land DIRECTORY`: what the store of a dead gateway still holds goes to the landing
place.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.config import load
from gateway.errors import OncewayError
from gateway.options import ConfigOption, JsonOption, config_file
from gateway.uplink import credentials
from gateway.uplink.cli import LandingOption, landing_settings
from gateway.uplink.landing import open_landing, without_password

app = typer.Typer(
    no_args_is_help=True,
    help="The spool of a gateway that died: bring what it still holds to the landing place.",
)


@app.command()
def land(
    directory: Annotated[
        Path,
        typer.Argument(help="The dead gateway's data directory, for instance on its card."),
    ],
    landing: LandingOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Land what a dead gateway has acknowledged and not landed, as its own uplink would have.

    The directory is only read, so a card may be mounted read-only. It can be done twice, and the
    gateway may come back later: each reading is in the table once. The landing place is the
    gateway's own; where it is not given, it is the one in this machine's configuration.

    Example: onceway spool land /mnt/card/var/lib/onceway --landing s3://bucket/landing
    """
    from gateway.uplink.rescue import rescue

    file = config_file(config)
    settings = landing_settings(load(file).uplink if file else None, landing)
    credentials.take(file)
    if settings is None:
        raise OncewayError(
            "no landing place is named",
            str(file) if file else None,
            "Name it with --landing URL, or a gateway's configuration with --config FILE",
        )
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("landing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("readings"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=as_json or not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=None)
        done = rescue(
            directory,
            settings,
            lambda: open_landing(settings.landing, settings.options, settings.shared),
            lambda now, total: bar.update(task, completed=now, total=total),
        )
    place = without_password(settings.landing)
    if as_json:
        typer.echo(json.dumps({**asdict(done), "landing": place}))
        return
    typer.echo(
        f"{done.gateway}, epoch {done.epoch}: {done.readings:,} readings landed now in"
        f" {done.batches:,} batches, {done.there:,} were there already."
        f"{f' {done.copies:,} of them are copies for other gateways.' if done.copies else ''}"
        f" {place} has all that this store held for it"
    )
