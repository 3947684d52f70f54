"""`onceway backup FILE` and `onceway restore FILE`: a whole gateway, on this machine or another."""

import json
import os
import tempfile
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from gateway.backup import contents
from gateway.backup.landing import put
from gateway.backup.restore import make_data_folder, put_back
from gateway.backup.sealed import SealedReader, SealedWriter
from gateway.commands.options import (
    CONFIG_FILE,
    ConfigOption,
    JsonOption,
    config_file,
    nothing_named,
)
from gateway.commands.passphrase import ask_passphrase
from gateway.config import Config, load
from gateway.errors import OncewayError, UsageError
from gateway.system.lock import ProcessLock
from gateway.system.sync import sync
from gateway.uplink import credentials
from gateway.uplink.landing import open_landing

backup_app = typer.Typer()
restore_app = typer.Typer()


@backup_app.command("backup")
def backup(
    file: Annotated[Path | None, typer.Argument(help="The file to make.")] = None,
    to_landing: Annotated[
        bool, typer.Option("--to-landing", help="Put it at the landing place instead.")
    ] = False,
    keep: Annotated[
        int, typer.Option(min=1, max=1000, help="Days whose backups stay at the landing place.")
    ] = 7,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the whole gateway to one encrypted file: store, device registry, users, configuration,
    certificates, the key that signs batches and this gateway's place in its site.

    The gateway may run meanwhile. The passphrase is asked for, or taken from ONCEWAY_PASSPHRASE. At
    the landing place it is GATEWAY/backups/N.owback, N from 0 to KEEP - 1, one a day in turn:
    onceway-backup.timer does that.

    Example: sudo onceway backup /mnt/usb/site-1.owback
    """
    if (file is None) != to_landing:
        raise UsageError("name a file, or give --to-landing", hint="onceway backup --help")
    found = config_file(config)
    if found is None:
        raise nothing_named("Name one with --config FILE")
    settings = load(found)
    if file is None:
        _to_landing(settings, found, keep, as_json)
        return
    if file.exists():
        raise OncewayError("there is a file already", str(file), "Name another one")
    new = file.with_name(f"{file.name}.new")
    try:
        manifest = _write(new, settings, found)
        sync(new)
        os.replace(new, file)
        sync(file.absolute().parent)
    except OSError as error:
        raise OncewayError(f"the backup cannot be written ({error.strerror})", str(file)) from error
    finally:
        new.unlink(missing_ok=True)
    _tell(str(file), manifest, file.stat().st_size, str(file), as_json)


def _write(file: Path, settings: Config, found: Path) -> contents.Manifest:
    passphrase = ask_passphrase(twice=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        sealed = SealedWriter(out, passphrase)
        manifest = contents.write(cast(BinaryIO, sealed), settings, found)
        sealed.finish()
    return manifest


def _to_landing(settings: Config, found: Path, keep: int, as_json: bool) -> None:
    data = settings.gateway.data
    if settings.uplink is None:
        raise OncewayError("no landing place is configured", str(found), "See [uplink]")
    credentials.take(found)
    try:
        with tempfile.TemporaryDirectory(dir=data, prefix=".backup-") as folder:
            file = Path(folder) / "whole"
            manifest, size = _write(file, settings, found), file.stat().st_size
            with closing(open_landing(settings.uplink.landing, settings.uplink.options)) as landing:
                where = put(landing, settings.gateway.name, file, keep, date.today())
    except OSError as error:
        raise OncewayError(f"the backup cannot be written ({error.strerror})", str(data)) from error
    _tell(where, manifest, size, "FILE", as_json)


def _tell(where: str, manifest: contents.Manifest, size: int, file: str, as_json: bool) -> None:
    if as_json:
        told = {"backup": where, "gateway": manifest.gateway, "files": len(manifest.files)}
        typer.echo(json.dumps(told | {"bytes": size}))
        return
    (config,) = (entry.path for entry in manifest.files if entry.name == contents.CONFIG)
    to = "" if config == CONFIG_FILE else f" --config {config}"
    typer.echo(
        f"{where}: {manifest.gateway}, {len(manifest.files)} files, {size:,} bytes."
        f" This brings it back: sudo onceway restore {file}{to}"
    )


@restore_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="A file from `onceway backup`.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let this machine take the place of the gateway of a backup. Gateway and uplink must be
    stopped; what is here already is kept beside it.

    The passphrase is asked for, or taken from ONCEWAY_PASSPHRASE.

    Example: sudo onceway restore /mnt/usb/site-1.owback
    """
    target = config or config_file() or Path(CONFIG_FILE)
    try:
        archive = file.open("rb")
    except OSError as error:
        raise OncewayError(f"cannot read the backup ({error.strerror})", str(file)) from error
    with archive, tempfile.TemporaryDirectory(prefix=".restore-", dir=_above(target)) as folder:
        try:
            reader = SealedReader(archive, ask_passphrase(twice=False))
            manifest = contents.read(cast(BinaryIO, reader), Path(folder))
        except OncewayError as error:
            raise OncewayError(error.what, str(file), error.hint) from None
        data = load(Path(folder) / contents.CONFIG).gateway.data
        make_data_folder(data, manifest)
        with (
            closing(ProcessLock(data / "gateway.lock")),
            closing(ProcessLock(data / "uplink.lock")),
        ):
            notes = put_back(Path(folder), manifest, data, target)
    if as_json:
        told = {"data": str(data), "gateway": manifest.gateway, "machine": manifest.machine}
        told |= {"made": str(manifest.made), "config": str(target)}
        typer.echo(json.dumps(told | {"notes": [*notes, *_TO_KNOW]}))
        return
    machine = f"{manifest.made}, from {manifest.machine}"
    typer.echo(f"{data}: restored the gateway {manifest.gateway} of {machine}")
    typer.echo(f"- its configuration is {target}")
    for note in (*notes, *_TO_KNOW):
        typer.echo(f"- {note}")


_TO_KNOW = (
    "never let the old machine run again as this gateway: erase its card",
    "messages that clients had under way may come twice, boards' readings do not",
    "what the old machine received after the backup, and did not land, is on its card alone:"
    " `onceway store check --data FOLDER` looks at it",
    "start it: sudo systemctl start onceway-gateway onceway-uplink",
)


def _above(config: Path) -> Path:
    """A folder for files in clear: that of the configuration, which has secrets already."""
    folder = config.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise OncewayError(f"cannot be made ({error.strerror})", str(folder)) from error
    return folder
