"""The device registry. In: what was done to a board. Out: which devices there are, with which keys, and what is really on them.

A SQLite file that only its owner can read, since it holds keys. Its tables:
device (name, board, key, status 'flashing' | 'ready' | 'revoked', port, firmware SHA-256, created and flashed in ISO 8601 UTC).
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import sqlite_utils

from gateway.errors import OncewayError
from provisioning.identity import Identity

_SCHEMA_VERSION = 1
_WAIT_S = 20.0
"""For another process that writes."""


def default_path() -> Path:
    """The system's registry where this user may write it, else the user's own."""
    system = Path("/var/lib/onceway")
    if system.is_dir() and os.access(system, os.W_OK):
        return system / "registry.db"
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "onceway" / "registry.db"


@dataclass(frozen=True, slots=True)
class Device:
    """A row of the registry."""

    name: str
    board: str
    key: bytes = field(repr=False)
    status: str
    port: str | None
    firmware: str | None
    created: str
    flashed: str | None

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.key)

    def public(self) -> dict[str, str | None]:
        """What may be shown: everything but the key."""
        shown = ("name", "board", "status", "port", "firmware", "created", "flashed")
        return {column: getattr(self, column) for column in shown}


class Registry:
    """The registry in one file, made when missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            if os.geteuid() == 0:  # the gateway's own account reads it in its own folder
                owner = path.parent.stat()
                os.chown(path, owner.st_uid, owner.st_gid)
            self._database = sqlite_utils.Database(sqlite3.connect(path, timeout=_WAIT_S))
            self._migrate()
        except OSError as error:
            raise OncewayError(
                f"cannot open the device registry ({error.strerror})", str(path), "Name another one with --registry"
            ) from error
        except sqlite3.OperationalError as error:
            raise OncewayError(f"cannot open the device registry ({error})", str(path), "Does another process hold it?") from error
        except sqlite3.DatabaseError as error:
            raise OncewayError(f"this is not a device registry ({error})", str(path), "Name another one with --registry") from error

    def _migrate(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version > _SCHEMA_VERSION:
            raise OncewayError(
                f"the registry was written by a newer Onceway (schema {version}, this one knows {_SCHEMA_VERSION})",
                str(self.path),
                "Upgrade Onceway",
            )
        if version == 0:
            with self._writing():
                self._table.create(
                    {"name": str, "board": str, "key": bytes, "status": str, "port": str, "firmware": str, "created": str, "flashed": str},
                    pk="name",
                    not_null={"board", "key", "status", "created"},
                    strict=True,
                    if_not_exists=True,
                )
                self._database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction that takes the write lock before it reads: two that read first and write then would not wait for one another."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.conn.rollback()
            raise
        self._database.conn.commit()

    @property
    def _table(self) -> sqlite_utils.db.Table:
        return cast(sqlite_utils.db.Table, self._database["device"])

    def devices(self) -> list[Device]:
        """All devices by name."""
        return [_device(row) for row in self._table.rows_where(order_by="name")]

    def find(self, name: str) -> Device | None:
        return next((_device(row) for row in self._table.rows_where("name = ?", [name])), None)

    def get(self, name: str) -> Device:
        """The device of that name. Raises OncewayError if there is none."""
        device = self.find(name)
        if device is None:
            raise OncewayError(
                f"no device is called {name!r}", str(self.path), "`onceway device list` shows them; `onceway device provision` makes one"
            )
        return device

    def begin(self, identity: Identity, board: str, port: str) -> None:
        """Enter a device, or one that is written again, as `flashing`."""
        now = _now()
        with self._writing():
            if self.find(identity.name) is None:
                self._table.insert(
                    {"name": identity.name, "board": board, "key": identity.key, "status": "flashing", "port": port, "created": now}
                )
            else:
                self._table.update(identity.name, {"board": board, "key": identity.key, "status": "flashing", "port": port})

    def finish(self, name: str, firmware: str) -> None:
        """The board was written and read back: it is `ready`."""
        with self._writing():
            self._table.update(name, {"status": "ready", "firmware": firmware, "flashed": _now()})

    def revoke(self, name: str) -> None:
        """The device is no longer welcome; its row stays, so that its name is not given away by accident."""
        self.get(name)
        with self._writing():
            self._table.update(name, {"status": "revoked"})

    def remove(self, name: str) -> None:
        """Forget a device."""
        with self._writing():
            self._table.delete(name)

    def restore(self, device: Device) -> None:
        """Enter a device as a backup holds it, over what is known of it."""
        with self._writing():
            self._table.upsert(asdict(device), pk="name")


def _device(row: dict[str, Any]) -> Device:
    return Device(**row)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
