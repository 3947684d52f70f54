"""`onceway backup FILE` and `onceway restore FILE`: a whole gateway, on this machine or another."""

import io
import json
import os
import shutil
import tempfile
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from gateway.backup import contents
from gateway.backup.landing import Pieces, put, remove_old
from gateway.backup.restore import make_data_folder, put_back
from gateway.backup.sealed import BackupError, SealedReader, SealedWriter
from gateway.commands.options import (
    CONFIG_FILE,
    ConfigOption,
    JsonOption,
    config_file,
    default_file,
    nothing_named,
)
from gateway.commands.passphrase import ask_passphrase
from gateway.config import Config, load
from gateway.errors import OncewayError, UsageError
from gateway.store.board_queues import dropped_by_restore
from gateway.store.schema import existing
from gateway.system.last_backup import LOCK, LastBackup, last_backup
from gateway.system.lock import ProcessLock
from gateway.system.sync import sync
from gateway.uplink import credentials
from gateway.uplink.cli import NoUplink
from gateway.uplink.landing import Landing, open_landing
from gateway.uplink.owner import must_be_the_place
from gateway.uplink.spool import Spool

backup_app = typer.Typer()
restore_app = typer.Typer()


@backup_app.command("backup")
def backup(
    file: Annotated[Path | None, typer.Argument(help="The file to create.")] = None,
    to_landing: Annotated[
        bool,
        typer.Option("--to-landing", help="Store the backup at the landing place, not in a file."),
    ] = False,
    keep: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of backups that stay at the landing place.")
    ] = 7,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the whole gateway to one encrypted file: store, device registry, users, configuration,
    certificates, the key that signs batches and this gateway's place in its site.

    The gateway may run meanwhile. The passphrase is asked for, or taken from ONCEWAY_PASSPHRASE. At
    the landing place the backup is GATEWAY/backups/TIME-EPOCH.owback, and the newest KEEP stay;
    onceway-backup.timer makes one each night. A backup above 64 MB is stored there in several
    files: to restore it, fetch all files whose names begin with the backup's name.

    Example: sudo onceway backup /mnt/usb/site-1.owback
    """
    if (file is None) != to_landing:
        raise UsageError("name a file, or give --to-landing", hint="onceway backup --help")
    found = config_file(config)
    if found is None:
        raise nothing_named("Name the configuration with --config FILE")
    settings = load(found)
    data = settings.gateway.data
    if to_landing and not data.is_dir():
        existing(data)
    with closing(ProcessLock(data / LOCK)) if data.is_dir() else nullcontext():
        for leftover in data.glob(f"{contents.TEMPORARY}*"):
            shutil.rmtree(leftover, ignore_errors=True)  # left by a backup that was killed
        if file is None:
            _to_landing(settings, found, keep, as_json)
        else:
            _to_file(settings, found, file, as_json)


def _to_file(settings: Config, found: Path, file: Path, as_json: bool) -> None:
    if file.exists():
        raise OncewayError("the file exists already", str(file), "Name another file")
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
    _print_summary(str(file), manifest, file.stat().st_size, str(file), as_json)


def _write(file: Path, settings: Config, found: Path) -> contents.Manifest:
    passphrase = ask_passphrase(twice=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        sealed = SealedWriter(out, passphrase)
        manifest = contents.write(cast(BinaryIO, sealed), settings, found)
        sealed.finish()
    return manifest


def _to_landing(settings: Config, found: Path, keep: int, as_json: bool) -> None:
    """Write a backup to the landing place. Record in the data directory whether it succeeded
    (`LastBackup`).
    """
    data = settings.gateway.data
    try:
        note = (last_backup(data) or LastBackup(0)).begin(data)
    except OSError as error:
        raise _restore_error(error, data) from error
    try:
        credentials.take(found)
        with (
            tempfile.TemporaryDirectory(dir=data, prefix=contents.TEMPORARY) as folder,
            closing(_landing(settings, found)) as landing,
        ):
            file = Path(folder) / "whole"
            manifest, size = _write(file, settings, found), file.stat().st_size
            gateway, now = settings.gateway.name, datetime.now(UTC)
            where = put(landing, gateway, _epoch(data, landing), file, now)
            note = note.succeed(data, where)
            remove_old(landing, gateway, keep, now)
    except (OncewayError, OSError) as error:
        failed = _restore_error(error, data)
        note.fail(data, str(failed))
        raise failed from error
    _print_summary(where, manifest, size, "FILE", as_json)


def _landing(settings: Config, found: Path) -> Landing:
    if settings.uplink is None:
        raise NoUplink(str(found))
    return open_landing(settings.uplink.landing, settings.uplink.options, settings.uplink.shared)


def _epoch(data: Path, landing: Landing) -> str:
    """Return the epoch of the store. Raises Unreachable if the store's batches have landed, but are
    missing at this landing place, for example because its folder is not mounted.
    """
    with Spool(data, to_read=True) as spool:
        origin = spool.origin()
        must_be_the_place(landing, origin.gateway, spool.last_landed()[0])
        return origin.epoch


def _restore_error(error: OncewayError | OSError, data: Path) -> OncewayError:
    if isinstance(error, OncewayError):
        return error
    return OncewayError(f"the backup cannot be written ({error.strerror})", str(data))


def _print_summary(
    where: str, manifest: contents.Manifest, size: int, file: str, as_json: bool
) -> None:
    if as_json:
        summary = {"backup": where, "gateway": manifest.gateway, "files": len(manifest.files)}
        typer.echo(json.dumps(summary | {"bytes": size}))
        return
    (config,) = (entry.path for entry in manifest.files if entry.name == contents.CONFIG)
    to = "" if config == CONFIG_FILE else f" --config {config}"
    typer.echo(
        f"{where}: {manifest.gateway}, {len(manifest.files)} files, {size:,} bytes."
        f" To restore it: sudo onceway restore {file}{to}"
    )


@restore_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="A file from `onceway backup`.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let this machine take the place of the gateway in a backup. Gateway and uplink must be
    stopped. Files that exist already are kept under another name. Commands in the backup that still
    wait for boards are listed, then dropped, because the boards begin new sessions.

    The passphrase is asked for, or taken from ONCEWAY_PASSPHRASE.

    Example: sudo onceway restore /mnt/usb/site-1.owback
    """
    target = config or Path(default_file())
    try:
        archive = io.BufferedReader(cast(io.RawIOBase, Pieces(file)))
    except OSError as error:
        raise BackupError(f"cannot read the backup ({error.strerror})", str(file)) from error
    with archive, tempfile.TemporaryDirectory(prefix=".restore-", dir=_above(target)) as folder:
        try:
            reader = SealedReader(archive, ask_passphrase(twice=False))
            manifest = contents.read(cast(BinaryIO, reader), Path(folder))
        except OncewayError as error:
            error.where = str(file)
            raise
        data = load(Path(folder) / contents.CONFIG).gateway.data
        make_data_folder(data, manifest)
        with (
            closing(ProcessLock(data / "gateway.lock")),
            closing(ProcessLock(data / "uplink.lock")),
        ):
            dropped = dropped_by_restore(Path(folder) / contents.STORE)
            for line in [] if as_json else dropped:
                typer.echo(f"message dropped, because boards begin new sessions: {line}")
            notes = put_back(Path(folder), manifest, data, target)
    if as_json:
        summary = {"data": str(data), "gateway": manifest.gateway, "machine": manifest.machine}
        summary |= {"made": str(manifest.made), "config": str(target)}
        typer.echo(json.dumps(summary | {"dropped": dropped, "notes": [*notes, *_TO_KNOW]}))
        return
    machine = f"{manifest.made}, from {manifest.machine}"
    typer.echo(f"{data}: restored the gateway {manifest.gateway} of {machine}")
    typer.echo(f"- the gateway's configuration is in {target}")
    for note in (*notes, *_TO_KNOW):
        typer.echo(f"- {note}")


_TO_KNOW = (
    "never let the old machine run again as this gateway",
    "messages of clients that were in flight may arrive twice; readings of boards do not",
    "readings that the old machine received after the backup and did not land are only on its card."
    " Land them before you erase the card: onceway spool land --help",
    "start the gateway: sudo systemctl start onceway-gateway onceway-uplink",
)


def _above(config: Path) -> Path:
    """Return the folder of the configuration. Unencrypted files may be written there, because the
    configuration holds secrets already. The folder is created if it is missing.
    """
    folder = config.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise OncewayError(f"cannot be created ({error.strerror})", str(folder)) from error
    return folder
