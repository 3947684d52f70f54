"""`onceway device …`: the commands that show devices, admit and revoke them. They write to no
board.
"""

import json
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gateway.boards.admission import pending as asking
from gateway.boards.intervals import parse, words
from gateway.boards.listening import PATIENCE_S, RADIO_PATIENCE_S
from gateway.boards.reports import KEYED
from gateway.boards.reports import read as statuses
from gateway.commands.control_client import NotRunning, ask
from gateway.commands.options import no_gateway, nothing_named
from gateway.errors import OncewayError, Unknown, UsageError
from gateway.links.lora.frames import LONGEST_NAME
from gateway.system.amounts import were
from gateway.system.logs import printable
from provisioning import boards, device, ports
from provisioning.channel import radios
from provisioning.identity import check_name
from provisioning.lending import borrowed
from provisioning.options import (
    BoardName,
    Json,
    Name,
    Port,
    RegistryFile,
    existing_registry,
    gateway_folder,
    open_registry,
)
from provisioning.output import print_table
from provisioning.progress import shown
from provisioning.registry import SHOWN, Registry

app = typer.Typer()

_REPORTED = ("life", "worn", "aside")
"""Figures that boards report to the gateway (gateway/boards/reports.py)."""

_LOOK_S = 0.2
_PATIENCE = f"{PATIENCE_S}, by radio {RADIO_PATIENCE_S}"
Within = Annotated[
    int | None,
    typer.Option(
        "--within",
        "--wait",
        min=1,
        max=86_400,
        help="Longest wait, in seconds: until the board gets the command, and for each line.",
        show_default=_PATIENCE,
    ),
]

_KEYS = {True: "proved", False: "none (older firmware)", None: ""}


@app.command("list")
def list_devices(registry: RegistryFile = None, as_json: Json = False) -> None:
    """Show the devices of the registry, and those that have asked the gateway for admission
    (pending). EEPROM: its remaining life, from the board's last report (once a day). Key: whether
    the board proved its key in its last greeting; older firmware has no keys. Radio, for a radio
    board: its channel, its last frame (age, signal strength, SNR), its airtime within the hour and
    the limit, and the airtime that the gateway's radio may still use within the hour.

    Example: onceway device list --json
    """
    opened = existing_registry(registry)
    states = statuses(opened.path.parent)
    rows: list[dict[str, Any]] = [entry.public() for entry in opened.devices()]
    rows += [
        dict.fromkeys(SHOWN) | stranger | {"status": "pending"}
        for stranger in _pending(opened) or []
    ]
    heard = _radio_figures(opened)
    for row in rows:
        row |= {"radio": row.get("radio"), "heard": heard.get(row["name"])}
        of_board = states.get(row["name"], {})
        row |= {figure: of_board.get(figure) for figure in _REPORTED}
        row |= {KEYED: bool(of_board[KEYED]) if KEYED in of_board else None}
    _warn_of_names(rows)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print("no devices yet; `onceway device add NAME` registers one")
        return
    table = Table(
        "name", "board", "status", "port", "firmware", "flashed", "key", "radio", "EEPROM"
    )
    for row in rows:
        table.add_row(
            *(row[column] or "" for column in ("name", "board", "status", "port")),
            (row["firmware"] or "")[:12],
            row["flashed"] or "",
            _KEYS[row[KEYED]],
            _radio(row),
            _eeprom(row),
        )
    print_table(table)


def _warn_of_names(rows: list[dict[str, Any]]) -> None:
    """Warn of radio boards whose name, from an older version or a backup, is too long."""
    for row in rows:
        if row["radio"] and row["status"] != "revoked" and len(row["name"]) > LONGEST_NAME:
            print(
                f"{row['name']}: with {len(row['name'])} characters the board cannot send all its"
                f" readings by radio. Connect it by cable, and give it a name of {LONGEST_NAME}"
                f" characters at most: onceway device rename {row['name']} NAME",
                file=sys.stderr,
            )


