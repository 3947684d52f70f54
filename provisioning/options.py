"""Arguments and options that several commands of provisioning share."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.options import JsonOption
from gateway.errors import OncewayError
from provisioning.registry import Registry, default_path

Name = Annotated[str, typer.Argument(help="The device's name; also its MQTT client identifier.")]
Port = Annotated[
    str | None,
    typer.Option(
        "--port",
        "-p",
        help="Serial port of the board, e.g. /dev/ttyACM0.",
        show_default="the only such board's",
    ),
]
Hex = Annotated[
    Path | None,
    typer.Option(
        "--hex", help="Firmware to write.", show_default="the sensor example, built if need be"
    ),
]
BoardName = Annotated[str, typer.Option("--board", help="Kind of board, see `onceway board list`.")]
KnownBoard = Annotated[
    str | None, typer.Option("--board", help="Kind of board.", show_default="as registered")
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
        help="If the board was another device, delete the readings that it has not sent.",
    ),
]
Network = Annotated[
    int | None,
    typer.Option(
        min=0, max=255, help="Of a board by radio: its network.", show_default="the gateway's"
    ),
]
Number = Annotated[
    int | None,
    typer.Option(min=1, max=254, help="Its number there.", show_default="the lowest free one"),
]
Mhz = Annotated[
    float | None,
    typer.Option("--frequency", help="MHz of its channel.", show_default="the gateway's"),
]
Factor = Annotated[
    int | None,
    typer.Option("--sf", min=7, max=12, help="Spreading factor.", show_default="the gateway's"),
]
Power = Annotated[
    int | None, typer.Option(min=2, max=17, help="dBm that it sends with.", show_default="14")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check firmware, port and name, and change nothing.")
]
RegistryFile = Annotated[
    Path | None,
    typer.Option(
        "--registry",
        envvar="ONCEWAY_REGISTRY",
        help="Registry file.",
        show_default="/var/lib/onceway or your own",
    ),
]
Json = JsonOption


def open_registry(path: Path | None, make: bool = True) -> Registry:
    """The registry that is named, or the usual one. make: whether a missing one is made."""
    return Registry(path or default_path(), make)


def existing_registry(path: Path | None) -> Registry:
    """The same for commands that enter nothing: one that is named must be there."""
    if path is not None and not path.exists():
        raise OncewayError("there is no such registry", str(path), "`onceway device add` makes one")
    return open_registry(path, make=False)
