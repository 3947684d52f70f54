"""The note by which the report learns that the ingest has ended with an error.

In: the reason. Out: one JSON file in the table's folder `_onceway`: `{"at": UTC, "why": "…"}`. The
next successful start deletes it.
"""

import json
import logging

from py4j.protocol import Py4JError

from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.storage import Folder, Readable
from gateway.ingest.report.counters import now

FILE = "stopped.json"

log = logging.getLogger("onceway.ingest")


def note(files: Folder, why: str) -> None:
    """Note, for the report, why the ingest stopped. A failure is only logged. Nothing is written if
    the table's folder does not exist.
    """
    try:
        files.write(FILE, json.dumps({"at": now(), "why": why}).encode())
    except FileNotFoundError:
        return
    except (Py4JError, OSError) as error:
        log.warning("cannot note for the report why the ingest stopped: %s", cause_of(error))


def forget(files: Folder) -> None:
    try:
        files.delete(FILE)
    except (Py4JError, OSError) as error:
        log.warning("%s/%s was not deleted: %s", files, FILE, cause_of(error))


def why(files: Readable) -> str | None:
    """Return a sentence with the time and the reason of the ingest's end, from its note; None if
    there is no note.
    """
    text = files.read(FILE)
    if text is None:
        return None
    try:
        kept = json.loads(text)
        return f"the ingest ended at {kept['at']} and has not run since: {kept['why']}"
    except (ValueError, KeyError, TypeError):
        return (
            f"the ingest ended with an error, and {FILE} is damaged: look at the log of the ingest"
        )
