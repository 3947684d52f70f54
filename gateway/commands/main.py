"""The console script `onceway`.

In: the command line. Out: the command's output, and an exit code. Each package brings its own
commands through the entry point group `onceway.commands`, as a typer app. Only the named command is
imported, so `onceway gateway run` on a Pi never imports Spark or the rig. The list of all commands
is read from their source code.
"""

import ast
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from inspect import getdoc
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn, cast

import typer

from gateway import __version__
from gateway.commands.exit_codes import STORE
from gateway.commands.extras import how_to_get
from gateway.commands.streams import streams
from gateway.errors import NotAllowed, OncewayError, UsageError

_SETTINGS = {"help_option_names": ["-h", "--help"]}
_WRONG_USE = cast(type[Exception], typer.BadParameter.__base__)
"""The base class of typer's errors for a wrong command line; typer has no public name for it."""
_EXTRAS = {"ingest": "centre", "hil": "hil"}
"""Extra in `pyproject.toml` with the packages of a command. Other commands need the extra
`gateway`.
"""
_HELP = "Show the help of a command, such as `onceway help device add`."
_OURS = ("gateway", "hil", "provisioning")


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
    if point.module.startswith("provisioning."):
        # sqlite_utils would import these packages if they are installed, but not use them: 0.25 s
        for package in ("numpy", "pandas"):
            sys.modules.setdefault(package, cast(ModuleType, None))
    app: typer.Typer = point.load()
    unwrap(app)
    return app


def unwrap(app: typer.Typer) -> None:
    """Join the lines of each help text, so that the terminal wraps them at its own width."""
    for command in app.registered_commands:
        command.help = _flowing(command.help or getdoc(command.callback) or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            unwrap(group.typer_instance)


def _flowing(text: str) -> str:
    """Return the text with each paragraph joined into one line."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


@contextmanager
def _told_what_is_missing(command: str | None) -> Iterator[None]:
    """Context in which a missing Python package becomes an error that tells how to get the package.
    Many commands import a package only when they run.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OURS:
            raise
        raise OncewayError(
            f"`onceway {command}` needs the Python package {error.name}, which is not installed",
            hint=how_to_get(_EXTRAS.get(command or "", "gateway")),
        ) from error


def _summary(point: EntryPoint) -> str:
    """Return a command's purpose. It is read from the source code, because importing all commands
    takes seconds."""
    spec = find_spec(point.module)
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_bytes())
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=point.attr)], value=ast.Call(keywords=options)):
                for option in options:
                    match option:
                        case ast.keyword(arg="help", value=ast.Constant(str(text))):
                            return _flowing(text)
            case ast.FunctionDef(name=point.name):
                return _flowing(ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _build(wanted: str | None) -> typer.Typer:
    root = typer.Typer(
        no_args_is_help=True,
        context_settings=_SETTINGS,
        pretty_exceptions_enable=False,
    )
    root.callback()(_root)
    points = {point.name: point for point in entry_points(group="onceway.commands")}
    if wanted is None or wanted not in points:
        for name, point in sorted(points.items()):
            root.command(name, help=_summary(point))(lambda: None)
        root.command("help", help=_HELP)(lambda: None)
        return root
    app = _load(points[wanted])
    if [command.name for command in app.registered_commands] == [wanted]:
        # `onceway where`, not `onceway where where`
        root.registered_commands += app.registered_commands
        return root
    if (
        app.registered_callback is None
        and len(app.registered_commands) == 1
        and not app.registered_groups
    ):
        app.callback()(lambda: None)  # typer would drop the command's name
    root.add_typer(app, name=wanted)
    return root


def _command(wanted: str | None) -> Any:
    return typer.main.get_command(_build(wanted))


def _words() -> list[str]:
    """Return the words of the command line, or of the line that a shell completes."""
    if "_ONCEWAY_COMPLETE" not in os.environ:
        return sys.argv[1:]
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return typed.split()[1:]


def _forbidden(error: PermissionError) -> OncewayError:
    return NotAllowed(
        "this account may not open the file", error.filename, "Run the command with sudo"
    )


def _of_machine(error: Exception) -> OncewayError | None:
    """Return an error for the user, with cause and remedy. None if `error` is an internal error."""
    from gateway.system.causes import advised, cause, of_machine  # not at each start

    if isinstance(error, OncewayError):
        return advised(error)
    if type(error).__module__ == "sqlite3":
        reason, todo = cause(error)
        failure = OncewayError(f"the database cannot be used: {reason} ({error})", None, todo)
        failure.exit_code = STORE
        return failure
    found = of_machine(error)
    return found and OncewayError(f"{found.reason} ({error})", None, found.todo)


def _named() -> str:
    """Return the part of the command line that names the command, such as `onceway device add`."""
    words = takewhile(lambda word: not word.startswith("-"), sys.argv[1:])
    command, path = _command(next(iter(sys.argv[1:]), None)), ["onceway"]
    for word in words:
        if word not in (inner := getattr(command, "commands", {})):
            break
        command = inner[word]
        path.append(word)
    return " ".join(path)


def _mistyped(wrong: Any) -> OncewayError:
    command = wrong.ctx.command_path if wrong.ctx is not None else _named()
    text = wrong.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    return UsageError(text, command, f"`{command} --help` lists its options")


def _tell(error: OncewayError, as_json: bool) -> NoReturn:
    """Write an error to standard error, and exit with its code. Without `as_json`, the error is one
    line; an error of the configuration is one line for each mistake.
    """
    lines = [json.dumps(error.as_json)] if as_json else [f"error: {text}" for text in error.lines]
    print("\n".join(lines), file=sys.stderr)
    sys.exit(error.exit_code)


def main() -> None:
    """Run the command line. An OncewayError becomes one line on standard error (with --json a JSON
    object) and its exit code.
    """
    # SIGTERM unwinds, so that temporary files with keys are removed
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with streams():
        _run()


def _run() -> None:
    if sys.argv[1:2] == ["help"]:
        sys.argv[1:] = [*sys.argv[2:], "--help"]
    wanted = next((word for word in _words() if not word.startswith("-")), None)
    as_json = "--json" in sys.argv
    try:
        with _told_what_is_missing(wanted):
            if wanted == "device" and "_ONCEWAY_COMPLETE" not in os.environ:
                from gateway.commands.through_gateway import through_gateway  # 0.3 s

                if (code := through_gateway(sys.argv[1:])) is not None:
                    sys.exit(code)
            try:
                sys.exit(_command(wanted)(prog_name="onceway", standalone_mode=False))
            finally:
                sys.stdout.flush()
    except BrokenPipeError:
        raise
    except _WRONG_USE as wrong:
        if type(wrong).__name__ == "NoArgsIsHelpError":
            sys.exit(UsageError.exit_code)  # typer has shown the help
        _tell(_mistyped(wrong), as_json)
    except typer.Abort:
        _tell(OncewayError("not confirmed: nothing was done"), as_json)
    except PermissionError as failed:
        _tell(_forbidden(failed), as_json)
    except Exception as failed:
        if (failure := _of_machine(failed)) is None:
            raise
        _tell(failure, as_json)
    except KeyboardInterrupt:  # before typer handles it
        sys.exit(128 + signal.SIGINT)
