"""Remains of a run after its end, read only. In: the folders of a gateway, of the landing place and
of the centre, at the end of a run. Out: an event `remains` for each folder: rows of each table,
existing files, open flows.
"""

import hashlib
import re
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hil.observe.folder import Folder
from hil.observe.history import History

ROWS = {
    "batch": "SELECT number, first, last, rows, bytes, sha256, cut, landed FROM batch",
    "mark": "SELECT device, incarnation, highest FROM mark",
    "subscription": "SELECT client, filter FROM subscription JOIN session ON session = id",
}
"""Tables of a store that are recorded row by row, each with its query."""
OF_GATEWAY = ("owner.json", "cleaned.json", "refused.json")
"""Files of a gateway at the landing place: its owner, deleted batches, a gateway's refusal."""


def note_remains(history: History, program: str, folder: Folder, largest: int) -> None:
    """Record the files and the store of a gateway after a run; nothing if the store cannot be read.
    program: the gateway's name in the history. largest: largest number of bytes in its spool.
    """
    with suppress(sqlite3.DatabaseError):
        files = {
            str(path.relative_to(folder.data)): path.stat().st_size
            for path in sorted(folder.data.rglob("*"))
            if path.is_file()
        }
        history.add(program, "remains", files=files, largest=largest, **_store(folder.database))


def note_landed(history: History, landing: Path) -> None:
    """Record each complete batch at the landing place. Also record the files that belong to no
    complete batch and to no gateway.
    """
    files = {path.relative_to(landing) for path in landing.rglob("*") if path.is_file()}
    whole = {
        path
        for path in files
        if len(path.parts) == 3
        and path.stem.isdecimal()
        and {path.with_suffix(".json"), path.with_suffix(".parquet")} <= files
        and path.suffix in (".json", ".parquet")
    }
    for path in sorted(path for path in whole if path.suffix == ".parquet"):
        data = (landing / path).read_bytes()
        written = (landing / path).with_suffix(".json").stat().st_mtime_ns // 1000
        about: dict[str, Any] = {
            "origin": "/".join(path.parts[:2]),
            "batch": int(path.stem),
            "written": written,
        }
        about |= {"path": str(landing / path), "bytes": len(data)}
        history.add("landing", "landed", sha256=hashlib.sha256(data).hexdigest(), **about)
    owned = {path for path in files if len(path.parts) == 2 and path.name in OF_GATEWAY}
    history.add("landing", "remains", strange=sorted(map(str, files - whole - owned)))


def note_centre(history: History, place: Path) -> None:
    """Record the number of files of each kind in the folder of tables and checkpoints. A kind is a
    path in which `N` stands for each number and identifier. Data files of tables, which users read,
    and the checksums beside files are not counted.
    """
    files = [path.relative_to(place) for path in place.rglob("*") if path.is_file()]
    kinds = Counter(
        re.sub(r"[0-9a-f]{8,}|\d+", "N", file.as_posix())
        for file in files
        if file.suffix != ".crc" and not file.name.startswith("part-")
    )
    history.add("ingest", "remains", files=kinds)


def _store(file: Path) -> dict[str, Any]:
    """Return the content of a store. tables: number of rows of each table. sessions: clients that
    have a session. orphans: rows of a missing session, by table. under_way: clients with a packet
    identifier in use. remembered: by how much the numbers of the oldest and newest batch differ.
    meta: the table `meta`. rows: the rows of each table of ROWS.
    """
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as store:
        names = [
            name
            for (name,) in store.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
        ]
        tables = {name: _one(store, f"SELECT count(*) FROM {name}") for name in names}  # noqa: S608
        orphans = {
            name: _one(
                store,
                f"SELECT count(*) FROM {name} WHERE session NOT IN (SELECT id FROM session)",  # noqa: S608
            )
            for name in ("subscription", "flow", "queue")
        }
        under_way = store.execute(
            "SELECT client FROM session JOIN flow ON flow.session = session.id"
            " WHERE length(received) OR length(sent) OR length(released) ORDER BY client"
        )
        sessions = store.execute("SELECT client FROM session ORDER BY client")
        return {
            "tables": tables,
            "orphans": orphans,
            "under_way": [client for (client,) in under_way],
            "sessions": [client for (client,) in sessions],
            "remembered": _one(store, "SELECT coalesce(max(number) - min(number), 0) FROM batch"),
            "meta": dict(store.execute("SELECT key, value FROM meta")),
            "rows": {table: store.execute(query).fetchall() for table, query in ROWS.items()},
        }


def _one(store: sqlite3.Connection, query: str) -> int:
    return int(store.execute(query).fetchone()[0])
