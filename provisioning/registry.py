"""The device registry. In: what was done to a board. Out: which devices there are, with which keys,
and what is really on them.

A SQLite file (`schema.py`) that only its owner can read, since it holds keys: root, and the account
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

from gateway.errors import OncewayError
from gateway.site.shared_state.board_entry import Entry
from provisioning.identity import Identity, check_name
from provisioning.radio_plan import RadioPlan
from provisioning.schema import migrate
from provisioning.sharing import share

_WAIT_S = 20.0
"""For another process that writes."""

SHOWN = ("name", "board", "status", "port", "firmware", "created", "flashed")
"""What may be shown of a device: everything but the key."""

Rows = dict[str, list[dict[str, Any]]]
"""All rows by table."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the registry. status: as in the table, or `flashing` while its board is being
    written, or that was interrupted. radio, before: as in the table.
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
        """Of a board by radio."""
        return RadioPlan.from_json(self.radio) if self.radio else None

    def public(self) -> dict[str, str | None]:
        """What may be shown."""
        told = {column: getattr(self, column) for column in SHOWN}
        return told | ({"radio": str(self.channel)} if self.radio else {})


@dataclass(frozen=True, slots=True)
class Work:
    """A board that is being written: see the table."""

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
        """Of a board by radio."""
        return RadioPlan.from_json(self.radio) if self.radio else None