def _radio_figures(registry: Registry) -> dict[str, dict[str, float | None]]:
    """Return how the running gateway last received each of its radio boards, by the board's name.
    age: seconds since then. rssi: in dBm. snr: in dB. airtime: airtime of the board's frames within
    the last hour, in s. limit: largest airtime of each radio within an hour, in s. left: airtime
    that the gateway's radio may still use, in s.
    """
    return {
        board["name"]: {key: board[key] for key in ("age", "rssi", "snr", "airtime")}
        | {"limit": radio["limit"], "left": radio["limit"] - radio["used"]}
        for radio in radios(registry)
        for board in radio["boards"]
    }


def _radio(row: dict[str, Any]) -> str:
    parts = [row["radio"]] if row["radio"] else []
    if heard := row["heard"]:
        parts.append(f"heard {heard['age']:.0f} s ago")
        if heard["rssi"] is not None:
            parts.append(f"{heard['rssi']:.0f} dBm, SNR {heard['snr']:.1f} dB")
        parts.append(f"{heard['airtime']:.1f} of its {heard['limit']:.0f} s this hour")
        parts.append(f"gateway may send {heard['left']:.0f} s more this hour")
    return "; ".join(parts)


def _eeprom(row: dict[str, Any]) -> str:
    """Describe the EEPROM's remaining life and its faults, from the board's last report."""
    parts = [] if row["life"] is None else [f"{row['life']:g} years"]
    parts += [f"failed writes: {row['worn']:g}"] if row["worn"] else []
    parts += [f"refused readings: {row['aside']:g}"] if row["aside"] else []
    return ", ".join(parts)


@app.command("pending")
def list_pending(registry: RegistryFile = None, as_json: Json = False) -> None:
    """Show the devices that have asked the gateway for admission and are not registered.

    Example: onceway device pending
    """
    opened = open_registry(registry, make=False)
    strangers = _pending(opened)
    if as_json:
        print(json.dumps(strangers or [], indent=2))
    elif strangers is None:
        print(f"no gateway runs in {opened.path.parent}; --config FILE names another gateway")
    elif not strangers:
        print("no unregistered device asks for admission")
    else:
        table = Table("name", "port")
        for stranger in strangers:
            table.add_row(stranger["name"] or "(none: provision it)", stranger["port"])
        print_table(table)


