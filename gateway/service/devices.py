"""Which boards may greet: none that was revoked, and on a port that is not open to all only those in the device registry.

In: a name from a HELLO. Out: yes or no. The registry is `DATA/registry.db`, table `device` (`provisioning/registry.py`); it is read at each
greeting, so a board that has just been provisioned or revoked needs no restart of the gateway.
"""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.broker.access import Anonymous, Refusal
from gateway.broker.connection import Connection
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode

log = logging.getLogger(__name__)

FILE = "registry.db"


class Registry:
    """The device registry in the data directory, for reading."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def admits(self, name: str, stranger: bool) -> bool:
        """Whether this device may connect. stranger: the answer for a name that is not registered."""
        if not self._path.exists():
            return stranger
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
                row = database.execute("SELECT status FROM device WHERE name = ?", (name,)).fetchone()
        except sqlite3.Error as error:
            log.error("%s: the device registry cannot be read (%s); %s is refused", self._path, error, name)
            return False
        return stranger if row is None else row[0] != "revoked"


class Admission(Anonymous):
    """The access rules of a serial port. stranger: whether a board that is not registered may connect."""

    def __init__(self, registry: Registry, stranger: bool) -> None:
        super().__init__(True)
        self._registry = registry
        self._stranger = stranger

    def refuses_connect(self, connection: Connection, packet: Connect) -> Refusal | None:
        if self._registry.admits(packet.client_id, self._stranger):
            return None
        return ReasonCode.NOT_AUTHORIZED, f"device {packet.client_id!r} is revoked, or not in the device registry"
