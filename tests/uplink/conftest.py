"""Fixtures for tests of the uplink: a gateway's database as the broker writes it, and `onceway` as
a process.
"""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path

import pytest

from gateway.config import UplinkSection
from gateway.store.schema import open_store
from gateway.uplink.batch import decode, sha256
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import open_landing
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from tests.uplink.servers import s3_server, sftp_server

ROOT = Path(__file__).parents[2]

decoded = cache(decode)
"""Return the rows and labels of a batch. Decoding needs another process, so each batch is decoded
once.
"""


class GatewayData:
    """A data directory with a spool. `add` writes rows like the broker. `expected` has the rows
    that must land.
    """

    def __init__(self, path: Path, name: str = "site-1", epoch: str = "00c0ffee") -> None:
        self.path = path
        self.name, self.epoch = name, epoch
        path.mkdir(parents=True, exist_ok=True)
        open_store(path, name).close()
        with self.db() as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (epoch,))
            db.execute("INSERT INTO meta VALUES ('boot', '1')")
        self.added = 0

    @contextmanager
    def db(self) -> Iterator[sqlite3.Connection]:
        """Open the database. Commit and close it when the block ends, so that its disk can be
        unmounted.
        """
        with closing(sqlite3.connect(self.path / "gateway.db", timeout=30)) as database, database:
            yield database

    def add(self, count: int, device: str | None = "sensor-1", size: int = 24) -> None:
        """Add rows to the spool. Their sequences continue those of earlier calls. device: None:
        rows without an identity, numbered in their payload. size: bytes of a payload.
        """
        rows = []
        for _ in range(count):
            self.added += 1
            n = self.added
            payload = n.to_bytes(8, "big") + bytes(max(0, size - 8))
            key = (device, 77, n) if device else (None, None, None)
            rows.append(
                (
                    *key,
                    device or "client-1",
                    f"sensors/{device or 'anonymous'}",
                    payload,
                    1,
                    n * 1000,
                    1_760_000_000_000_000 + n * 1000,
                )
            )
        with self.db() as db:
            db.executemany(
                "INSERT INTO spool VALUES ((SELECT id + 1 FROM spool_last),?,?,?,?,?,?,?,?,?)",
                rows,
            )

    def spool_ids(self) -> list[int]:
        with self.db() as db:
            return [row[0] for row in db.execute("SELECT id FROM spool ORDER BY id")]

    def batches(self) -> list[tuple]:
        with self.db() as db:
            return db.execute(
                "SELECT number, first, last, rows, bytes, sha256, landed IS NOT NULL FROM batch"
                " ORDER BY number"
            ).fetchall()

    def meta(self, key: str) -> str | None:
        with self.db() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row and row[0]


@pytest.fixture
def data(tmp_path: Path) -> GatewayData:
    return GatewayData(tmp_path / "data")


@pytest.fixture
def make_data():
    return GatewayData


@pytest.fixture
def drain():
    """Return a function that runs `onceway uplink run --once` in this process."""

    def run(data: GatewayData, landing: Path | str, count: int = 10) -> None:
        spool = Spool(data.path)
        try:
            settings = UplinkSection(landing=str(landing), batch_count=count)
            connect = partial(open_landing, str(landing))
            Uplink(
                spool,
                Cutter(spool, data.path, settings),
                settings,
                connect,
                load_or_make(data.path),
            ).run(threading.Event(), once=True)
        finally:
            spool.close()

    return run


@pytest.fixture(scope="session")
def sftp(tmp_path_factory):
    with sftp_server(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("weed")) as server:
        yield server


class Onceway:
    """`onceway` as a separate process."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen] = []

    def command(self, *args: str | Path) -> list[str]:
        return [
            sys.executable,
            "-c",
            "from gateway.commands.main import main; main()",
            *map(str, args),
        ]

    def __call__(self, *args: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*args),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=ROOT,
        )

    def start(self, *args: str | Path, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*args),
            cwd=ROOT,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._started.append(process)
        return process

    def stop_all(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def onceway():
    runner = Onceway()
    yield runner
    runner.stop_all()


@pytest.fixture
def landed():
    """Return a function that reads a landing folder as the ingest does: from manifest 1 on, until a
    number is missing. The function checks each file against its manifest, and returns the rows.
    """

    def read(landing: Path, gateway: str = "site-1", epoch: str = "00c0ffee") -> list[tuple]:
        folder = landing / gateway / epoch
        rows: list[tuple] = []
        number = 1
        while (manifest := folder / f"{number:012d}.json").exists():
            fields = json.loads(manifest.read_bytes())
            data = (folder / f"{number:012d}.parquet").read_bytes()
            batch, labels = decoded(data)
            signature = fields.pop("signature")
            assert fields.pop("key")
            assert len(b64decode(signature)) == 64
            assert fields == {
                "schema": 1,
                "gateway": gateway,
                "epoch": epoch,
                "number": number,
                "rows": len(batch),
                "bytes": len(data),
                "sha256": sha256(data),
            }
            assert labels == {
                "onceway.schema": "1",
                "onceway.gateway": gateway,
                "onceway.epoch": epoch,
                "onceway.number": str(number),
            }
            rows += batch
            number += 1
        return rows

    return read
