"""`onceway doctor`: common problems, each with its remedy."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from gateway.commands.options import ConfigOption, JsonOption, config_file, nothing_named
from gateway.config import Config, load
from gateway.doctor import bridges, disk, machine, ports, services, settings, site
from gateway.doctor.finding import Finding, State, wrong
from gateway.errors import OncewayError
from gateway.uplink import credentials

app = typer.Typer()

_MARKS = {State.OK: "✓", State.WARNING: "!", State.WRONG: "✗", State.UNSEEN: "?"}
_COLOURS = {State.WARNING: "yellow", State.WRONG: "red", State.OK: "green"}

Check = Callable[[Config], Iterator[Finding]]

_CHECKS: dict[str, Check] = {
    "configuration": settings.meaning,
    "certificates": settings.tls,
    "files": lambda config: settings.files(config.gateway.data),
    "clock": lambda config: machine.clock(config.gateway.trust_clock, config.gateway.data),
    "power supply": lambda config: machine.power(),
    "disk": lambda config: disk.room(
        config.gateway.data, config.spool_bytes if config.spooled else 0
    ),
    "card": lambda config: disk.health(config.gateway.data),
    "ports": lambda config: ports.ports(
        [item.port for item in config.serial] + [item.port for item in config.lora]
    ),
    "gateway": services.gateway,
    "uplink": services.uplink,
    "bridges": bridges.bridges,
    "site": site.site,
}


@app.command("doctor")
def doctor(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only findings that need attention.")
    ] = False,
) -> None:
    """Check for common problems, and name the remedy of each.

    Exit code 1: there is a problem. With warnings alone, the exit code is 0.

    Example: sudo onceway doctor
    """
    file = config_file(config)
    if file is None:
        raise nothing_named("Name the configuration with --config FILE")
    loaded = load(file)
    credentials.take(file)
    found = [*settings.credentials(file.parent), *examine(loaded)]
    shown = [item for item in found if item.state != State.OK or not quiet]
    if as_json:
        typer.echo(json.dumps([asdict(item) for item in shown]))
    else:
        for item in shown:
            mark = typer.style(_MARKS[item.state], fg=_COLOURS.get(item.state))
            typer.echo(f"{mark} {item.part}: {item.what}")
            if item.todo:
                typer.echo(f"    {item.todo}")
        typer.echo(_summary(found))
    if any(item.state == State.WRONG for item in found):
        raise typer.Exit(1)


def examine(config: Config) -> Iterator[Finding]:
    """Yield the findings of all checks. If a check fails, this is a finding, and the other checks
    continue.
    """
    for part, check in _CHECKS.items():
        try:
            yield from check(config)
        except FileNotFoundError as error:
            yield wrong(part, f"{error.filename} does not exist", "Start the gateway once")
        except (OSError, OncewayError) as error:
            yield wrong(part, f"cannot be checked: {error}", "Run the command with sudo")


def _summary(found: list[Finding]) -> str:
    counts = [
        f"{count} {name}"
        for state, name in (
            (State.WRONG, "wrong"),
            (State.WARNING, "to keep in mind"),
            (State.UNSEEN, "not checked"),
        )
        if (count := sum(item.state == state for item in found))
    ]
    return ", ".join(counts) or "all is well"
