"""Observer of the landing place, read only. In: the folder of the landing place. Out: publications
of the batches landed since the last call, as events of the history.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hil.formats.batches import compact, is_signed
from hil.observe.history import COLUMNS, KEY, History, sighting

SPARE = 1.02
"""Largest allowed size of a batch, as a multiple of the file that the rig makes of its rows. (The
rig's file is 120 bytes larger than the gateway's.)
"""


class LandingHop:
    """Observer of the batches at the landing place that have a manifest. A batch counts as empty if
    it does not match its manifest, or if the manifest is not signed by the gateway. key: the
    gateway's key. keys: the key of each gateway by name, if there are several.
    """

    def __init__(
        self, folder: Path, key: Path, history: History, keys: Mapping[str, Path] | None = None
    ) -> None:
        self._folder = folder
        self._key = key
        self._keys = keys or {}
        self._history = history
        self._seen: dict[Path, str] = {}
        """Hash of each batch's data when it was first seen, by the path of its manifest."""
        self._entered_manifests: set[Path] = set()
        """Manifests that the history has as contradictions, because their data file was missing."""
        self.newest: dict[str, int] = {}
        """Number of the last batch of each feed (`GATEWAY/EPOCH`)."""
        self._rows: dict[tuple[str, int], list[list[Any]]] = {}  # keys, by feed and batch

    def look(self) -> None:
        for manifest in sorted(set(self._folder.glob("*/[!.]*/*.json")) - self._seen.keys()):
            origin = "/".join(manifest.parts[-3:-1])
            number = int(manifest.stem)
            try:
                data = manifest.with_suffix(".parquet").read_bytes()
            except FileNotFoundError:
                if manifest.exists() and manifest not in self._entered_manifests:
                    self._entered_manifests.add(manifest)
                    text = f"{origin} has published batch {number}, but its data file is missing"
                    self._history.add("batch", "contradiction", text=text)
                continue  # no data file, or the landing place is away
            written = manifest.stat().st_mtime_ns // 1000
            signed_by = self._keys.get(manifest.parts[-3], self._key)
            rows = _whole_rows(manifest, data, signed_by.read_bytes())
            if rows and len(data) > (most := int(SPARE * len(_smallest(data)))):
                text = f"batch {number} of {origin} has {len(data)} bytes, but needs only {most}"
                self._history.add("batch", "contradiction", text=text)
            for row in rows:
                key = [row[name] for name in KEY]
                self._rows.setdefault((origin, number), []).append(key)
                self._history.add(
                    "batch", "publication", **sighting(row, origin, batch=number, written=written)
                )
            self.newest[origin] = max(number, self.newest.get(origin, 0))
            self._seen[manifest] = hashlib.sha256(data).hexdigest()

    def leave_out(self, origin: str, number: int, content: str) -> None:
        """Do not record the rows of this batch: a fault has landed it, not the gateway. content:
        SHA-256 of the batch's data. If the data change later, `look_again` records the change.
        """
        self._seen[self._folder / origin / f"{number:012d}.json"] = content

    def look_again(self) -> None:
        """At the end, record batches that are gone or changed since they were first seen."""
        for manifest, seen in sorted(self._seen.items()):
            data = manifest.with_suffix(".parquet")
            if not (manifest.exists() and data.exists()):
                change = "is gone"
            elif hashlib.sha256(data.read_bytes()).hexdigest() != seen:
                change = "has other bytes now"
            else:
                continue
            name = str(manifest.relative_to(self._folder).with_suffix(""))
            self._history.add("batch", "changed", batch=name, how=change)

    def note_waiting(self, ingested: Mapping[str, int]) -> None:
        """Record the rows of batches that the ingest has not read. ingested: last batch by feed."""
        for (origin, number), rows in self._rows.items():
            if number > ingested.get(origin, 0):
                for key in rows:
                    self._history.add("batch", "waiting", **dict(zip(KEY, key, strict=True)))


def _smallest(data: bytes) -> bytes:
    """Return a file with the rows of a batch, as small as the rig can make it."""
    labels = pq.read_metadata(pa.BufferReader(data)).metadata or {}
    table = pq.read_table(pa.BufferReader(data)).replace_schema_metadata(None)
    return compact(table, labels)


def _whole_rows(manifest: Path, data: bytes, key: bytes) -> list[dict[str, Any]]:
    """Return the rows of a batch; none if batch, manifest and its signature do not fit together."""
    text = manifest.read_bytes()
    fields = json.loads(text)
    if hashlib.sha256(data).hexdigest() != fields["sha256"] or not is_signed(text, key):
        return []
    columns = [*KEY, *COLUMNS, "spool_id", "payload"]
    rows = list(pq.read_table(pa.BufferReader(data), columns=columns).to_pylist())
    labels = pq.read_metadata(pa.BufferReader(data)).metadata or {}
    gateway, epoch, number = *manifest.parts[-3:-1], int(manifest.stem)
    identity = {"schema": 1, "gateway": gateway, "epoch": epoch, "number": number}
    sums = {"rows": len(rows), "bytes": len(data), "sha256": fields["sha256"]}
    whole = all(fields.get(name) == value for name, value in {**identity, **sums}.items()) and all(
        labels.get(f"onceway.{name}".encode()) == str(value).encode()
        for name, value in identity.items()
    )
    return rows if whole else []
