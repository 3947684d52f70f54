"""`onceway bridge …`: the state of bridges, and messages that are set aside."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.bridge.status import is_late, problems, read
from gateway.commands import control_client as control
from gateway.commands.exit_codes import FAILED
from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    NoGateway,
    ask_running,
    folder_of,
    running_folder,
)
from gateway.errors import OncewayError, UsageError
from gateway.store import views
from gateway.store.views import AsideView
from gateway.system.amounts import amount, are
from gateway.system.logs import printable

app = typer.Typer(
    help="Bridges: their state, and messages that are set aside.",
    no_args_is_help=True,
)

BridgeArgument = Annotated[str, typer.Argument(help="The bridge's name.")]
NumbersArgument = Annotated[
    list[int] | None, typer.Argument(help="The messages' numbers, as `aside` shows them.", min=1)
]
AllOption = Annotated[
    bool, typer.Option("--all", help="All messages that the bridge has set aside.")
]


@app.command()
def status(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show each bridge: its connection, waiting messages, and retained topics that differ. Exit
    code 1: a bridge has a problem.

    Example: onceway bridge status
    """
    found = ask_running(running_folder(data, config), do="status")["bridges"]
    if as_json:
        typer.echo(json.dumps(found))
    elif not found:
        typer.echo("there are no bridges")
    else:
        for item in found:
            _show(item)
    if any(problems(read(item)) for item in found):
        raise typer.Exit(FAILED)


def _show(bridge: dict[str, Any]) -> None:
    name, oldest = bridge["name"], bridge["oldest_s"]
    age = "" if oldest is None else f", the oldest for {oldest:.0f} s"
    late = " (too long)" if is_late(oldest) else ""
    differ = "unknown" if bridge["differ"] is None else f"{bridge['differ']:,} differ"
    typer.echo(f"{name}: {bridge['error'] or 'connected'}; {bridge['server']}")
    typer.echo(f"  waiting    {bridge['waiting']:,}{age}{late}")
    ends = f"{bridge['retained_here']:,} here, {bridge['retained_there']:,} there"
    typer.echo(f"  retained   {differ} ({bridge['retained']}); after the last comparison: {ends}")
    typer.echo(f"  set aside  {bridge['aside']:,}")
    typer.echo(f"  last error {bridge['last_error'] or 'none'}")


@app.command()
def aside(
    name: Annotated[
        str | None, typer.Argument(help="The bridge's name.", show_default="all bridges")
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the messages that are set aside, because the other broker did not accept them or never
    can, with the reason. With --json, also show their payloads, in base64.

    Example: onceway bridge aside
    """
    found = views.aside(folder_of(data, config), name)
    if as_json:
        typer.echo(json.dumps([_row(item) for item in found]))
        return
    if not found:
        typer.echo("no messages are set aside")
    for item in found:
        retain = ", retained" if item.retain else ""
        typer.echo(
            f"{item.bridge} {item.number}  {_time(item) or 'time unknown'}  {printable(item.topic)}"
            f"  {len(item.payload)} bytes, QoS {item.qos}{retain}: {printable(item.reason)}"
        )


@app.command()
def again(
    name: BridgeArgument,
    numbers: NumbersArgument = None,
    everything: AllOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put messages that were set aside back at the end of the bridge's queue.

    Example: onceway bridge again cloud 17
    """
    wanted, folder = _wanted(numbers, everything), running_folder(data, config)
    try:
        done = _ask(folder, "bridge-again", name, wanted)
    except control.NotRunning:
        raise NoGateway(
            "the gateway does not run; only a running gateway can send messages again",
            str(folder),
            "sudo systemctl start onceway-gateway",
        ) from None
    _say(done, wanted, "in the queue again", as_json)


@app.command()
def discard(
    name: BridgeArgument,
    numbers: NumbersArgument = None,
    everything: AllOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete messages that are set aside. They cannot be restored.

    Example: onceway bridge discard cloud --all
    """
    wanted, folder = _wanted(numbers, everything), running_folder(data, config)
    try:
        done = _ask(folder, "bridge-discard", name, wanted)
    except control.NotRunning:
        with views.changing(folder) as database:
            done = views.discard_aside(database, name, wanted)
    _say(done, wanted, "deleted", as_json)


def _wanted(numbers: list[int] | None, everything: bool) -> list[int]:
    """Return the numbers of the wanted messages; an empty list means all messages. Raises
    UsageError unless exactly one is given: numbers or --all.
    """
    if bool(numbers) == everything:
        raise UsageError("no message is named", hint="Give numbers of messages, or --all")
    return numbers or []


def _ask(folder: Path, do: str, name: str, numbers: list[int]) -> int:
    (row,) = control.ask(folder, do=do, bridge=name, numbers=",".join(map(str, numbers)))
    return int(row["done"])


def _say(done: int, wanted: list[int], text: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"done": done}))
    else:
        typer.echo(f"{are(done)} {text}")
    if done < len(set(wanted)):
        numbers = amount(len(set(wanted)), "number")
        raise OncewayError(
            f"{len(set(wanted)) - done} of {numbers}: no such message is set aside",
            hint="See: onceway bridge aside",
        )


def _time(item: AsideView) -> str | None:
    if item.set_aside is None:
        return None
    return datetime.fromtimestamp(item.set_aside / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _row(item: AsideView) -> dict[str, Any]:
    return {
        "number": item.number,
        "bridge": item.bridge,
        "set_aside": _time(item),
        "topic": item.topic,
        "qos": item.qos,
        "retain": bool(item.retain),
        "bytes": len(item.payload),
        "reason": item.reason,
        "payload": base64.b64encode(item.payload).decode(),
    }
