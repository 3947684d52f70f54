"""Signs of life of the stream, for the report.

In: a running stream, about once a minute, and its end. Out: one JSON file in the table's folder
`_onceway`: `{"state": "running" or "ended", "since": UTC, "at": UTC}`. A stream that ends with an
error removes the file, which works even on a full disk; `stopped.py` notes the reason.
"""

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError

from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.storage import Folder, Readable
from gateway.ingest.report.counters import now

FILE = "job.json"

EVERY_S = 60.0
"""Seconds between two calls of `alive`."""

SILENT_S = 300.0
"""If `alive` was not called for this many seconds, the state of the stream is `silent`."""

log = logging.getLogger("onceway.ingest")


@dataclass(frozen=True, slots=True)
class Job:
    """The last known state of the stream. state: `running`, `ended` (cleanly), or `silent`: it did
    not end cleanly and gives no sign of life. since: time of its start (UTC). at: time of its last
    sign of life (UTC).
    """

    state: str
    since: str
    at: str

    @property
    def running(self) -> bool:
        return self.state == "running"

    def __str__(self) -> str:
        if self.running:
            return f"runs since {self.since}"
        if self.state == "ended":
            return f"ended cleanly at {self.at}"
        return (
            f"silent since {self.at}: it was started at {self.since} and has not ended cleanly."
            " Was it killed, or its machine switched off?"
        )


def alive(files: Folder, since: str) -> None:
    """Record that the stream runs. since: when it was started."""
    _put(files, "running", since)


def ended(files: Folder, since: str) -> None:
    """Record that the stream has ended cleanly."""
    _put(files, "ended", since)


def failed(files: Folder) -> None:
    """Remove the stream's sign of life, because the stream ends with an error."""
    with suppress(Py4JError, OSError):
        files.delete(FILE)


def look(files: Readable) -> Job | None:
    """Return the last recorded state of the stream, with `silent` in place of a `running` that is
    older than SILENT_S. Return None if no stream ever ran, or if the last one ended with an error.
    """
    text = files.read(FILE)
    try:
        kept: dict[str, Any] = json.loads(text or b"null") or {}
        job = Job(kept["state"], kept["since"], kept["at"])
        age_s = (datetime.now(UTC) - datetime.fromisoformat(job.at)).total_seconds()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    # A clock that was set back must not keep a dead stream alive.
    return Job("silent", job.since, job.at) if job.running and abs(age_s) > SILENT_S else job


def _put(files: Folder, state: str, since: str) -> None:
    """Write the state to FILE. If this fails, only log it, so that the stream continues."""
    try:
        written = {"state": state, "since": since, "at": now()}
        files.write(FILE, json.dumps(written).encode())
    except (Py4JError, OSError) as error:
        log.warning("the state of the job cannot be written in %s: %s", files, cause_of(error))
