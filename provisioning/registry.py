"""The device registry: the devices, with their keys and their firmware.

A SQLite file (`schema.py`). It holds keys, so only its owner can read it: root, and the account
that owns the folder.
"""

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import sqlite_utils

from gateway.errors import NotAllowed, OncewayError, Unknown
from gateway.site.shared_state.board_entry import Entry
from gateway.system.causes import DAMAGED, cause, of_machine
from provisioning.identity import Identity, check_name
from provisioning.radio_plan import RadioPlan
from provisioning.schema import migrate
from provisioning.sharing import Shared, share

_WAIT_S = 20.0
"""Longest wait for another process that writes, in seconds."""

SHOWN = ("name", "board", "status", "port", "firmware", "created", "flashed")
"""Columns that are printed for every device. The key is never printed."""

Rows = dict[str, list[dict[str, Any]]]
"""All rows, by table name."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the registry. status: the column's value; or `flashing` while the board is being
    written, and, if the writing was interrupted, until the same command has finished. radio,
    before: see `schema.py`.
    """

    name: str
    board: str | None
    key: bytes | None = field(repr=False)
    status: str
    port: str | None
    firmware: str | None
    created: str
    flashed: str | None
    changed: str
    radio: str | None = None
    before: str | None = None

    @property
    def channel(self) -> RadioPlan | None:
        """Channel of a radio board, else None."""
        return RadioPlan.from_json(self.radio) if self.radio else None

    def public(self) -> dict[str, str | None]:
        """Return the fields that may be printed."""
        fields = {column: getattr(self, column) for column in SHOWN}
        return fields | ({"radio": str(self.channel)} if self.radio else {})


@dataclass(frozen=True, slots=True)
class Work:
    """A board that is being written; a row of the table `work`."""

    name: str
    board: str
    key: bytes = field(repr=False)
    port: str
    was: str | None
    begun: str
    radio: str | None = None

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.key)

    @property
    def channel(self) -> RadioPlan | None:
        """Channel of a radio board, else None."""
        return RadioPlan.from_json(self.radio) if self.radio else None


