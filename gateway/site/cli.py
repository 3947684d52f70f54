"""`onceway site …`: setting up trust between the gateways of one site.

`init` and `invite` run on the first gateway, which holds the site's authority, `join` on each other
gateway. None of these commands changes the configuration: they print the lines to add.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from math import floor
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from gateway.commands.control_client import NotRunning, ask
from gateway.commands.options import ConfigOption, JsonOption, config_file, nothing_named
from gateway.config import Config, load
from gateway.config.site_members import unlike
from gateway.errors import OncewayError
from gateway.site.links.link import SILENT
from gateway.site.pki import folder as files
from gateway.site.pki import invitation as invitations
from gateway.site.pki.authority import authority_of, found, membership, needed_authority
from gateway.site.pki.joining import join as join_site
from gateway.site.pki.member_list import change
from gateway.site.pki.removed import Removed
from gateway.site.problems import copies_problems
from gateway.store.schema import make_folder
from gateway.system.logs import printable

app = typer.Typer(
    help="The gateways of one site: init, invite, join, address, status, remove.",
    no_args_is_help=True,
)

_PORT = 8884
_RESTART = "sudo systemctl restart onceway-gateway"
_AUTHORITY = "; its certificate authority is on this gateway"

NameArgument = Annotated[str, typer.Argument(help="The gateway.name of the other gateway.")]


@app.command()
def init(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Create a site whose first member is this gateway. The site's certificate authority stays on
    this gateway.

    Example: sudo onceway site init
    """
    settings = _settings(config)
    name = settings.gateway.name
    make_folder(settings.gateway.data)
    made = found(settings.site_folder, name)
    if as_json:
        answer = {
            "site": made.site,
            "member": name,
            "folder": str(settings.site_folder),
        }
        typer.echo(json.dumps(answer))
        return
    typer.echo(
        f"site {made.site}: its first member is {name}; the keys are in {settings.site_folder}"
    )
    if settings.site is None:
        members = {name: f"ADDRESS:{_PORT}", "OTHER": f"ADDRESS:{_PORT}"}
        typer.echo(
            "Add this to the configuration. Replace OTHER by the name of the other gateway, and"
            " each ADDRESS by the address of that gateway; a third gateway gets a line of its own:"
            f"\n\n{_section(members)}\n"
        )
    typer.echo(f"Then: {_RESTART}, and for each other gateway: sudo onceway site invite NAME")


@app.command()
def invite(
    name: NameArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to create.", show_default="NAME.invitation"),
    ] = None,
    hours: Annotated[
        int, typer.Option(min=1, max=720, help="How long the invitation is valid.")
    ] = 24,
    address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the new gateway: all members add it to their lists when it joins."
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a file that lets one other gateway join, once. Run this command on the first gateway of
    the site, which must be running when the other one joins. With --address, the name need not be
    in `site.members`: no other file is edited, and no gateway of the site restarts.

    Example: sudo onceway site invite barn --address 10.0.0.12:8884
    """
    settings = _settings(config)
    if settings.site is None:
        raise _no_site()
    file = output or Path(f"{name.replace('/', '_')}.invitation")
    with _new(file) as out:  # before an earlier invitation is withdrawn
        made = invitations.invite(
            settings.site_folder, settings.site, settings.gateway.name, name, hours, address
        )
        out.write(made.model_dump_json(indent=1).encode() + b"\n")
    if as_json:
        answer = {
            "invitation": str(file),
            "member": name,
            "expires": made.expires.isoformat(),
        }
        typer.echo(json.dumps(answer))
        return
    typer.echo(
        f"{file}: valid for one gateway, until {made.expires:%Y-%m-%d %H:%M} UTC. Bring it to"
        f" {printable(name)}, into a folder that no other user can read, and run there:"
        f" sudo onceway site join {file.name}"
    )


@app.command()
def join(
    file: Annotated[Path, typer.Argument(help="A file from `onceway site invite`.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let this gateway become a member of the site that has invited it. Its key is created here and
    stays here. After an interruption, run the same command again.

    Example: sudo onceway site join barn.invitation
    """
    settings = _settings(config)
    invitation = invitations.read(file)
    make_folder(settings.gateway.data)
    members = join_site(settings.site_folder, invitation, settings.gateway.name)
    site = membership(settings.site_folder).site
    if as_json:
        answer = {"site": site, "member": settings.gateway.name, "members": members}
        configured = settings.site is not None and settings.site.members == members
        typer.echo(json.dumps(answer | {"configured": configured}))
        return
    typer.echo(f"site {site}: {settings.gateway.name} is a member; {file} is used up: delete it")
    if settings.site is None:
        typer.echo(f"Add this to the configuration:\n\n{_section(members)}\n")
    elif settings.site.members != members:
        typer.echo(
            f"[site.members] of this gateway differs from that of {invitation.inviter}, which is"
            f"\n\n{_section(members)}\n\nMake both the same"
        )
    typer.echo(f"Then: {_RESTART}")


