"""Preparation of a centre: `onceway ingest prepare` downloads Delta, and writes the archive of
Java's classes (`class_archive.py`).

In: the driver's memory. Out: the archive's path. To this end, the ingest runs on one batch in a
temporary folder. If Delta is missing, a first run downloads what the ingest needs. Another run
loads the classes for the archive.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.errors import OncewayError
from gateway.ingest import class_archive
from gateway.ingest.command import Archive, build, downloaded_jars
from gateway.ingest.landing.keys import Keys, keys_url, save
from gateway.system.lock import ProcessLock
from gateway.uplink.batch import Manifest, Origin, Row, encode, sha256
from gateway.uplink.signing import Signer

GATEWAY = "practice"
LOCK = "classes.lock"
"""Name of the lock file beside the archive. Only one process at a time may write the archive."""
_READING = b"\x81\xa2\x00\x61t\x02\x15"
"""SenML in CBOR: a record with the name t and the value 21."""


def prepare(memory: str | None, say: Callable[[str], None]) -> Path:
    """Download Delta's jars if they are missing, write the archive of Java's classes, and return
    its path. memory: memory of the driver, such as "2g". say: called with a line of text at each
    step.

    Raises OncewayError if the ingest cannot run on this machine or Java wrote no archive, and
    Locked if another process prepares the centre.
    """
    if downloaded_jars() is None:
        say("Downloading Delta's jars, and running the ingest once as a test")
        _practise(memory)
    jars = downloaded_jars()
    if jars is None:
        raise OncewayError(
            "Delta's jars are missing after the test run",
            hint="Run the command again, and read what Spark prints about the download",
        )
    say("Running the ingest on one batch, and storing Java's classes")
    folder = jars[0].parent
    with closing(ProcessLock(folder / LOCK)):
        (folder / class_archive.PART).unlink(missing_ok=True)
        output = _practise(memory, "write")
        try:
            return class_archive.keep(jars)
        except OSError as error:
            raise OncewayError(
                "Java wrote no archive of its classes",
                f"{error.strerror}: {folder}\n{output}".rstrip(),
                "The ingest works without this archive, but its start does not become faster",
            ) from error


def _practise(memory: str | None, archive: Archive = "leave") -> str:
    """Run the ingest on one batch. Return the text that the ingest printed. Raises OncewayError."""
    with tempfile.TemporaryDirectory(prefix="onceway-practice-") as name:
        folder = Path(name)
        table = folder / "table"
        _land(folder / "landing", table)
        places = [f"--{place}={folder / place}" for place in ("landing", "checkpoint")]
        job = build(
            "jobs/stream.py",
            [*places, f"--table={table}", "--available-now"],
            memory=memory,
            downloaded=True,
            archive=archive,
        )
        command = job.first()
        done = subprocess.run(  # also waits for Java, which writes the archive at its end
            command.arguments,
            env={**os.environ, **command.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        raise OncewayError("the ingest cannot run on this machine", lines[-1] if lines else None)
    return done.stdout


def _land(landing: Path, table: Path) -> None:
    """Write a landing place with one signed batch, and the file of keys by which the table trusts
    its gateway.
    """
    signer = Signer(Ed25519PrivateKey.generate())
    origin = Origin(GATEWAY, "00000001")
    rows: list[Row] = [
        ("board", 1, number, None, "sensors/board", _READING, 1_760_000_000_000_000, 3, 1, number)
        for number in range(1, 4)
    ]
    data = encode(rows, origin, 1)
    manifest = Manifest(origin, 1, len(rows), len(data), sha256(data))
    (landing / origin.folder).mkdir(parents=True)
    (landing / manifest.data_name).write_bytes(data)
    (landing / manifest.name).write_bytes(signer.publish(manifest))
    save(keys_url(str(table)), Keys({GATEWAY: [signer.public]}))
