"""`onceway spool …`: count the rows of a spool, land those of a dead gateway, or discard them."""

import json
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    config_file,
    default_file,
    folder_of,
)
from gateway.config import load
from gateway.errors import UsageError
from gateway.system.amounts import amount, are, wait
from gateway.system.lock import ProcessLock
from gateway.uplink import credentials
from gateway.uplink.cli import LandingOption, landing_settings
from gateway.uplink.discard import Waiting, waiting
from gateway.uplink.discard import discard as give_up
from gateway.uplink.landing import open_landing, without_password
from gateway.uplink.spool import Spool

app = typer.Typer(
    no_args_is_help=True,
    help="The spool of a gateway: count its messages, land those of a dead gateway, discard them.",
)


@app.command()
def land(
    directory: Annotated[
        Path,
        typer.Argument(help="The dead gateway's data directory, for instance on its card."),
    ],
    landing: LandingOption = None,
    new_place: Annotated[
        bool,
        typer.Option("--new-place", help="Accept a landing place without batches of this gateway."),
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Land the readings that a dead gateway acknowledged but did not land, as its uplink would.

    The directory is only read, so a card may be mounted read-only. Repeating the command is safe,
    and the gateway may return later: each reading is in the table once. The landing place must be
    the gateway's own; by default it is the one in this machine's configuration. If you name another
    one, it must have batches of the gateway already, or you must give --new-place.

    Exit code 10: the store is damaged; 4: a gateway uses the directory.

    Example: onceway spool land /mnt/card/var/lib/onceway --landing s3://bucket/landing
    """
    from gateway.uplink.rescue import rescue

    file = config_file(config)
    settings = landing_settings(load(file).uplink if file else None, landing)
    credentials.take(file)
    if settings is None:
        raise UsageError(
            "no landing place is named",
            str(file or default_file()),
            "Name it with --landing URL, or a gateway's configuration with --config FILE",
        )
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("landing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("messages"),
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
            new_place or landing is None,
        )
    place = without_password(settings.landing)
    if as_json:
        typer.echo(json.dumps({**asdict(done), "landing": place}))
        return
    typer.echo(
        f"{done.gateway}, epoch {done.epoch}: {amount(done.readings, 'message')} landed now in"
        f" {amount(done.batches, 'batch', 'batches')}; landed before: {done.there:,}."
        f"{f' Copies for other gateways among them: {done.copies:,}.' if done.copies else ''}"
        f" {place} now has every message of this store"
    )


@app.command()
def status(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Count the messages that wait in the spool. The gateway may run meanwhile.

    Example: onceway spool status
    """
    with Spool(folder_of(data, config), to_read=True) as spool:
        found, gateway = waiting(spool), spool.origin().gateway
    if as_json:
        typer.echo(json.dumps({"gateway": gateway, **_public(found)}))
    else:
        typer.echo(f"{gateway}: {_words(found) if found.rows else 'the spool is empty'}")


@app.command()
def discard(
    data: DataOption = None,
    config: ConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the messages that wait in the spool. They were acknowledged to their senders, and will
    never land. The gateway may run, but its uplink must be stopped. Messages that arrive later are
    kept. Exit code 1: the question was answered with no.

    Example: onceway spool discard
    """
    folder = folder_of(data, config)
    with Spool(folder) as spool, closing(ProcessLock(folder / "uplink.lock")):
        found, gateway = waiting(spool), spool.origin().gateway
        if found.rows and not yes:
            typer.echo(f"{gateway}: {_words(found)}. They will be gone for good.", err=as_json)
            typer.confirm("Discard them?", abort=True, err=as_json)
        if found.rows:
            give_up(spool, folder, found.last)
    if as_json:
        typer.echo(json.dumps({"gateway": gateway, **_public(found)}))
    elif found.rows:
        typer.echo(f"{gateway}: {are(found.rows, size=found.bytes)} discarded")
    else:
        typer.echo(f"{gateway}: the spool is empty, there is nothing to discard")


def _public(found: Waiting) -> dict[str, int | None]:
    return {key: value for key, value in asdict(found).items() if key != "last"}


def _words(found: Waiting) -> str:
    since = ""
    if found.oldest is not None:
        since = f", since {datetime.fromtimestamp(found.oldest / 1e6, UTC):%Y-%m-%d %H:%M} UTC"
    return f"{wait(found.rows, size=found.bytes)} for an uplink{since}"