@app.command()
def admit(
    names: Annotated[
        list[str], typer.Argument(help="Names of the devices to admit.", show_default=False)
    ],
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Admit devices that were not provisioned here, or that were revoked. A running gateway accepts
    them within ten seconds.

    Example: onceway device admit roof-1 roof-2
    """
    opened = open_registry(registry)
    for name in names:
        check_name(name)
    entered = [opened.admit(name).public() for name in names]
    if as_json:
        print(json.dumps(entered, indent=2))
        return
    strangers = {stranger["name"]: stranger for stranger in _ask_pending(opened) or []}
    for row in entered:
        note = "" if row["status"] != "admitted" else _admission_note(row, strangers)
        print(f"{row['name']} is {row['status']}{note}")


def _admission_note(row: dict[str, Any], strangers: dict[str, dict[str, str]]) -> str:
    """Return why an admitted board may still be refused, as the end of a sentence. Empty if no
    reason is known.
    """
    asking = strangers.get(row["name"])
    if asking is None:
        return "; it does not ask to be let in now"
    if asking.get("key") != "unknown":
        return ""
    return (
        ". It has a key that this registry does not know, so it cannot connect until it has a"
        f" new one: `onceway device rekey {row['name']} --board KIND --port {asking['port']}` gives"
        " it a key by cable, and its readings stay"
    )


@app.command()
def revoke(name: Name, registry: RegistryFile = None, as_json: Json = False) -> None:
    """Revoke a device. A running gateway disconnects it within a second and refuses it from then
    on.

    Example: onceway device revoke greenhouse-1
    """
    opened = existing_registry(registry)
    opened.revoke(name)
    print(json.dumps(opened.get(name).public(), indent=2) if as_json else f"{name} revoked")


@app.command()
def show(name: Name, registry: RegistryFile = None, as_json: Json = False) -> None:
    """Show one device.

    Example: onceway device show greenhouse-1
    """
    entry = existing_registry(registry).get(name).public()
    print(
        json.dumps(entry, indent=2)
        if as_json
        else "\n".join(f"{column:9} {value or '-'}" for column, value in entry.items())
    )


@app.command("read")
def read_identity(
    board: BoardName = "uno",
    port: Port = None,
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Show which device a board is, by the identity in its flash.

    Example: onceway device read --port /dev/ttyACM0
    """
    kind = boards.board(board)
    where = port or ports.find(kind)
    folder = gateway_folder(registry)
    with borrowed(folder, where) if folder else nullcontext(), shown(as_json) as progress:
        identity = device.read(kind, where, progress)
    if as_json:
        print(json.dumps({"port": where, "name": identity.name if identity else None}))
    else:
        print(
            f"{where}: {identity.name}"
            if identity
            else f"{where}: this board has no name and no key"
        )


@app.command()
def expect(
    name: Name,
    interval: Annotated[
        str,
        typer.Argument(
            help=(
                "Interval in which it measures, e.g. 30s, 5m, 2h or 1d; `never` for a board that"
                " sends on events; `learn` to estimate it from its readings (default)."
            )
        ),
    ],
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Set how often a board is expected to measure. After three of these intervals without a
    reading the board is a problem, as page, status, doctor and metrics show.

    Example: onceway device expect roof-1 5m
    """
    if interval not in ("never", "learn") and parse(interval) is None:
        raise UsageError(
            f"{interval!r} is not an interval", hint="Such as 30s, 5m, 2h, never or learn"
        )
    _set_expected(registry, as_json, do="expect", client=name, interval=interval)


@app.command()
def pause(
    name: Name,
    time: Annotated[
        str,
        typer.Argument(
            help="Length of the pause, e.g. 8h or 3d; 0 ends the pause.", metavar="TIME"
        ),
    ],
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Do not report a board as a problem for a while, for example while it is in another place.

    Example: onceway device pause roof-1 3d
    """
    if time != "0" and parse(time) is None:
        raise UsageError(f"{time!r} is not a time", hint="Such as 8h or 3d; 0 ends the pause")
    _set_expected(registry, as_json, do="pause", client=name, interval=time)


def _set_expected(registry: Path | None, as_json: bool, **request: str) -> None:
    """Set a board's expected interval or pause in the running gateway, and print its new state."""
    (row,) = _request(_running_gateway(registry), **request)
    if as_json:
        print(json.dumps(row, indent=2))
        return
    where = ", at all gateways of the site" if row.get("site") else ""
    if row["state"] == "paused":
        print(f"{row['name']} is paused for {words(row['paused_s'])}{where}")
    else:
        state = "at another gateway" if row["state"] == "elsewhere" else row["state"]
        print(f"{row['name']}: {_expectation(row)}{where}; it is {state}")


def _expectation(row: dict[str, Any]) -> str:
    if row["never"]:
        return "it may be silent"
    if row["interval_s"] is None:
        return "its interval is not known yet"
    return f"a reading every {words(row['interval_s'])} is expected"


@app.command("log")
def read_log(
    name: Name,
    within: Within = None,
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Show the log of a board. The running gateway asks the board over its link. The firmware must
    be built with a log (OW_LOG_SIZE): the wired sensor is, the sensor by radio is not. A radio
    board is asked when it sends next.

    Example: onceway device log greenhouse-1
    """
    folder = _running_gateway(registry)
    wait = _longest_wait(folder, name, within, as_json)
    rows = [row for row in _request(folder, do="log", client=name, wait=wait) if row]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if lost := rows[-1]["lost"]:
        print(f"({were(lost, 'earlier line')} overwritten)")
    for row in rows[:-1]:
        print(f"{_time_of(row)}  {printable(row['text'])}")


@app.command("command")
def send_command(
    name: Name,
    text: Annotated[str, typer.Argument(help="The command, such as `interval 90 s`.")],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the board's answer, and print it.")
    ] = False,
    within: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=86_400,
            help="Longest wait, in seconds. Implies --wait.",
            show_default=_PATIENCE,
        ),
    ] = None,
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Send a command to a board, at QoS 2, while the gateway runs. With --wait, print the board's
    answer: done, a value, or refused with the reason (exit code 1). The firmware must be built with
    OW_ANSWERS, as the bundled sensors are. A radio board gets the command when it sends next.

    Example: onceway device command greenhouse-1 "interval 90 s" --wait
    """
    folder = _running_gateway(registry)
    request = {"do": "command", "client": name, "text": text}
    if wait or within:
        request["wait"] = _longest_wait(folder, name, within, as_json)
    row = [row for row in _request(folder, **request) if row][-1]
    if as_json:
        print(json.dumps(row))
    elif "sent" in row:
        print(f"{name}: the command is on its way")
    else:
        print(f"{name}: {row['words']}")
    if row.get("answer") == "refused":
        raise typer.Exit(1)


def _longest_wait(folder: Path, name: str, within: int | None, as_json: bool) -> str:
    """Return for how long to wait for a board's answer, in seconds. Print this time if the board is
    a connected radio board and the output is not JSON.
    """
    heard = _request(folder, do="heard", client=name)[0]
    patience = within or (RADIO_PATIENCE_S if heard["radio"] else PATIENCE_S)
    if heard["radio"] and heard["connected"] and not as_json:
        print(
            f"{name} is on a radio: it gets the command when it next sends. The command waits for"
            f" {patience} s at most; Ctrl-C ends the waiting",
            file=sys.stderr,
        )
    return str(patience)


@app.command()
def ping(
    name: Name,
    wait: Annotated[
        int,
        typer.Option("--within", "--wait", min=1, max=86_400, help="Longest wait, in seconds."),
    ] = RADIO_PATIENCE_S,
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Wait until the running gateway receives something from a board, and print how long that took.
    A radio board cannot be contacted, so this waits for its next frame. Exit code 1: nothing was
    received.

    Example: onceway device ping roof-7
    """
    opened = existing_registry(registry)
    folder = opened.path.parent
    began, notified = time.monotonic(), False
    while (waited := time.monotonic() - began) < wait:
        row = _request(folder, do="heard", client=name)[0]
        if row["age"] is not None and row["age"] < waited:
            break
        if not (row["known"] or row["radio"] or opened.find(name)):
            raise Unknown("there is no such device", name, "See: onceway device list")
        if not notified and not as_json:
            expectation = (
                "A radio board is heard when it sends next"
                if row["radio"]
                else "A board is heard when it sends"
            )
            state = "connected" if row["connected"] else "not connected"
            print(f"{name} is {state}. {expectation}; Ctrl-C ends the waiting", file=sys.stderr)
            notified = True
        time.sleep(_LOOK_S)
    else:
        hint = "Does the board have power? See: onceway device list, onceway radio listen"
        raise OncewayError(f"nothing was heard of the board within {wait} s", name, hint)
    figures = {"name": name, "after": round(waited, 1), "rssi": row["rssi"], "snr": row["snr"]}
    if as_json:
        print(json.dumps(figures))
        return
    signal = "" if row["rssi"] is None else f", {row['rssi']:.0f} dBm, SNR {row['snr']:.1f} dB"
    print(f"{name}: heard after {waited:.1f} s{signal}")


def _running_gateway(registry: Path | None) -> Path:
    """Return the data directory of the gateway to which a command sends its request. Raises
    UsageError if there is none.
    """
    folder = gateway_folder(registry)
    if folder is None:
        raise nothing_named("Name a gateway with --config FILE")
    return folder


def _request(folder: Path, **request: str) -> list[dict[str, Any]]:
    try:
        return ask(folder, **request)
    except NotRunning:
        raise no_gateway(folder) from None


def _time_of(row: dict[str, Any]) -> str:
    """Format the time of a log line: UTC, or else the time since the board's start."""
    if row["utc"] is None:
        return f"{row['uptime']} s after its start"
    return datetime.fromtimestamp(row["utc"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pending(registry: Registry) -> list[dict[str, str]] | None:
    """Return the unregistered devices that have asked the gateway in the registry's folder for
    admission. None if that gateway does not run.
    """
    known = {entry.name for entry in registry.devices()}
    strangers = _ask_pending(registry)
    return (
        None
        if strangers is None
        else [stranger for stranger in strangers if stranger["name"] not in known]
    )


def _ask_pending(registry: Registry) -> list[dict[str, str]] | None:
    try:
        return asking(registry.path.parent)
    except (OSError, ValueError) as error:
        raise OncewayError(
            f"cannot read which devices are pending ({error})", str(registry.path.parent)
        ) from error
