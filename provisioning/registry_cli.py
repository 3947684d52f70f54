"""`onceway registry …`: copy the device registry to another machine."""

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.passphrase import ask_passphrase
from gateway.errors import OncewayError
from gateway.system.amounts import amount
from provisioning.backup import open_sealed, seal
from provisioning.options import Json, RegistryFile, existing_registry, open_registry

app = typer.Typer(
    help=(
        "Back the device registry up, and restore it. The passphrase is asked for, or taken from"
        " ONCEWAY_PASSPHRASE."
    ),
    no_args_is_help=True,
)


@app.command("export")
def export_registry(
    file: Annotated[Path, typer.Argument(help="File to write.")],
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Write the registry, keys included, to one encrypted file.

    Example: onceway registry export backup.owreg
    """
    rows = existing_registry(registry).dump()
    _write(file, seal(rows, ask_passphrase(twice=True)))
    _report(as_json, len(rows["device"]), f"written to {file}", file)


@app.command("import")
def import_registry(
    file: Annotated[Path, typer.Argument(help="File to read.")],
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Enter the devices of a backup: all of them, or none. A device of the same name is
    overwritten, unless it was changed here (revoked, admitted, or given another key) after the time
    that the backup states for it.

    Example: onceway registry import backup.owreg
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise OncewayError(f"cannot read the backup ({error.strerror})", str(file)) from error
    try:
        rows = open_sealed(data, ask_passphrase(twice=False))
    except OncewayError as error:
        raise OncewayError(error.what, str(file), error.hint) from None
    opened = open_registry(registry)
    kept = opened.load(rows)
    _report(as_json, len(rows["device"]) - len(kept), f"entered in {opened.path}", opened.path)
    if kept:
        print(
            f"changed here since the backup, so left as they are: {', '.join(kept)}",
            file=sys.stderr,
        )


def _write(file: Path, data: bytes) -> None:
    """Write the file completely or not at all. Only its owner may read it."""
    new = None
    try:
        descriptor, new = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, file)
    except OSError as error:
        if new is not None:
            with suppress(OSError):
                os.unlink(new)
        raise OncewayError(f"cannot write the backup ({error.strerror})", str(file)) from error


def _report(as_json: bool, devices: int, action: str, file: Path) -> None:
    print(
        json.dumps({"devices": devices, "file": str(file)})
        if as_json
        else f"{amount(devices, 'device')} {action}"
    )
