"""The console script `onceway`.

In: the command line. Out: the command's output, and an exit code. Each package brings its own commands through
the entry point group `onceway.commands` (a typer app each), loaded only when named, so `onceway gateway run` on a Pi
never imports Spark or the rig.
"""

import sys
from importlib.metadata import EntryPoint, entry_points

import click
import typer

from gateway import __version__
from gateway.errors import OncewayError


class _Commands(click.Group):
    """A click group whose members are entry points."""

    def _members(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group="onceway.commands")}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._members())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        point = self._members().get(cmd_name)
        if point is None:
            return None
        try:
            app: typer.Typer = point.load()
        except ModuleNotFoundError as error:
            extra = f" It comes with: pip install 'onceway[{point.extras[0]}]'" if point.extras else ""
            raise OncewayError(f"`onceway {cmd_name}` needs the Python package {error.name}, which is not installed", hint=extra.strip() or None) from error
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="onceway")
def root() -> None:
    """Every reading of an Arduino-class sensor reaches a Spark table exactly once.

    Example: onceway gateway run --listen 127.0.0.1:1883 --anonymous --data /tmp/onceway
    """


def main() -> None:
    """Run the command line; an OncewayError becomes one line on standard error and its exit code."""
    try:
        root()
    except OncewayError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
