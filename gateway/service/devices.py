"""Which boards may greet on a port that is not open to all: those in the device registry that provisioning keeps.

In: a name from a HELLO. Out: yes or no. The registry is `DATA/registry.db`, table `device` (`provisioning/registry.py`); it is read at each
greeting, so a board that has just been provisioned needs no restart of the gateway.
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

    def admits(self, name: str) -> bool:
        """Whether a device of this name is registered and not revoked. A registry that cannot be read admits nobody."""
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
                return database.execute("SELECT 1 FROM device WHERE name = ? AND status <> 'revoked'", (name,)).fetchone() is not None
        except sqlite3.Error as error:
            log.error("%s: the device registry cannot be read (%s); %s is refused", self._path, error, name)
            return False


class Registered(Anonymous):
    """The access rules of a serial port that takes registered boards only."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(True)
        self._registry = registry

    def refuses_connect(self, connection: Connection, packet: Connect) -> Refusal | None:
        if self._registry.admits(packet.client_id):
            return None
        return ReasonCode.NOT_AUTHORIZED, f"device {packet.client_id!r} is not in the device registry"