@app.command()
def address(
    name: NameArgument,
    address: Annotated[
        str, typer.Argument(help="HOST:PORT where the other members reach this member.")
    ],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the address of a member. Run this command on the first gateway: all members take over
    the new address, without a restart.

    Example: sudo onceway site address barn 10.0.0.22:8884
    """
    settings = _settings(config)
    if settings.site is None:
        raise _no_site()
    if name not in settings.site.members:
        raise OncewayError(
            f"this site has no member {printable(name)!r}",
            hint="To add a new member: onceway site invite"
            f" {printable(name)} --address {printable(address)}",
        )
    members = {**settings.site.members, name: address}
    change(settings.site_folder, members)
    typer.echo(
        json.dumps({"members": members})
        if as_json
        else f"{printable(name)} is at {printable(address)}: all members that can be reached"
        " adopt this address"
    )


@app.command()
def remove(name: NameArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Remove a member: its certificate becomes invalid at every member that has heard of the
    removal. Run this command on the first gateway, which informs the other members.

    Example: sudo onceway site remove barn
    """
    settings = _settings(config)
    folder, own = settings.site_folder, membership(settings.site_folder)
    authority = needed_authority(folder)
    if name == own.name:
        raise OncewayError(
            f"{printable(name)!r} is this gateway, which holds the site's certificate authority",
            hint="Make a new site on another gateway: `onceway site init` there",
        )
    removed = Removed(folder, own)
    withdrawn = invitations.withdraw(folder, name)
    issued = removed.until(name) + 1  # earlier certificates are revoked already
    if issued == 1:
        if withdrawn:
            _tell_removed(name, settings, False, as_json)
            return
        raise OncewayError(f"this site has never had a member {printable(name)!r}")
    removed.heard([authority.remove(name, max(int(datetime.now(UTC).timestamp()), issued))])
    removed.save()
    if settings.site is not None and name in settings.site.members:
        others = {other: at for other, at in settings.site.members.items() if other != name}
        change(folder, others)
    _tell_removed(name, settings, True, as_json)


def _tell_removed(name: str, settings: Config, was_member: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"removed": name, "was_member": was_member}))
        return
    if not was_member:
        typer.echo(f"the invitation for {printable(name)} is no longer valid")
        return
    typer.echo(
        f"{printable(name)} is removed: its certificates and invitations are no longer accepted"
    )
    if settings.site is not None and name in settings.site.members:
        typer.echo(
            "The other members remove it from their lists, without a restart. A member with Onceway"
            f" 0.2.0 does not: there, remove {printable(name)} from [site.members], then:"
            f" {_RESTART}"
        )


