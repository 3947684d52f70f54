"""Restoring a gateway from the files of its backup.

In: the files of a backup in a folder, and its manifest. Out: store, registry, configuration, users,
certificates and signing key at their old paths. Existing files at these paths are kept under
another name. Gateway and uplink must be stopped.
"""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from gateway.backup.contents import CONFIG, REGISTRY, SIGNING_KEY, STORE, Entry, Manifest
from gateway.errors import OncewayError
from gateway.store import backup as store_backup
from gateway.store.schema import make_folder
from gateway.system.accounts import give_to_uplink
from gateway.system.sync import sync

_KEPT = ".before-restore"


def put_back(folder: Path, manifest: Manifest, data: Path, config: Path) -> list[str]:
    """Write all files of an unpacked backup to their paths. folder: the unpacked backup. data: the
    data directory. config: path of the configuration. Return notes for the user. Raises
    OncewayError.
    """
    notes = []
    for entry in manifest.files:
        if entry.name == STORE:
            old = store_backup.restore(data, folder / STORE)
            if old is not None:
                notes.append(f"the previous store was moved to {old}")
        elif entry.name == REGISTRY:
            notes += _registry(folder / REGISTRY, data / REGISTRY, entry)
        else:
            target = config if entry.name == CONFIG else Path(entry.path)
            _place(folder / entry.name, target, entry, keep=True)
            if entry.name == SIGNING_KEY:
                give_to_uplink(target, data)
    return notes


def make_data_folder(data: Path, manifest: Manifest) -> None:
    """Create the data directory if it does not exist. If root creates it, give it to the account
    that owned the store at the time of the backup, unless there is no such account here.
    """
    if data.exists():
        return
    make_folder(data)
    store = next(entry for entry in manifest.files if entry.name == STORE)
    if os.geteuid() == 0:
        with suppress(LookupError):
            shutil.chown(data, store.owner, store.group)


def _place(source: Path, target: Path, entry: Entry, *, keep: bool) -> None:
    """Write one file to its path. keep: whether an existing file with other content is kept, under
    another name.
    """
    try:
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, mode=0o750)
            _own(target.parent, entry)
        new = target.with_name(f".{target.name}.new")
        shutil.copyfile(source, new)
        new.chmod(entry.mode)
        _give(new, target, entry)
        sync(new)
        if keep and target.exists() and target.read_bytes() != new.read_bytes():
            os.replace(target, target.with_name(target.name + _KEPT))
        os.replace(new, target)
        sync(target.parent)
    except OSError as error:
        raise OncewayError(f"cannot be written ({error.strerror})", str(target)) from error


def _give(new: Path, target: Path, entry: Entry) -> None:
    """Set the owner of a new file, if the command runs as root: the owner of the existing file,
    else the account named in the backup, else the owner of the folder.
    """
    if os.geteuid() == 0 and target.exists():
        now = target.stat()
        os.chown(new, now.st_uid, now.st_gid)
    else:
        _own(new, entry)


def _own(new: Path, entry: Entry) -> None:
    if os.geteuid() != 0:
        return
    try:
        shutil.chown(new, entry.owner, entry.group)
    except LookupError:
        above = new.parent.stat()
        os.chown(new, above.st_uid, above.st_gid)


def _registry(source: Path, target: Path, entry: Entry) -> list[str]:
    """Write the registry to its path. A device that was revoked on this machine stays revoked.
    Return notes for the user.
    """
    try:
        revoked = _take_over_revoked(source, target) if target.exists() else []
    except sqlite3.Error as error:
        raise OncewayError(
            f"the device registry of the backup, or of this machine, cannot be read ({error})",
            str(target),
            "If the registry on this machine is damaged, move it away and restore again",
        ) from error
    _place(source, target, entry, keep=True)
    return (
        [f"devices revoked on this machine stay revoked: {', '.join(revoked)}"] if revoked else []
    )


def _take_over_revoked(restored: Path, present: Path) -> list[str]:
    """Copy the revocations of the present registry into the restored registry. Return the names of
    the devices that only the present registry had revoked.
    """
    with closing(sqlite3.connect(restored)) as database, database:
        database.execute("ATTACH ? AS here", (str(present),))
        names = [
            name
            for (name,) in database.execute(
                "SELECT name FROM here.device WHERE status = 'revoked' AND name NOT IN"
                " (SELECT name FROM main.device WHERE status = 'revoked') ORDER BY name"
            )
        ]
        both = [f'"{column}"' for column in _columns(database, "main") & _columns(database, "here")]
        columns = ", ".join(both)
        database.execute(
            f"INSERT OR IGNORE INTO main.device ({columns})"  # noqa: S608 - the tables' own columns
            f" SELECT {columns} FROM here.device WHERE status = 'revoked'"
        )
        database.executemany(
            "UPDATE main.device SET status = 'revoked' WHERE name = ?", [(name,) for name in names]
        )
    return names


def _columns(database: sqlite3.Connection, schema: str) -> set[str]:
    return {row[1] for row in database.execute(f"PRAGMA {schema}.table_info(device)")}