class Registry:
    """The registry in one file. make: whether a missing one is made; else it is an empty one that
    nobody keeps.
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
            raise OncewayError(
                f"cannot open the device registry ({error.strerror})",
                str(path),
                "Run the command with sudo" if denied else "Name another one with --registry",
            ) from error
        except sqlite3.OperationalError as error:
            raise OncewayError(
                f"cannot open the device registry ({error})",
                str(path),
                "Does another process hold it?",
            ) from error
        except sqlite3.DatabaseError as error:
            raise OncewayError(
                f"this is not a device registry ({error})",
                str(path),
                "Name another one with --registry",
            ) from error

    def close(self) -> None:
        """Let the file go; nothing else can be asked then."""
        self._database.conn.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction that takes the write lock before it reads: two that read first and write
        then would not wait for one another.
        """
        connection = self._database.conn
        with self._in_words():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            hint = (
                "Is its disk full, or does another process hold it? `onceway registry import`"
                " restores a backup of a damaged one"
            )
            raise OncewayError(
                f"the device registry cannot be used ({error})", str(self.path), hint
            ) from error

    def _table(self, name: str) -> sqlite_utils.db.Table:
        return cast(sqlite_utils.db.Table, self._database[name])

    def devices(self) -> list[Device]:
        """All devices by name."""
        works = {work.name: work for work in self.works()}
        leaving = {work.was for work in works.values()}
        with self._in_words():
            found = {row["name"]: Device(**row) for row in self._table("device").rows}
        for name, known in found.items():
            if name in leaving and known.status != "revoked":
                # its board is about to have another name
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
        """All boards that are being written, or were when that was interrupted."""
        with self._in_words():
            return [Work(**row) for row in self._table("work").rows]

    def work(self, name: str) -> Work | None:
        return next((work for work in self.works() if work.name == name), None)

    def find(self, name: str) -> Device | None:
        return next((device for device in self.devices() if device.name == name), None)

    def get(self, name: str) -> Device:
        """The device of that name. Raises OncewayError if there is none."""
        device = self.find(name)
        if device is None:
            raise OncewayError(
                f"no device is called {name!r}",
                str(self.path),
                "`onceway device list` shows them; `onceway device add` makes one",
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
        """A board is about to be written. was: the name that it has, when this is to be another.
        Raises OncewayError: another board by radio has its number.
        """
        text = radio.to_json() if radio else None
        work = Work(identity.name, board, identity.key, port, was, _now(), text)
        with self._writing():
            if radio:
                self._check_number(radio, {work.name, was})
            self._table("work").upsert(asdict(work), pk="name")
        return work

    def _check_number(self, radio: RadioPlan, own: set[str | None]) -> None:
        for other in self.devices():
            there = other.channel
            if there is None or other.name in own:
                continue
            if (there.network, there.device) == (radio.network, radio.device):
                raise OncewayError(
                    f"{other.name!r} has the number {radio.device} in network {radio.network}",
                    str(self.path),
                    "Choose another --number, or none, and one that is free is taken",
                )

    def abandon(self, work: Work, earlier: Work | None) -> None:
        """The board was not touched: what was said of it before holds. earlier: the work under this
        name that was interrupted before.
        """
        with self._writing():
            if self.work(work.name) == work:
                self._table("work").delete(work.name)
                if earlier is not None:
                    self._table("work").insert(asdict(earlier))

    def finish(self, work: Work, firmware: str | None, greets: bool = True) -> Device:
        """The board was written and read back, and has greeted: it is `ready`; `written` if it is
        not one that greets. firmware: None if it has the one that it had. Raises OncewayError if
        another command took the name meanwhile.
        """
        names, now = [work.name, work.was], _now()
        with self._writing():
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
        """Let a device in: one that was never written here, or one that was revoked."""
        check_name(name)
        known = self.find(name)
        if known is not None and known.status != "revoked":
            return known
        with self._writing():
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
        """The device is no longer welcome; its row stays, so that its name is not given away by
        accident.
        """
        known = self.get(name)
        if known.status == "revoked":
            return
        before = "written" if known.status == "flashing" else known.status
        with self._writing():
            self._table("work").delete_where("name = ? OR was = ?", [name, name])
            if not self._table("device").count_where("name = ?", [name]):
                self._table("device").insert(asdict(replace(known, status="revoked")))
            self._table("device").update(
                name, {"status": "revoked", "before": before, "changed": _now()}
            )

    def dump(self) -> Rows:
        """Everything, for a backup."""
        return {table: list(self._table(table).rows) for table in ("device", "work")}

    def load(self, rows: Rows) -> list[str]:
        """Enter what `dump` gave, over what is known of the same devices: all or nothing. Returns
        the names of those that stay as they are: after what the backup says of them they were
        revoked here, let in, or given another key or number.
        """
        with self._writing():
            here = {row["name"]: row for row in self._table("device").rows}
            entries = [_of_now(entry) for entry in rows["device"]]
            kept = [entry["name"] for entry in entries if _is_newer(here.get(entry["name"]), entry)]
            entered = [entry for entry in entries if entry["name"] not in kept]
            work = [
                entry
                for entry in rows["work"]
                if not {entry["name"], entry["was"]} & {*kept}
                and here.get(entry["name"], {}).get("changed", "") <= entry["begun"]
            ]
            for entry in entered:
                self._table("work").delete_where(
                    "name = ? OR was = ?", [entry["name"], entry["name"]]
                )
            self._table("device").upsert_all(entered, pk="name")
            self._table("work").upsert_all(work, pk="name")
        return kept

    def share(self, incoming: Iterable[Entry]) -> tuple[list[Entry], list[str]]:
        """What `sharing.share` says, for the other gateways of the site."""
        with self._writing():
            return share(self._database.conn, incoming)


def _of_now(entry: dict[str, Any]) -> dict[str, Any]:
    """A device of a backup as the table has it now: older ones do not say when it changed."""
    return {"changed": entry.get("flashed") or entry["created"]} | entry


def _is_newer(here: dict[str, Any] | None, entry: dict[str, Any]) -> bool:
    """Whether what counts when a board greets has changed here after what a backup says of it."""
    return (
        here is not None
        and here["changed"] >= entry["changed"]
        and any(here[column] != entry.get(column) for column in ("key", "status", "radio"))
    )


def _prepare(path: Path) -> None:
    """The file is there, and none but its owner can read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    path.touch(mode=0o600)
    if os.geteuid() == 0:  # the gateway's own account reads it in its own folder
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
    path.chmod(0o600)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
