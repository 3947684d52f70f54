"""`onceway store …`: look at a store, and save what can be saved of a damaged one."""

import json
from contextlib import closing

import typer

from gateway.lock import ProcessLock
from gateway.options import ConfigOption, DataOption, JsonOption, folder_of
from gateway.store import check as inspection
from gateway.store import salvage as job

app = typer.Typer(help="The store of a gateway: check it, salvage it.", no_args_is_help=True)


@app.command()
def check(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Say whether a store is sound. Exit code 1 when it is not. The gateway may run meanwhile.

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


@app.command()
def salvage(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Make a new store of everything that a damaged one still gives; the old file is kept. The
    gateway must be stopped.

    Example: onceway store salvage
    """
    folder = folder_of(data, config)
    with (
        closing(ProcessLock(folder / "gateway.lock")),
        closing(ProcessLock(folder / "uplink.lock")),
    ):
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
    typer.echo(f"The old file is {result.old}")
