"""The console script `onceway`.

In: the command line. Out: the command's output, and an exit code. Each package brings its own
commands through the entry point group `onceway.commands`, a typer app each. Only the one that is
named gets loaded, so `onceway gateway run` on a Pi never imports Spark or the rig.
"""

import json
import signal
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer

from gateway import __version__
from gateway.errors import OncewayError

_SETTINGS = {"help_option_names": ["-h", "--help"]}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"onceway {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Every reading of an Arduino-class sensor reaches a Spark table exactly once.

    Example: onceway gateway run --listen 127.0.0.1:1883 --anonymous --data /tmp/onceway
    """


def _load(point: EntryPoint) -> typer.Typer:
    try:
        app: typer.Typer = point.load()
    except ModuleNotFoundError as error:
        package = point.value.split(".")[0]
        extra = {"provisioning": "provisioning", "hil": "hil"}.get(package, "ingest")
        raise OncewayError(
            f"`onceway {point.name}` needs the Python package {error.name}, which is not installed",
            hint=f"pip install 'onceway[{extra}]'",
        ) from error
    return app


def _build(wanted: str | None) -> typer.Typer:
    root = typer.Typer(
        no_args_is_help=True,
        context_settings=_SETTINGS,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    root.callback()(_root)
    points = {point.name: point for point in entry_points(group="onceway.commands")}
    for point in [points[wanted]] if wanted in points else sorted(points.values()):
        try:
            app = _load(point)
        except OncewayError:
            if wanted in points:
                raise
            continue  # the list of commands shows what is installed
        if [command.name for command in app.registered_commands] == [point.name]:
            # `onceway where`, not `onceway where where`
            root.registered_commands += app.registered_commands
            continue
        if (
            app.registered_callback is None
            and len(app.registered_commands) == 1
            and not app.registered_groups
        ):
            app.callback()(lambda: None)  # typer would drop the command's name
        root.add_typer(app, name=point.name)
    return root


def main() -> None:
    """Run the command line; an OncewayError becomes one line on standard error, with --json a JSON
    object, and its exit code.
    """
    # so that temporary files with keys are removed
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    wanted = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    try:
        _build(wanted)()
    except OncewayError as error:
        fields = {"error": error.what, "where": error.where, "hint": error.hint}
        print(json.dumps(fields) if "--json" in sys.argv else f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before typer minds it
        sys.exit(128 + signal.SIGINT)
