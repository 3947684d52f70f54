"""`onceway gateway …`: run the gateway, print its state, check its configuration."""

import faulthandler
import json
import logging
import os
import resource
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from gateway.boards.expected import PROBLEMS
from gateway.boards.intervals import words
from gateway.bridge.status import REMEDIES, problems, read
from gateway.commands.exit_codes import NEEDS_RESTART, USAGE, of_status
from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    ask_running,
    config_file,
    nothing_named,
    restarted_by,
    running_folder,
)
from gateway.config import Config, ConfigError, LimitsSection, advice, parse
from gateway.config.reference import as_toml, entries
from gateway.service.check_cli import check_config, load_to_serve
from gateway.service.gateway import serve
from gateway.system import logs
from gateway.system.amounts import stranded, wait
from gateway.system.log_flood import LogFlood

log = logging.getLogger(__name__)

app = typer.Typer(help="The gateway: MQTT broker, links and spool.", no_args_is_help=True)

_TALKATIVE = (
    "gateway.bridge.bridge",
    "gateway.links.lora.transports",
    "gateway.links.lora.port",
    "gateway.links.serial_port",
    "gateway.runtime.use_of_spool",
    "gateway.service.gateway",
    "gateway.mirror.home_assistant",
    "gateway.service.listeners",
    "gateway.service.management",
    "gateway.web.page_logins",
    "gateway.site.links.certificate",
    "gateway.site.links.net",
)
"""Loggers whose lines of level INFO are shown by default."""

_OTHER_FILES = 64
_TURN = 2 << 20
"""Bytes that one turn of the event loop reads and writes under load. Memory of this size is freed
once at the start, so that the C library keeps it for reuse. Otherwise a run of messages would take
a third more time.
"""


@app.command()
def run(
    config: ConfigOption = None,
    listen: Annotated[
        str | None, typer.Option(help="Without --config: ADDRESS:PORT for MQTT over TCP.")
    ] = None,
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous",
            help="Without --config: accept clients without a user name from any address.",
        ),
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Without --config: the data directory.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log each connection.")] = False,
    log_format: Annotated[
        logs.Form | None,
        typer.Option("--log-format", help="Log format, instead of log.format in the file."),
    ] = None,
) -> None:
    """Run the gateway until SIGTERM.

    Example: onceway gateway run --listen 127.0.0.1:1883 --anonymous --data /tmp/onceway
    """
    if config is None and listen is None and data is None and not anonymous:
        config = config_file()
    settings = _settings(config, listen, anonymous, data)
    logs.configure(
        log_format or logs.Form(settings.log.format),
        "info" if verbose else settings.log.level,
        _TALKATIVE,
        LogFlood(logging.WARNING if verbose else logging.INFO),
    )
    _raise_file_limit(settings.limits)
    os.umask(os.umask(0o077) | 0o027)  # the data directory may be open to other accounts
    faulthandler.enable()  # systemd's watchdog sends SIGABRT
    for text in advice(settings):
        log.warning(text)
    # shorter than the default 5 ms, so that the store's writer need not wait for a busy event loop
    sys.setswitchinterval(0.0005)
    bytes(_TURN)  # freed once: the C library keeps that much memory from now on
    uvloop.run(serve(settings, None if config is None else partial(load_to_serve, config)))


