"""The content of a backup: a tar archive of `manifest.json` and the files that it names.

In: a configuration, or an archive. Out: the archive, or its files in a folder. All files of an
archive are checked before a file of this machine is changed.
"""

import grp
import json
import os
import pwd
import shutil
import socket
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter

from gateway import __version__
from gateway.backup.sealed import BackupError
from gateway.config import Config
from gateway.errors import OncewayError
from gateway.site.pki.folder import KEPT
from gateway.store import backup as store_backup
from gateway.system.causes import DAMAGED, cause
from gateway.uplink import signing

STORE, REGISTRY, CONFIG = "gateway.db", "registry.db", "gateway.toml"
SIGNING_KEY = signing.FILE
TEMPORARY = ".backup-"
"""Prefix of the temporary folders in the data directory, which exist while a backup is made."""
_MANIFEST = "manifest.json"
_FORMAT = 1
_MOST_MANIFEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the gateway in a backup."""

    name: str
    """Name in the archive."""
    path: str
    """Absolute path on the gateway."""
    mode: int
    owner: str
    group: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a backup, and when, where and by which version the backup was made."""

    format: int
    version: str
    """Version of Onceway that made the backup."""
    gateway: str
    made: str
    """Time at which the backup was made, ISO 8601, UTC."""
    machine: str
    """Host name of the machine that made the backup."""
    files: list[Entry]


def write(archive: BinaryIO, config: Config, config_file: Path) -> Manifest:
    """Write the gateway's files to `archive` as a tar archive, and return its manifest. The gateway
    may run meanwhile. Raises OncewayError.
    """
    data = config.gateway.data
    with (
        tempfile.TemporaryDirectory(dir=data, prefix=TEMPORARY) as folder,
        tarfile.open(fileobj=archive, mode="w|") as tar,
    ):
        copies = {STORE: Path(folder) / STORE}
        store_backup.backup(data, copies[STORE])
        if (data / REGISTRY).exists():
            copies[REGISTRY] = Path(folder) / REGISTRY
            _copy_database(data / REGISTRY, copies[REGISTRY])
        places = dict(_places(config, config_file))
        manifest = Manifest(
            _FORMAT,
            __version__,
            config.gateway.name,
            datetime.now(UTC).isoformat(timespec="seconds"),
            socket.gethostname(),
            [_entry(name, path) for name, path in places.items() if path.exists()],
        )
        text = Path(folder) / _MANIFEST
        text.write_text(json.dumps(asdict(manifest)))
        tar.add(text, _MANIFEST)
        for entry in manifest.files:
            tar.add(copies.get(entry.name, places[entry.name]), entry.name)
    return manifest


def _places(config: Config, config_file: Path) -> Iterator[tuple[str, Path]]:
    data = config.gateway.data
    yield STORE, data / STORE
    yield REGISTRY, data / REGISTRY
    yield (
        SIGNING_KEY,
        data / SIGNING_KEY,
    )  # without this key the centre would accept no more batches
    yield CONFIG, config_file.absolute()
    yield "users", config.users_file
    for number, listener in enumerate(config.listener, 1):
        if listener.tls is not None:
            for key in ("certificate", "key", "client_ca", "client_crl"):
                if (path := getattr(listener.tls, key)) is not None:
                    yield f"listener-{number}-{key}.pem", Path(path).absolute()
    if config.page is not None:
        for key in ("certificate", "key"):
            if (path := getattr(config.page, key)) is not None:
                yield f"page-{key}.pem", Path(path).absolute()
    for (
        name
    ) in KEPT:  # open invitations are left out: an invitation that was used must not come back
        yield f"site-{name}", (config.site_folder / name).absolute()
    for bridge in config.bridge:
        for key in ("ca", "certificate", "key", "password_file"):
            if (path := getattr(bridge, key)) is not None:
                yield f"bridge-{bridge.name}-{key}", Path(path).absolute()


def _entry(name: str, path: Path) -> Entry:
    found = path.stat()
    owner, group = str(found.st_uid), str(found.st_gid)
    with suppress(KeyError):
        owner = pwd.getpwuid(found.st_uid).pw_name
        group = grp.getgrgid(found.st_gid).gr_name
    return Entry(name, str(path), found.st_mode & 0o777, owner, group)


def _copy_database(source: Path, target: Path) -> None:
    target.touch(0o600)
    try:
        with (
            closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as registry,
            closing(sqlite3.connect(target)) as copy,
        ):
            registry.backup(copy)
            if copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise OncewayError(DAMAGED.reason, str(source))
    except sqlite3.Error as error:
        reason, _ = cause(error, source.parent, target.parent)
        raise OncewayError(f"it cannot be copied: {reason} ({error})", str(source)) from error


def read(archive: BinaryIO, folder: Path) -> Manifest:
    """Extract the files of an archive into a folder, and return the manifest. Raises
    OncewayError.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r|") as tar:
            members = iter(tar)
            manifest = _manifest(tar, next(members, None))
            expected = {entry.name for entry in manifest.files}
            for member in members:
                content = tar.extractfile(member)
                if content is None or member.name not in expected:
                    raise BackupError(f"the backup holds an unknown file {member.name!r}")
                expected.remove(member.name)
                with (folder / member.name).open("xb") as file:
                    shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, KeyError) as error:  # KeyError: a link to nothing
        raise BackupError(f"the backup cannot be read ({error})") from error
    except OSError as error:
        raise OncewayError(f"the backup cannot be unpacked ({error.strerror})") from error
    while archive.read(1 << 16):
        pass  # the end of the stream must be intact, too
    if expected:
        raise BackupError(f"the backup lacks {', '.join(sorted(expected))}")
    return manifest


def _is_possible(entry: Entry) -> bool:
    """Whether a backup could have written an entry with this name, path, owner, group and mode."""
    texts = (entry.name, entry.path, entry.owner, entry.group)
    return (
        not any("\0" in text or not text.isprintable() for text in texts)
        and entry.name not in ("", ".", "..", _MANIFEST)
        and os.path.basename(entry.name) == entry.name
        and os.path.isabs(entry.path)
        and Path(entry.path).name not in ("", "..")
        and 0 <= entry.mode <= 0o777
    )


def _manifest(tar: tarfile.TarFile, member: tarfile.TarInfo | None) -> Manifest:
    file = tar.extractfile(member) if member and member.name == _MANIFEST else None
    if file is None:
        raise BackupError("the backup has no list of its files (manifest.json)")
    try:
        values = json.loads(file.read(_MOST_MANIFEST))
        if isinstance(values, dict) and values.get("format") != _FORMAT:
            raise BackupError(
                f"the backup was made by another version of Onceway ({values.get('version')})",
                hint="Install that version, or a newer one",
            )
        manifest = TypeAdapter(Manifest).validate_python(values)
    except (ValueError, RecursionError) as error:  # pydantic's errors are ValueErrors
        raise BackupError(
            f"the backup's list of files (manifest.json) is wrong ({error})"
        ) from error
    names = [entry.name for entry in manifest.files]
    for entry in manifest.files:
        if not _is_possible(entry) or names.count(entry.name) > 1:
            raise BackupError(f"the backup holds an unknown file {entry.name!r}")
    if lacking := {STORE, CONFIG} - {entry.name for entry in manifest.files}:
        raise BackupError(f"the backup lacks {', '.join(sorted(lacking))}")
    return manifest
