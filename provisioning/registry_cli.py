"""`onceway registry …`: carry the device registry to another machine."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.errors import OncewayError
from provisioning.backup import open_sealed, seal
from provisioning.cli import RegistryFile, open_registry

app = typer.Typer(help="Back the device registry up, and restore it.", no_args_is_help=True)

Passphrase = Annotated[
    str,
    typer.Option(
        envvar="ONCEWAY_PASSPHRASE", prompt=True, hide_input=True, help="Encrypts the file; asked for when not in ONCEWAY_PASSPHRASE."
    ),
]


@app.command("export")
def export_registry(
    file: Annotated[Path, typer.Argument(help="File to write.")], passphrase: Passphrase, registry: RegistryFile = None
) -> None:
    """Write the registry, keys included, to one encrypted file.

    Example: onceway registry export backup.owreg
    """
    devices = open_registry(registry).devices()
    try:
        file.touch(mode=0o600)
        file.write_bytes(seal(devices, passphrase))
    except OSError as error:
        raise OncewayError(f"cannot write the backup ({error.strerror})", str(file)) from error
    print(f"{len(devices)} devices written to {file}")


@app.command("import")
def import_registry(
    file: Annotated[Path, typer.Argument(help="File to read.")], passphrase: Passphrase, registry: RegistryFile = None
) -> None:
    """Enter the devices of a backup; a device of the same name is overwritten.

    Example: onceway registry import backup.owreg
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise OncewayError(f"cannot read the backup ({error.strerror})", str(file)) from error
    opened, devices = open_registry(registry), open_sealed(data, passphrase)
    for device in devices:
        opened.restore(device)
    print(f"{len(devices)} devices entered in {opened.path}")