def _raise_file_limit(limits: LimitsSection) -> None:
    """Raise the limit of open files to the highest allowed number: each connection takes a file
    descriptor, and a shell's default is low.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if "connections" in limits.model_fields_set and most < limits.connections + _OTHER_FILES:
        log.warning(
            "this process may have %d files open, too few for limits.connections = %d: see"
            " `ulimit -n`",
            most,
            limits.connections,
        )


def _settings(
    config: Path | None, listen: str | None, anonymous: bool, data: Path | None
) -> Config:
    if config is not None:
        if listen or data or anonymous:
            raise ConfigError(
                "--config cannot be combined with --listen, --data or --anonymous: write them into"
                " the file",
                str(config),
            )
        return load_to_serve(config)
    if listen is None or data is None:
        raise nothing_named("Set --config FILE, or --listen ADDRESS:PORT and --data DIR")
    return parse(
        {
            "gateway": {"data": str(data)},
            "listener": [{"bind": listen, "anonymous": anonymous or None}],
        },
        "command line",
    )


@app.command()
def status(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Print the state of the running gateway and its boards. Exit code 3: a board of the registry
    does not send as expected; 1: there is another problem.

    Example: onceway gateway status
    """
    folder = running_folder(data, config)
    found = ask_running(folder, do="status")
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"gateway {found['gateway']}, version {found['version']}: {found['status']}")
        if found["restored"] is not None:
            typer.echo(f"a new generation of the store began: {found['restored']}")
        for problem in found["problems"]:
            typer.echo(f"problem with the {problem['part']}: {problem['what']}")
            if "todo" in problem:
                typer.echo(f"    {problem['todo']}")
        for port in found["ports"]:
            typer.echo(f"port {port['port']}: {port['problem'] or _device(port)}")
        for bridge in found["bridges"]:
            _say_bridge(bridge)
        spool = found["spool"]
        if spool["messages"] and not spool["used"]:
            typer.echo(f"spool: {stranded(spool['messages'], spool['bytes'])}")
        for name, figure in found["figures"].items():
            typer.echo(f"{name:28} {figure}")
    if code := of_status(found):
        raise typer.Exit(code)


@app.command("reload")
def reload(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Reload the configuration file, users and certificates; no session is dropped. Exit code 2:
    there is a mistake, and the old configuration stays in force; 7: a part takes effect only at the
    next start.

    Example: sudo onceway gateway reload
    """
    folder = running_folder(data, config)
    found = ask_running(folder, do="reload")
    if as_json:
        typer.echo(json.dumps(found))
    elif found["wrong"] is not None:
        typer.echo("not reloaded, the old configuration stays in force:")
        for text in found.get("mistakes", [found["wrong"]]):  # earlier versions have none
            typer.echo(f"error: {text}")
    else:
        typer.echo("reloaded")
        for key in found["restart"]:
            service = restarted_by(key)
            typer.echo(f"{key} has changed: it takes effect after a restart of the {service}")
    if found["wrong"] is not None:
        raise typer.Exit(USAGE)
    if found["restart"]:
        raise typer.Exit(NEEDS_RESTART)


def _device(port: dict[str, Any]) -> str:
    """Return a port's device as words: its name, its problem, and when it was last heard."""
    if port["device"] is None:
        return "open, no device" if port["open"] else "not open"
    heard, state = port.get("heard_s"), port.get("state")  # earlier versions have none
    ago = "" if heard is None else f", last heard {words(heard)} ago"
    return f"{port['device']}{f' is {state}' if state in PROBLEMS else ''}{ago}"


def _say_bridge(bridge: dict[str, Any]) -> None:
    typer.echo(
        f"bridge {bridge['name']}: {bridge['error'] or 'connected'};"
        f" {wait(bridge['waiting'])}, {bridge['sent']} sent, {bridge['refused']} refused,"
        f" {bridge['dropped']} dropped, {bridge['received']} received,"
        f" {bridge['set_aside']} set aside"
    )
    for kind, text in problems(read(bridge)):
        if kind != "bridge":
            typer.echo(f"bridge {bridge['name']}: {text}. {REMEDIES[kind]}")


app.command("check-config")(check_config)


@app.command("config")
def show_config(
    reference: Annotated[
        bool, typer.Option("--reference", help="Print every key with its default and its meaning.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the path of the configuration file, or a reference of all its keys.

    Example: onceway gateway config --reference
    """
    file = config_file(config)
    if not reference and file is None:
        raise nothing_named("`onceway gateway config --reference` prints a file to start from")
    if as_json:
        shown = [asdict(entry) for entry in entries()] if reference else {"file": str(file)}
        typer.echo(json.dumps(shown))
        return
    typer.echo(as_toml() if reference else file, nl=not reference)
