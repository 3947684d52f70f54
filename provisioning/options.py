"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.boards.admission import FILE
from gateway.commands.completion import devices, offers
from gateway.commands.control_client import WHO_MAY
from gateway.commands.options import (
    JsonOption,
    config_file,
    default_file,
    installed_folder,
    running_folder,
)
from gateway.errors import NotAllowed, OncewayError, UsageError
from gateway.system.accounts import may_use
from provisioning.boards import catalogue
from provisioning.registry import Registry

_kinds = offers(catalogue)

Name = Annotated[
    str,
    typer.Argument(
        help="The device's name; also its MQTT client identifier.", autocompletion=devices
    ),
]
Port = Annotated[
    str | None,
    typer.Option(
        "--port",
        "-p",
        help="Serial port of the board, e.g. /dev/ttyACM0.",
        show_default="the only port with a board of this kind",
    ),
]
Hex = Annotated[
    Path | None,
    typer.Option(
        "--hex", help="Firmware to write.", show_default="the sensor example, built if needed"
    ),
]
BoardName = Annotated[
    str,
    typer.Option("--board", help="Kind of board, see `onceway board list`.", autocompletion=_kinds),
]
KnownBoard = Annotated[
    str | None,
    typer.Option(
        "--board", help="Kind of board.", show_default="as registered", autocompletion=_kinds
    ),
]
Foreign = Annotated[
    bool,
    typer.Option(
        "--foreign",
        help="Write a firmware without the Onceway library; the device is then `written`, not"
        " `ready`.",
    ),
]
Empty = Annotated[
    bool,
    typer.Option(
        "--empty",
        help="If the board was another device before, delete the unsent readings in its EEPROM.",
    ),
]
Network = Annotated[
    int | None,
    typer.Option(min=0, max=255, help="Network of a radio board.", show_default="the gateway's"),
]
Number = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=254,
        help="The board's number in its network.",
        show_default="the lowest free one",
    ),
]
Mhz = Annotated[
    float | None,
    typer.Option("--frequency", help="Channel, in MHz.", show_default="the gateway's"),
]
Factor = Annotated[
    int | None,
    typer.Option("--sf", min=7, max=12, help="Spreading factor.", show_default="the gateway's"),
]
Power = Annotated[
    int | None, typer.Option(min=2, max=17, help="Transmit power, in dBm.", show_default="14")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check firmware, port and name, and change nothing.")
]
RegistryFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "--registry",
        envvar="ONCEWAY_REGISTRY",
        help="The gateway's TOML file, which names its registry; or, with --registry, a registry"
        " file of your own.",
        show_default="this machine's gateway",
        readable=False,  # `load` reports who may read the file
    ),
]
Json = JsonOption


def open_registry(path: Path | None, make: bool = True) -> Registry:
    """Open the named registry, or that of this machine's gateway. make: create a missing file."""
    return Registry(registry_file(path), make)


def existing_registry(path: Path | None) -> Registry:
    """Open a registry for a command that adds nothing. If a file is named, it must exist."""
    if path is not None and not _is_config(path) and not path.exists():
        raise OncewayError(
            "there is no such registry", str(path), "`onceway device add` creates a registry"
        )
    return open_registry(path, make=False)


def registry_file(path: Path | None) -> Path:
    """Return the registry's file. path: a registry; or a gateway's configuration file; None for
    this machine's gateway. Raises OncewayError if there is no gateway, and NotAllowed if this
    account may not use the gateway's registry. A registry that no gateway reads must be named.
    """
    if path is not None and not _is_config(path):
        return path
    folder = gateway_folder(path)
    if folder is None:
        raise UsageError(
            "there is no gateway here, so no device registry",
            default_file(),
            "Name a gateway with --config FILE, or a registry of your own with --registry FILE",
        )
    file = folder / FILE
    try:
        used = file if file.exists() else folder
        mine = not used.exists() or may_use(used)
    except PermissionError:
        mine = False
    if not mine:
        raise NotAllowed(
            "this account may not use the device registry of the gateway", str(file), WHO_MAY
        )
    return file


def gateway_folder(path: Path | None) -> Path | None:
    """Return the data directory of a gateway; None if there is none. path: the gateway's registry
    or configuration; None for this machine's gateway.
    """
    if path is not None and not _is_config(path):
        return path.parent
    if config_file(path) is None:
        return installed_folder()
    return running_folder(None, path)


def _is_config(path: Path) -> bool:
    return path.suffix == ".toml"