@app.command()
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the members of the site, and how long each has been connected or silent. Exit code 1: a
    member is silent, or the gateway does not run.

    Example: sudo onceway site status
    """
    settings = _settings(config)
    if settings.site is None:
        raise _no_site()
    own = membership(settings.site_folder)
    with files.os_errors_explained(settings.site_folder):
        is_authority = authority_of(settings.site_folder) is not None
    rows = _asked(settings)
    if rows == []:
        raise OncewayError(
            "the gateway runs without its site",
            hint=f"The gateway started before [site] was configured: {_RESTART}",
        )
    running = rows is not None
    members = rows or _from_files(settings)
    if as_json:
        found = {
            "site": own.site,
            "running": running,
            "authority": is_authority,
            "members": members,
        }
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"site {own.site}{_AUTHORITY if is_authority else ''}")
        if not running:
            typer.echo("the gateway does not run: sudo systemctl start onceway-gateway")
        for row in members:
            typer.echo(f"{printable(row['name'])}  {row['address']}  {_state(row, running)}")
        if running:
            typer.echo(_figures(members[0]["figures"]))
            for line in [*_copies(members[0]["copies"]), *members[0].get("conflicts", ())]:
                typer.echo(printable(line))
        if (text := unlike(settings)) is not None:
            typer.echo(printable(text))
    if not running or not all(row["connected"] for row in members):
        raise typer.Exit(1)


def _figures(found: dict[str, int]) -> str:
    return (
        f"since the gateway's start: sessions moved in {found['moved_in']}, moved out"
        f" {found['moved_out']}; CONNECTs and PUBRELs answered while the session was suspect"
        f" {found['marked']}; messages lost with replaced sessions {found.get('lost', 0)}; messages"
        f" for other members dropped {found['forward_dropped']}\n"
        f"now: sessions that are moving {found['given']}, suspect sessions {found['in_doubt']},"
        f" messages that wait for other members {found['forward_waiting']}, sessions with a"
        f" forwarder here {found['followers']}"
    )


def _copies(found: dict[str, Any]) -> list[str]:
    """Return lines about replicas, or an empty list if no member has replicas."""
    lines = []
    if "copies_at" in found:
        where = found["copies_at"] or "no member"
        lines.append(
            f"copies of this spool: at {where}, rows not yet copied: {found['copies_behind']:,}"
        )
    if found["copies_kept_bytes"] or found["copies_landed"]:
        lines.append(
            f"copies kept here for other members: {found['copies_kept_bytes']:,} bytes; readings"
            f" from copies that this gateway has put into its own spool, to land them:"
            f" {found['copies_landed']:,}"
        )
    return lines + copies_problems(found)


def _settings(config: Path | None) -> Config:
    file = config_file(config)
    if file is None:
        raise nothing_named("Name the configuration with --config FILE")
    return load(file)


def _no_site() -> OncewayError:
    members = {"this-gateway": f"10.0.0.1:{_PORT}", "other": f"10.0.0.2:{_PORT}"}
    section = _section(members).replace("\n", "; ")
    return OncewayError("the configuration has no [site]", hint=f"Add it, for example: {section}")


def _section(members: dict[str, str]) -> str:
    lines = [f"{json.dumps(name)} = {json.dumps(address)}" for name, address in members.items()]
    return "\n".join(["[site.members]", *lines])


@contextmanager
def _new(file: Path) -> Iterator[BinaryIO]:
    """Context with a new file, open for writing. Only the user of the command can read the file;
    under sudo, this is the user who called sudo. If the block fails, the file is removed. Raises
    OncewayError if the file exists already, or cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise OncewayError(
            "there is a file already", str(file), "Name another file with --output"
        ) from None
    except OSError as error:
        raise _unwritten(file, error) from error
    try:
        with os.fdopen(descriptor, "wb") as out:
            if not os.geteuid() and (user := os.environ.get("SUDO_UID", "")).isdecimal():
                os.fchown(out.fileno(), int(user), -1)
            yield out
    except BaseException as error:
        file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritten(file, error) from error
        raise


def _unwritten(file: Path, error: OSError) -> OncewayError:
    return OncewayError(f"the invitation cannot be written ({error.strerror})", str(file))


def _asked(settings: Config) -> list[dict[str, Any]] | None:
    """Return the members as the running gateway reports them; None if it does not run."""
    with suppress(NotRunning):
        return ask(settings.gateway.data, do="site")
    return None


def _from_files(settings: Config) -> list[dict[str, Any]]:
    own = membership(settings.site_folder)
    assert settings.site is not None  # noqa: S101 - the caller has looked
    rows = []
    for name, address in settings.site.members.items():
        is_own = name == settings.gateway.name
        until = f"{own.certificate.not_valid_after_utc:%Y-%m-%d}" if is_own else None
        rows.append(
            {"name": name, "address": address, "here": is_own, "connected": False, "until": until}
        )
    return rows


def _state(row: dict[str, Any], running: bool) -> str:
    until = f"certificate until {row['until']}" if row["until"] else ""
    if row["here"]:
        return ", ".join(filter(None, ["this gateway", until, row.get("problem")]))
    if not running:
        return "not known"
    if not row["connected"]:
        heard = "never heard" if row["heard_s"] is None else f"heard {_ago(row['heard_s'])} ago"
        silent = f"silent for {_ago(row['since_s'])}, {heard}"
        return f"{silent}: {row['problem']}" if row["problem"] not in (None, SILENT) else silent
    parts = [f"connected for {_ago(row['since_s'])}", f"heard {_ago(row['heard_s'])} ago"]
    if row["lag_ms"] is not None:
        parts.append(
            f"answers within {floor(row['lag_ms']) + 1} ms"
        )  # the clock counts whole milliseconds
    if abs(row["clock_s"]) >= 1 and "its clock is" not in (row["problem"] or ""):
        parts.append(f"its clock differs by {row['clock_s']:.0f} s")
    if row["problem"]:
        parts.append(row["problem"])
    if row["boards"]:
        parts.append("changes of the device registry are on their way to it")
    if row["retained"]:
        parts.append("retained messages are on their way to it")
    return ", ".join(
        [*parts, f"protocol {row['protocol']}", f"generation {row['generation']}", until]
    )


def _ago(seconds: float) -> str:
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"
