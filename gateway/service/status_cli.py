"""`onceway status`: the state of gateway, boards and uplink, problems first."""

import json
from typing import Any

import typer

from gateway.boards.intervals import words
from gateway.commands.exit_codes import of_status
from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    ask_running,
    restarted_by,
    running_folder,
)
from gateway.system.amounts import amount, stranded, wait

app = typer.Typer()

Row = dict[str, Any]


@app.command("status")
def status(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Print the state of the gateway, its boards and its uplink, problems first. Exit code 3: a
    board of the registry does not send as expected; 1: there is another problem.

    Example: onceway status
    """
    folder = running_folder(data, config)
    found = ask_running(folder, do="everything")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        typer.echo("\n".join(_lines(found)))
    if code := of_status(found):
        raise typer.Exit(code)


def _lines(found: Row) -> list[str]:
    count = len(found["problems"])
    verdict = "all is well" if not count else amount(count, "problem")
    lines = [f"{verdict}: gateway {found['gateway']}, version {found['version']}"]
    for problem in found["problems"]:
        lines += [f"! {problem['what']}", f"    {problem['todo']}"]
    if waits := found.get("restart"):
        keys = ", ".join(waits)
        services = sorted({f"onceway-{restarted_by(key)}" for key in waits})
        lines.append(f"! changed in the configuration, takes effect after a restart: {keys}")
        lines.append(f"    sudo systemctl restart {' '.join(services)}")
        if services == ["onceway-uplink"]:  # the gateway does not see that restart
            lines.append("    sudo onceway gateway reload")
    lines.append("")
    lines += [_board(row) for row in found["boards"]] or ["no boards yet"]
    shown = "\n".join(problem["what"] for problem in found["problems"])
    for port in found["ports"]:
        if port["problem"] is not None and port["port"] not in shown:
            lines.append(f"port {port['port']}: {port['problem']}")
    lines += ["", _uplink(found)]
    return lines


def _board(row: Row) -> str:
    last = row["last"]
    shown = "no value" if last is None else f"{last['name']} {last['value']} {last['unit'] or ''}"
    heard = "never heard" if row["heard_s"] is None else f"{words(row['heard_s'])} ago"
    more = f", paused for {words(row['paused_s'])}" if row["paused_s"] else ""
    mark = "!" if row["problem"] else " "
    return f"{mark} {row['name']:24} {row['state']:10} {shown.strip():24} {heard}{more}"


def _uplink(found: Row) -> str:
    spool, uplink = found["spool"], found["uplink"]
    if uplink is None:
        waits = spool["messages"]
        return f"uplink: {stranded(waits, spool['bytes'])}" if waits else "uplink: none"
    if not uplink["known"]:
        return "uplink: its state cannot be read now"
    state = "does not run" if not uplink["running"] else uplink["error"] or "runs"
    return f"uplink: {state}; {wait(spool['messages'])}, {uplink['messages']:,} landed"
