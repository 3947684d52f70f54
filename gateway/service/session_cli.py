"""`onceway session …`: the sessions of a gateway, whether it runs or not.

The sessions come from a running gateway's control socket, or else from the store.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.commands import control_client as control
from gateway.commands.options import ConfigOption, DataOption, JsonOption, NoGateway, running_folder
from gateway.errors import Unknown
from gateway.runtime.clock import Clock
from gateway.store import views
from gateway.store.session_views import IN_DOUBT, moved_view
from gateway.system.logs import printable

app = typer.Typer(help="Sessions of the gateway's clients: list, show, end.", no_args_is_help=True)

ClientArgument = Annotated[str, typer.Argument(help="The client identifier.")]
Row = dict[str, Any]


class UnknownClient(Unknown):
    """Error: the gateway has no session of this client."""


@app.command("list")
def list_sessions(
    site: Annotated[
        bool,
        typer.Option(
            "--site",
            help="Show sessions of all members of the site. Exit code 1: a member did not answer.",
        ),
    ] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every session of this gateway: the address of each connected client, and the queue of
    each session. In a site, also sessions that are moving to another member, and suspect sessions.

    Example: onceway session list
    """
    folder = running_folder(data, config)
    if site:
        _list_site(folder, as_json)
        return
    try:
        found = control.ask(folder, do="sessions")
    except control.NotRunning:
        found = _stored(folder)
    if as_json:
        typer.echo(json.dumps(found))
        return
    if not found:
        typer.echo("no sessions")
    for row in found:
        typer.echo(f"{printable(row['client'])}  {_state(row)}; {_queue(row)}")


def _list_site(folder: Path, as_json: bool) -> None:
    try:
        rows = control.ask(folder, do="site-sessions")
    except control.NotRunning:
        raise NoGateway(
            "the gateway does not run; only a running gateway can ask other members of the site",
            str(folder),
            "sudo systemctl start onceway-gateway",
        ) from None
    silent = [row["member"] for row in rows if row.get("silent")]
    found = sorted(
        (row for row in rows if not row.get("silent")),
        key=lambda row: (row["client"], row["member"]),
    )
    if as_json:
        typer.echo(json.dumps({"sessions": found, "silent": silent}))
    else:
        if not found:
            typer.echo("no sessions")
        for row in found:
            at = f"at {printable(row['member'])}"
            typer.echo(f"{printable(row['client'])}  {at}, {_state(row)}; {_queue(row)}")
        for member in silent:
            typer.echo(
                f"{printable(member)} does not answer: some or all of its sessions are missing"
                " here. See: onceway site status",
                err=True,
            )
    if silent:
        raise typer.Exit(1)


@app.command()
def show(
    client: ClientArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one session with its subscriptions.

    Example: onceway session show dashboard
    """
    folder = running_folder(data, config)
    try:
        found = control.ask(folder, do="session", client=client)
    except control.NotRunning:
        found = list(filter(None, [views.session(folder, client, Clock(trust=False).utc())]))
    if not found:
        raise _unknown(client, folder)
    (row,) = found
    if as_json:
        typer.echo(json.dumps(row))
        return
    expiry = "never" if row["expiry_s"] is None else f"{row['expiry_s']} s after disconnecting"
    owner = (
        "a board"
        if row["device"]
        else f"user {printable(row['user'])}"
        if row["user"]
        else "an anonymous client"
    )
    typer.echo(
        f"client         {printable(row['client'])}\nstate          {_state(row)}\nbelongs to    "
        f" {owner}\nexpires        {expiry}"
    )
    typer.echo(
        f"queue          {_queue(row)}\nreceiving      {row['receiving']} QoS 2 messages between"
        " PUBLISH and PUBREL"
    )
    for item in row["subscriptions"]:
        more = [name for name in ("no_local", "retain_as_published") if item[name]]
        more += [f"identifier {item['identifier']}"] if item["identifier"] else []
        typer.echo(
            f"subscription   {printable(item['topic_filter'])}  QoS"
            f" {', '.join([str(item['qos']), *more])}"
        )


@app.command()
def end(
    client: ClientArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a session: its connection (with reason 0x98), its subscriptions and its queue. None of
    these can be restored. The client's will is published.

    Example: onceway session end dashboard
    """
    folder = running_folder(data, config)
    try:
        ended = bool(control.ask(folder, do="end", client=client))
    except control.NotRunning:
        ended = _end_in_store(folder, client)
    if not ended:
        raise _unknown(client, folder)
    typer.echo(
        json.dumps({"client": client, "ended": True})
        if as_json
        else f"the session of {printable(client)} has ended"
    )


def _stored(folder: Path) -> list[Row]:
    """Return the sessions in the store, in the form in which a running gateway returns them."""
    suspect, moved = views.places(folder)
    rows = [asdict(item) for item in views.sessions(folder, Clock(trust=False).utc())]
    for row in rows:
        if row["client"] in suspect:
            row["place"] = IN_DOUBT
    return [*rows, *(moved_view(client, member) for client, member in moved.items())]


def _end_in_store(folder: Path, client: str) -> bool:
    with views.changing(folder) as database:
        return views.end_session(database, client)


def _unknown(client: str, folder: Path) -> UnknownClient:
    return UnknownClient(
        f"there is no session of {printable(client)!r}", str(folder), "See: onceway session list"
    )


def _state(row: Row) -> str:
    place = f", {row['place']}" if row.get("place") else ""
    return printable(_where(row) + place)


def _where(row: Row) -> str:
    if row["connected"]:
        return f"connected from {row['address']}, MQTT {row['version']}"
    return "away" if row["away_s"] is None else f"offline for {row['away_s']} s"


def _queue(row: Row) -> str:
    subscriptions = (
        row["subscriptions"] if isinstance(row["subscriptions"], int) else len(row["subscriptions"])
    )
    return (
        f"messages {row['queued']}, bytes {row['queued_bytes']}, in flight {row['inflight']},"
        f" subscriptions {subscriptions}"
    )
