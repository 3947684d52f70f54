"""A folder of small files in memory, and ranges from plain values."""

from typing import Any

import pyarrow as pa

from gateway.ingest.dedup.ranges import Key, Ranges, pack


class Files(dict[str, bytes]):
    """A `storage.Folder` in memory."""

    def read(self, name: str) -> bytes | None:
        return self.get(name)

    def write(self, name: str, data: bytes) -> None:
        self[name] = data

    def names(self) -> list[str]:
        return sorted(self)

    def delete(self, name: str) -> None:
        del self[name]


def ranges_of(keys: list[Key], first: Any, last: Any) -> Ranges:
    devices, incarnations = zip(*keys, strict=True) if keys else ((), ())
    packed = pack(pa.array(devices, pa.string()), pa.array(incarnations, pa.int64()))
    return Ranges(packed, first, last)