class Registry:
    """The registry in one file. make: whether to create a missing file; if not, a missing file
    reads as an empty registry in memory.
    """

    def __init__(self, path: Path, make: bool = True) -> None:
        self.path = path
        try:
            kept = make or path.exists()
            if kept:
                _prepare(path)
            connection = sqlite3.connect(
                path if kept else ":memory:", timeout=_WAIT_S, isolation_level=None
            )
            self._database = sqlite_utils.Database(connection)
            migrate(connection, str(path))
        except OSError as error:
            denied = isinstance(error, PermissionError)
            raise (NotAllowed if denied else OncewayError)(
                f"cannot open the device registry ({error.strerror})",
                str(path),
                "Run the command with sudo" if denied else _todo(error),
            ) from error
        except sqlite3.OperationalError as error:
            reason, todo = cause(error, path.parent)
            text = f"cannot open the device registry: {reason} ({error})"
            raise OncewayError(text, str(path), todo) from error
        except sqlite3.DatabaseError as error:
            raise OncewayError(
                f"this is not a device registry, or a damaged one ({error})",
                str(path),
                "Restore the registry from a backup, or name another one with --registry",
            ) from error

    def close(self) -> None:
        """Close the file. The registry cannot be used afterwards."""
        self._database.conn.close()

    @contextmanager
    def _write_transaction(self) -> Iterator[None]:
        """Open a transaction that takes the write lock at its beginning. Otherwise, if two
        transactions read first and then wrote, one would fail instead of waiting for the other.
        """
        connection = self._database.conn
        with self._errors_explained():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text_of_cause, todo = cause(error)
            if text_of_cause == DAMAGED.reason:
                todo = "Restore a backup: onceway registry import"
            text = f"the device registry cannot be used: {text_of_cause} ({error})"
            raise OncewayError(text, str(self.path), todo) from error

    def _table(self, name: str) -> sqlite_utils.db.Table:
        return cast(sqlite_utils.db.Table, self._database[name])

    def devices(self) -> list[Device]:
        """Return all devices, sorted by name. A device with an unfinished job has the status
        `flashing`.
        """
        works = {work.name: work for work in self.works()}
        leaving = {work.was for work in works.values()}
        with self._errors_explained():
            found = {row["name"]: Device(**row) for row in self._table("device").rows}
        for name, known in found.items():
            if name in leaving and known.status != "revoked":
                # A board that is being renamed is listed under its new name.
                found[name] = replace(known, status="flashing")
        for name, work in works.items():
            new = Device(
                name,
                work.board,
                work.key,
                "flashing",
                work.port,
                None,
                work.begun,
                None,
                work.begun,
                work.radio,
            )
            old = found.get(name, new)
            found[name] = replace(
                new, firmware=old.firmware, created=old.created, flashed=old.flashed
            )
        return [found[name] for name in sorted(found)]

    def works(self) -> list[Work]:
        """Return all boards whose writing is in progress, or was interrupted."""
        with self._errors_explained():
            return [Work(**row) for row in self._table("work").rows]

    def work(self, name: str) -> Work | None:
        return next((work for work in self.works() if work.name == name), None)

    def find(self, name: str) -> Device | None:
        return next((device for device in self.devices() if device.name == name), None)

    def get(self, name: str) -> Device:
        """Return the device with this name. Raises OncewayError if there is none."""
        device = self.find(name)
        if device is None:
            raise Unknown(
                f"no device is called {name!r}",
                str(self.path),
                "`onceway device list` shows the devices; `onceway device add` adds one",
            )
        return device

    def begin(
        self,
        identity: Identity,
        board: str,
        port: str,
        was: str | None = None,
        radio: RadioPlan | None = None,
    ) -> Work:
        """Note that a board is about to be written. was: the board's present name, if it is to be
        renamed. Raises OncewayError if another radio board has the number in `radio`.
        """
        text = radio.to_json() if radio else None
        work = Work(identity.name, board, identity.key, port, was, _now(), text)
        with self._write_transaction():
            if radio:
                self._check_number(radio, {work.name, was})
            self._table("work").upsert(asdict(work), pk="name")
        return work

    def _check_number(self, radio: RadioPlan, own: set[str | None]) -> None:
        for other in self.devices():
            other_radio = other.channel
            if other_radio is None or other.name in own:
                continue
            if (other_radio.network, other_radio.device) == (radio.network, radio.device):
                raise OncewayError(
                    f"{other.name!r} has the number {radio.device} in network {radio.network}",
                    str(self.path),
                    "Choose another --number, or leave it out: then a free one is chosen",
                )

    def abandon(self, work: Work, earlier: Work | None) -> None:
        """Remove the record of a job that did not touch the board. earlier: the interrupted job
        whose record this job replaced; the earlier record is written again.
        """
        with self._write_transaction():
            if self.work(work.name) == work:
                self._table("work").delete(work.name)
                if earlier is not None:
                    self._table("work").insert(asdict(earlier))

    def finish(self, work: Work, firmware: str | None, greets: bool = True) -> Device:
        """Add a board to the registry after it was written and read back. greets: whether the board
        has greeted: its status is `ready` if so, else `written`. firmware: None if the board keeps
        its firmware. Raises OncewayError if another command has changed this work's record in the
        meantime.
        """
        names, now = [work.name, work.was], _now()
        with self._write_transaction():
            if self.work(work.name) != work:
                raise OncewayError(
                    f"the board was written, but {work.name!r} was changed by another command"
                    " meanwhile",
                    str(self.path),
                    "Write it again",
                )
            known = self.get(work.was or work.name)
            device = Device(
                work.name,
                work.board,
                work.key,
                "ready" if greets else "written",
                work.port,
                firmware or known.firmware,
                known.created,
                now,
                now,
                work.radio,
            )
            self._table("device").delete_where("name IN (?, ?)", names)
            self._table("device").insert(asdict(device))
            self._table("work").delete_where("name IN (?, ?) OR was IN (?, ?)", names * 2)
        return device

    def admit(self, name: str) -> Device:
        """Admit a device that the registry does not have yet, or end the revocation of a device.
        Any other device stays as it is. Return the device.
        """
        check_name(name)
        known = self.find(name)
        if known is not None and known.status != "revoked":
            return known
        with self._write_transaction():
            if known is None:
                self._table("device").insert(
                    {"name": name, "status": "admitted", "created": _now(), "changed": _now()}
                )
            else:
                status = known.before or ("written" if known.key else "admitted")
                self._table("device").update(
                    name, {"status": status, "before": None, "changed": _now()}
                )
        return self.get(name)

    def revoke(self, name: str) -> None:
        """Revoke a device. Its row stays, so that no other device gets the name by accident."""
        known = self.get(name)
        if known.status == "revoked":
            return
        before = "written" if known.status == "flashing" else known.status
        with self._write_transaction():
            self._table("work").delete_where("name = ? OR was = ?", [name, name])
            if not self._table("device").count_where("name = ?", [name]):
                self._table("device").insert(asdict(replace(known, status="revoked")))
            self._table("device").update(
                name, {"status": "revoked", "before": before, "changed": _now()}
            )

    def dump(self) -> Rows:
        """Return all rows, for a backup."""
        return {table: list(self._table(table).rows) for table in ("device", "work")}

    def load(self, rows: Rows) -> list[str]:
        """Enter the devices of a backup, in one transaction. Devices that the backup lacks stay.
        rows: the result of `dump`. Return the names of devices that were left unchanged: after the
        time of their row in the backup, they were revoked or admitted here, or got another key or
        number.
        """
        with self._write_transaction():
            present = {row["name"]: row for row in self._table("device").rows}
            entries = [_converted(entry) for entry in rows["device"]]
            kept = [
                entry["name"] for entry in entries if _is_newer(present.get(entry["name"]), entry)
            ]
            entered = [entry for entry in entries if entry["name"] not in kept]
            work = [
                entry
                for entry in rows["work"]
                if not {entry["name"], entry["was"]} & {*kept}
                and present.get(entry["name"], {}).get("changed", "") <= entry["begun"]
            ]
            for entry in entered:
                self._table("work").delete_where(
                    "name = ? OR was = ?", [entry["name"], entry["name"]]
                )
            self._table("device").upsert_all(entered, pk="name")
            self._table("work").upsert_all(work, pk="name")
        return kept

    def share(self, incoming: Iterable[Entry], member: str = "") -> Shared:
        """Merge the entries that another gateway of the site has sent (`sharing.share`)."""
        with self._write_transaction():
            return share(self._database.conn, incoming, member)


def _converted(entry: dict[str, Any]) -> dict[str, Any]:
    """Convert a device row of an older backup: it lacks the time of the device's last change."""
    return {"changed": entry.get("flashed") or entry["created"]} | entry


def _is_newer(present: dict[str, Any] | None, entry: dict[str, Any]) -> bool:
    """Whether a device has another key, status or radio plan here than in the backup, and the last
    change here is not older.
    """
    return (
        present is not None
        and present["changed"] >= entry["changed"]
        and any(present[column] != entry.get(column) for column in ("key", "status", "radio"))
    )


def _prepare(path: Path) -> None:
    """Create the file if it is missing. Make the file readable for its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    path.touch(mode=0o600)
    if os.geteuid() == 0:  # the gateway's own account must read the file in its folder
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
    path.chmod(0o600)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _todo(error: OSError) -> str:
    """Return the remedy for a registry that cannot be opened."""
    found = of_machine(error)
    return found.todo if found else "Name another registry with --registry"
