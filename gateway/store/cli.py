"""`onceway store …`: check, copy, downgrade, restore and salvage a store."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.options import ConfigOption, DataOption, JsonOption, folder_of
from gateway.store import backup as copies
from gateway.store import check as inspection
from gateway.store import downgrade as older
from gateway.store import salvage as job
from gateway.store.board_queues import dropped_by_restore
from gateway.store.schema import SCHEMA_VERSION, existing, make_folder
from gateway.system.lock import ProcessLock

app = typer.Typer(
    help="The store of a gateway: check, back up, restore, downgrade or salvage it.",
    no_args_is_help=True,
)


@contextmanager
def _stopped(folder: Path) -> Iterator[None]:
    """Keep gateway and uplink from starting while the context lasts. Raises StoreError if there is
    no folder, and Locked if one of them runs.
    """
    if not folder.is_dir():
        existing(folder)
    with (
        closing(ProcessLock(folder / "gateway.lock")),
        closing(ProcessLock(folder / "uplink.lock")),
    ):
        yield


@app.command()
def check(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Report whether a store is sound. Exit code 1: it is not. The gateway may run meanwhile.

    Example: onceway store check
    """
    folder = folder_of(data, config)
    findings = inspection.check(folder)
    if as_json:
        typer.echo(json.dumps({"sound": not findings, "findings": findings}))
    elif findings:
        typer.echo("\n".join(findings))
        typer.echo(
            f"{folder}: not sound. With the gateway stopped, this saves what can be read: onceway"
            f" store salvage --data {folder}"
        )
    else:
        typer.echo(f"{folder}: the store is sound")
    if findings:
        raise typer.Exit(1)


@app.command("backup")
def back_up(
    to: Annotated[Path, typer.Option("--to", help="The file to create.")],
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the store to one file. The gateway may run meanwhile.

    Example: onceway store backup --to /mnt/usb/gateway.db
    """
    copies.backup(folder_of(data, config), to)
    if as_json:
        typer.echo(json.dumps({"backup": str(to)}))
        return
    typer.echo(f"{to}: a backup. To restore it: onceway store restore --from {to}")


@app.command()
def restore(
    source: Annotated[Path, typer.Option("--from", help="A file from `onceway store backup`.")],
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the store by a backup. The old store is kept beside it. Gateway and uplink must be
    stopped. Commands that wait for boards in the backup are dropped; they are listed first.

    Example: onceway store restore --from /mnt/usb/gateway.db
    """
    folder = folder_of(data, config)
    make_folder(folder)
    with _stopped(folder):
        dropped = dropped_by_restore(source)
        for line in [] if as_json else dropped:
            typer.echo(f"message dropped, because boards begin new sessions: {line}")
        old = copies.restore(folder, source)
    if as_json:
        fields = {
            "data": str(folder),
            "from": str(source),
            "old": None if old is None else str(old),
        }
        typer.echo(json.dumps(fields | {"dropped": dropped}))
        return
    typer.echo(f"{folder}: restored from {source}")
    if old is not None:
        typer.echo(f"The previous store was moved to {old}")


@app.command()
def downgrade(
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            help="Schema version that the older Onceway reads.",
            show_default="the previous one",
        ),
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert the store for an older Onceway, before you go back to that version. Everything that
    waits is kept. Gateway and uplink must be stopped. (An older version that is started on a newer
    store reports which schema it can read.)

    Example: onceway store downgrade
    """
    folder = folder_of(data, config)
    version = SCHEMA_VERSION - 1 if to is None else to
    with _stopped(folder):
        left_out = older.downgrade(folder, version)
    if as_json:
        typer.echo(json.dumps({"schema": version, "left_out": left_out}))
        return
    typer.echo(f"{folder}: written with schema {version}. Now install the older Onceway")
    for line in left_out:
        typer.echo(f"The older Onceway does not know {line}")


@app.command()
def salvage(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Make a new store from all readable rows of a damaged store; the old file is kept. The gateway
    must be stopped.

    Example: onceway store salvage
    """
    folder = folder_of(data, config)
    with _stopped(folder):
        result = job.salvage(folder)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "findings": result.findings,
                    "rows": result.rows,
                    "lost": result.lost,
                    "old": str(result.old),
                }
            )
        )
        return
    for table, rows in result.rows.items():
        typer.echo(f"{table:14} {rows:9} rows")
    for title, lines in (("Found", result.findings), ("Lost", result.lost)):
        typer.echo(f"{title}: {'; '.join(lines) or 'nothing'}")
    typer.echo(f"The old store was moved to {result.old}")
