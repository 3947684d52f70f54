"""Which boards may greet: none that was revoked, and on a port that is not open to all only those
in the device registry.

In: a name from a HELLO, and the registry as it changes. Out: yes or no; the end of a connection
whose device was revoked; and `DATA/pending.json`, the strangers that ask to be let in now:
`[{"name": …, "port": …}]`. The registry is `DATA/registry.db`, table `device`
(`provisioning/registry.py`). It is read at each greeting and looked at every second, so nothing
done to it needs a restart of the gateway.
"""

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from gateway.broker.access import ByAcl, Refusal
from gateway.broker.connection import Connection
from gateway.links.serial_port import PortStatus
from gateway.lock import holder
from gateway.logs import about
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode
from gateway.service.engine import Engine

log = logging.getLogger(__name__)

FILE = "registry.db"
PENDING = "pending.json"
LOOK_S = 1.0
_LOCKED_S = 0.5
"""A writer of the registry takes milliseconds; the event loop waits no longer for one."""
_COUNTER_AT, _COUNTER_SIZE = 24, 4
_MOST_TOLD = 1000
"""Names of strangers that the log tells, once each."""


class Registry:
    """The device registry in the data directory, for reading."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    @property
    def stamp(self) -> bytes:
        """Differs after each change: the change counter in the file's header (SQLite's "Database
        File Format", section 1.3.7). Empty while there is no registry.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(_COUNTER_AT)
                return file.read(_COUNTER_SIZE)
        except OSError:
            return b""

    def admits(self, name: str, stranger: bool) -> bool:
        """Whether this device may connect. stranger: the answer for a name that is not
        registered.
        """
        try:
            return _welcome(self._statuses("name = ?", name), name, stranger)
        except sqlite3.Error as error:
            log.error(
                "%s: the device registry cannot be read (%s); %s is refused",
                self._path,
                error,
                name,
            )
            return False

    def knows(self, name: str) -> bool:
        """Whether the name is registered, be it revoked. A registry that cannot be read knows every
        name.
        """
        try:
            return name in self._statuses("name = ?", name)
        except sqlite3.Error:
            return True

    def statuses(self) -> dict[str, str]:
        """Of all devices, by name. Raises sqlite3.Error when the registry cannot be read now."""
        return self._statuses("true")

    def _statuses(self, which: str, *values: str) -> dict[str, str]:
        if not self._path.exists():
            return {}
        with closing(
            sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=_LOCKED_S
            )
        ) as database:
            return dict(database.execute(f"SELECT name, status FROM device WHERE {which}", values))  # noqa: S608 - words of ours


def _welcome(statuses: dict[str, str], name: str, stranger: bool) -> bool:
    return stranger if name not in statuses else statuses[name] != "revoked"


class DeviceAccess(ByAcl):
    """The access rules of a serial port. stranger: whether a board that is not registered may
    connect; may change.
    """

    def __init__(self, registry: Registry, stranger: bool) -> None:
        self._registry = registry
        self.stranger = stranger

    def greets(self, name: str) -> bool:
        """Whether a board of this name may greet."""
        return self._registry.admits(name, self.stranger)

    def refuses_connect(self, connection: Connection, packet: Connect) -> Refusal | None:
        if self.greets(packet.client_id):
            return None
        return (
            ReasonCode.NOT_AUTHORIZED,
            f"device {packet.client_id!r} is revoked, or not in the device registry",
        )

    def holds(self, connection: Connection) -> bool:
        """Whether a connection that was let in would be let in again; yes while the registry cannot
        be read.
        """
        try:
            return self.still_welcome(connection, self._registry.statuses())
        except sqlite3.Error:
            return True

    def still_welcome(self, connection: Connection, statuses: dict[str, str]) -> bool:
        """The same by what the registry says now."""
        device = connection.peer.device
        names = {connection.client} | ({device.name} if device is not None else set())
        return all(_welcome(statuses, name, self.stranger) for name in names if name)


class Watch:
    """Looks every second, from its creation until `close`, at the registry and at the ports."""

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        engine: Engine,
        ports: Callable[[], list[PortStatus]],
    ) -> None:
        self._file = folder / PENDING
        self._registry = registry
        self._engine = engine
        self._ports = ports
        self._stamp = registry.stamp
        self._written: str | None = None
        self._told: set[str] = set()
        self._look()

    def close(self) -> None:
        self._timer.cancel()
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        self._write_pending()
        stamp = self._registry.stamp
        if stamp and stamp != self._stamp and self._dismiss():
            self._stamp = stamp

    def _dismiss(self) -> bool:
        """Put out who is not welcome any more. False when the registry could not be read: nobody is
        put out for that.
        """
        try:
            statuses = self._registry.statuses()
        except sqlite3.Error as error:
            log.warning("the device registry cannot be read (%s): looking again", error)
            return False

        def is_revoked(connection: Connection) -> bool:
            access = connection.policy.access
            revoked = isinstance(access, DeviceAccess) and not access.still_welcome(
                connection, statuses
            )
            if revoked:
                log.warning(
                    "%s: the device was revoked: its connection ends",
                    connection.name,
                    extra=about(**connection.about),
                )
            return revoked

        self._engine.dismiss(is_revoked, ReasonCode.NOT_AUTHORIZED, "the device was revoked")
        return True

    def _write_pending(self) -> None:
        strangers = [
            {"name": port.refused, "port": port.path}
            for port in self._ports()
            if port.refused is not None and not self._registry.knows(port.refused)
        ]
        for stranger in strangers:
            if stranger["name"] not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add(stranger["name"])
                log.warning(
                    "%s: the device %r is not registered: `onceway device admit NAME` lets it in",
                    stranger["port"],
                    stranger["name"],
                )
        text = json.dumps(strangers)
        if text == self._written:
            return
        self._written = text
        new = self._file.with_suffix(".new")
        try:
            new.write_text(text)
            os.replace(new, self._file)
        except OSError as error:
            log.error("%s: cannot write which devices are pending (%s)", self._file, error.strerror)


def pending(folder: Path) -> list[dict[str, str]] | None:
    """The strangers that ask the gateway of this data directory to be let in, `name` and `port` of
    each; None when none runs there.
    """
    if holder(folder / "gateway.lock") is None:
        return None
    try:
        strangers: list[dict[str, str]] = json.loads((folder / PENDING).read_text())
    except FileNotFoundError:
        return []
    return strangers
