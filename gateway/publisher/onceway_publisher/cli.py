"""`onceway publish` (and `onceway-publish`): messages of a shell script, each exactly once in the
table. In: a value on the command line, or one message per line of standard input. Out: exit code 0
once the gateway has everything.
"""

import asyncio
import io
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from onceway_publisher.errors import PublisherError, StillWaiting, Unreadable
from onceway_publisher.publisher import Publisher

_CODES: tuple[tuple[type[PublisherError], int], ...] = ((StillWaiting, 75), (Unreadable, 2))
"""Exit codes: 75 if messages wait in the journal (EX_TEMPFAIL), 2 if a line or an option cannot be
used. Any other failure has 1.
"""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LONGEST_INTEGER = 400
"""An integer with this many characters or more is read as a float. Without leading zeros, the float
is infinite, and is refused.
"""
_OPTION = re.compile(r"--?[a-z][a-z-]*(=.*)?")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command("publish", context_settings={"ignore_unknown_options": True})  # -5 is a value
def publish(
    to: Annotated[
        str, typer.Option(help="URL of the gateway, such as mqtts://pi or mqtt://USER@pi:1883.")
    ],
    device: Annotated[
        str, typer.Option(help="Name of the device in the table, and client identifier.")
    ],
    topic: Annotated[
        str | None, typer.Argument(help="Topic. With --json, a line may name another topic.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Argument(help="Value. Without it, each line of standard input is a value."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the values, such as Cel.")] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Journal; by default DEVICE.onceway in this folder.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="File of the CA that signs the gateway's certificate.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="File with the password; default: $ONCEWAY_PASSWORD.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            help="Longest wait at the end until the gateway has all messages, in seconds.", min=0
        ),
    ] = 30.0,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Each line of standard input is an object with value and, if needed, topic, unit,"
            " name, time, retain. Print an object for each message.",
        ),
    ] = False,
) -> None:
    """Publish values; each is in the table exactly once.

    A number is sent as a number, true and false as truth values, everything else as text. A message
    is kept in the journal until the gateway has it. If the command ends earlier (exit code 75), the
    next call with this journal sends the message.

    Example: onceway publish --to mqtts://pi --device boiler sensors/boiler/temp 61.2 --unit Cel
    """
    logging.getLogger("onceway_publisher").addHandler(logging.NullHandler())  # errors say it
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread may wait for standard input
    common = {"topic": topic, "unit": unit}
    try:
        for word in filter(_OPTION.fullmatch, (topic or "", value or "")):
            raise Unreadable(f"no such option: {word}. --help lists the options")
        if topic is None and not as_json:
            raise Unreadable("name a topic, or give --json lines that have their own")
        login = _password(password_file)
        publisher = Publisher(
            to,
            device=device,
            journal=journal or Path(f"{device.replace('/', '_')}.onceway"),
            password=login,
            tls=str(ca) if ca else None,
            wait_s=max(wait, 1.0),
            stop_s=0,
        )
        values = _lines() if value is None else [value]
        asyncio.run(_publish(publisher, _messages(values, common, as_json), wait, as_json))
    except PublisherError as error:
        print(json.dumps({"error": str(error)}) if as_json else f"error: {error}", file=sys.stderr)
        code = next((one for kind, one in _CODES if isinstance(error, kind)), 1)
        raise typer.Exit(code) from error


def _password(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("ONCEWAY_PASSWORD")
    try:
        return file.read_text(encoding="utf8").rstrip("\n")
    except OSError as error:
        raise Unreadable(f"{file}: {error.strerror}") from error


def _lines() -> Iterable[str]:
    """Return the lines of standard input. Each byte that is not UTF-8 becomes a surrogate."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf8", errors="surrogateescape")
    return sys.stdin or ()


def _messages(lines: Any, common: dict[str, Any], as_json: bool) -> Iterator[dict[str, Any]]:
    """Yield the fields of the message in each line. Empty lines are skipped. Raises Unreadable,
    with the number of the line.
    """
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if not line:
            continue
        if any("\ud800" <= sign <= "\udfff" for sign in line):
            raise Unreadable(f"line {number} is not UTF-8")
        if not as_json:
            yield {**common, "value": _typed(line)}
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"line {number} is not JSON: {error}") from error
        known = {"topic", "value", "unit", "name", "time", "retain"}
        if not isinstance(found, dict):
            found = {"value": found}
        fields = {key: value for key, value in {**common, **found}.items() if value is not None}
        if fields.keys() - known or not {"topic", "value"} <= fields.keys():
            raise Unreadable(
                f"line {number} needs topic and value, and may have only unit, name, time and"
                " retain besides"
            )
        yield fields


def _typed(text: str) -> float | bool | str:
    if text in ("true", "false"):
        return text == "true"
    if not _NUMBER.fullmatch(number := text.strip()):
        return text
    whole = not set(number) & set(".eE") and len(number) < _LONGEST_INTEGER
    return int(number) if whole else float(number)


async def _publish(
    publisher: Publisher, messages: Iterator[dict[str, Any]], wait: float, as_json: bool
) -> None:
    lost = ""
    async with publisher:
        while not lost and (fields := await asyncio.to_thread(next, messages, None)) is not None:
            sent = await publisher.publish(fields.pop("topic"), fields.pop("value"), **fields)
            lost = _print(json.dumps(vars(sent))) if as_json else ""
        await publisher.flush(wait)
    if lost:
        raise PublisherError(
            f"standard output: {lost}. Lines after sequence {sent.sequence} are not published"
        )


def _print(line: str) -> str:
    """Print a line. Return the error's text if standard output cannot be written, else ""."""
    try:
        print(line, flush=True)
    except OSError as error:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
        return error.strerror or str(error)
    return ""


def main() -> None:
    app()
