"""Options that commands share, and the default configuration file.

In: the options as typed. Out: paths. The default is /etc/onceway/gateway.toml; the environment
variable ONCEWAY_CONFIG replaces it.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.commands.control_client import INSTALLED, NotRunning, ask
from gateway.commands.exit_codes import NO_GATEWAY
from gateway.config import MayNotRead, load
from gateway.errors import OncewayError, UsageError

CONFIG = "ONCEWAY_CONFIG"
CONFIG_FILE = "/etc/onceway/gateway.toml"

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="The gateway's TOML file.",
        show_default=CONFIG_FILE,
        readable=False,  # `load` says who may read it
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The gateway's data directory.",
        show_default="as in the configuration",
        readable=False,  # each command says who may read it
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


class NoGateway(OncewayError):
    """Error: no gateway runs, and only a gateway can do what a command wants."""

    exit_code = NO_GATEWAY


def config_file(named: Path | None = None) -> Path | None:
    """Return the named configuration file, or else the default file. Return None if no file is
    named, and the default file does not exist.
    """
    if named is not None:
        return named
    path = Path(default_file())
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # `load` says why it cannot be read
    return path


def default_file() -> str:
    return os.environ.get(CONFIG, CONFIG_FILE)


def folder_of(data: Path | None, config: Path | None) -> Path:
    """Return `data`, or the data directory that the configuration file names. Raises UsageError if
    both are given, or if there is no configuration file.
    """
    if data is not None and config is not None:
        raise UsageError("--data and --config exclude each other", hint="Use one of the two")
    if data is not None:
        return data
    if (found := config_file(config)) is not None:
        return load(found).gateway.data
    raise nothing_named(
        "Name the configuration with --config FILE, or a data directory with --data DIR"
    )


def installed_folder() -> Path | None:
    """Return the data directory of the installed gateway; None if there is none. Also return None
    if ONCEWAY_CONFIG is set, because it may name another gateway.
    """
    return INSTALLED if CONFIG not in os.environ and INSTALLED.is_dir() else None


def running_folder(data: Path | None, config: Path | None) -> Path:
    """Return the data directory for a command that only sends a request to the running gateway. The
    account need not be allowed to read the configuration of the installed gateway.
    """
    try:
        return folder_of(data, config)
    except MayNotRead:
        if data is None and config is None and (folder := installed_folder()) is not None:
            return folder
        raise


def ask_running(folder: Path, **request: str) -> dict[str, Any]:
    """Send a request to the gateway of this data directory. Return the only row of its answer.
    Raises OncewayError, for example if no gateway runs.
    """
    try:
        (found,) = ask(folder, **request)
    except NotRunning:
        raise no_gateway(folder) from None
    return found


def no_gateway(folder: Path) -> NoGateway:
    """Return the error for a command that needs a running gateway."""
    hint = "Start the gateway, or name another one with --config FILE. See the log: journalctl -u"
    return NoGateway("no gateway runs here", str(folder), f"{hint} onceway-gateway")


def nothing_named(hint: str) -> UsageError:
    """Return the error for a command that finds no configuration file and needs one. hint: the
    remedy.
    """
    return UsageError("there is no configuration here", default_file(), hint)


def restarted_by(key: str) -> str:
    """Return the service, `gateway` or `uplink`, that reads this configuration key at its start."""
    return "uplink" if key.startswith("uplink.") else "gateway"
