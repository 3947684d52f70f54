"""Run a gateway with an intended fault, which the checker must find: `python -m
tests.durability.sabotage FAULT gateway run …`.
"""

import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gateway.broker.changes import Changes
from gateway.broker.connection import Connection
from gateway.broker.store_rows import Commit
from gateway.commands.main import main
from gateway.store import checkpoint, schema, writer
from gateway.store.apply import apply
from gateway.store.row_checks import SpoolChecks


def _with_synchronous(value: str) -> None:
    real = schema.connect

    def connect(path: Path) -> sqlite3.Connection:
        database = real(path)
        database.execute(f"PRAGMA synchronous={value}")
        return database

    for module in (schema, writer, checkpoint):
        module.connect = connect  # type: ignore[attr-defined]


def no_sync() -> None:
    """Never sync the disk."""
    _with_synchronous("OFF")


def lazy_sync() -> None:
    """Sync the disk only at checkpoints, as many programs do."""
    _with_synchronous("NORMAL")


def early_ack() -> None:
    """Acknowledge before the commit, and make each commit slow."""

    def slowly(database: sqlite3.Connection, commit: Commit, *more: SpoolChecks) -> float:
        time.sleep(0.02)
        return apply(database, commit, *more)

    writer.apply = slowly  # type: ignore[attr-defined]
    real = Connection.send
    Connection.send = lambda self, packets, commit=0, acknowledgements=0: real(
        self, packets, 0, acknowledgements
    )  # type: ignore[method-assign]


def forgotten_identifiers() -> None:
    """Keep the packet identifiers of received messages only in memory. Make each commit slow, so
    that a kill comes while messages are in flight.
    """
    real = Changes.seal

    def slowly(database: sqlite3.Connection, commit: Commit, *more: SpoolChecks) -> float:
        seconds = apply(database, commit, *more)
        time.sleep(0.1)
        return seconds

    writer.apply = slowly  # type: ignore[attr-defined]

    def seal(self: Changes, boot: int) -> Commit:
        commit = real(self, boot)
        commit.flows = [(session, b"", *rest) for session, _, *rest in commit.flows]  # type: ignore[misc]
        return commit

    Changes.seal = seal  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[], None]] = {
    "no sync": no_sync,
    "lazy sync": lazy_sync,
    "early ack": early_ack,
    "forgotten identifiers": forgotten_identifiers,
}

if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    main()
