"""Cutting the spool into batches: when, which rows, and the file that keeps a batch until it has
landed.

In: waiting rows. Out: DATA/batches/NUMBER.parquet on disk, then its row in the table `batch`. A
crash in between leaves a file without a row. The next cut overwrites it, which is safe because none
of its bytes was ever sent.
"""

import json
import logging
import os
import time
from pathlib import Path

from gateway.broker.spool import ROW_OVERHEAD
from gateway.config import UplinkSection
from gateway.errors import OncewayError
from gateway.store.references import words
from gateway.system.accounts import give_to_uplink
from gateway.system.sync import sync
from gateway.uplink.batch import encode
from gateway.uplink.keys import pack
from gateway.uplink.manifest import Row, file_stem, sha256
from gateway.uplink.spool import Cut, Spool, with_numbers

log = logging.getLogger(__name__)

DAMAGED = "damaged-rows.jsonl"
"""File of the rows that are set aside: one line for each, with its cells as literals of SQL."""
CLOCK_WAIT_S = 120.0  # seconds for which rows of this boot without UTC are held back


class Cutter:
    """Cuts batches, one at a time. The age of rows is measured by this process's monotonic clock,
    so a wrong wall clock never delays a reading.
    """

    def __init__(self, spool: Spool, data: Path, limits: UplinkSection) -> None:
        self._spool = spool
        self._limits = limits
        self._folder = data / "batches"
        try:
            self._folder.mkdir(mode=0o750, exist_ok=True)
            give_to_uplink(self._folder, data)
        except OSError as error:
            raise OncewayError(
                f"cannot create the folder of batches ({error.strerror})", str(self._folder)
            ) from error
        self._waiting_since: float | None = None
        self._clockless_since: float | None = None
        self.tidy()

    def tidy(self) -> None:
        """Remove the files of batches that have landed, and files whose number no recorded batch
        has.
        """
        oldest = self._spool.unlanded()
        newest, _ = self._spool.last_cut()
        keep = oldest.number if oldest else newest + 1
        for path in self._folder.glob("*.parquet"):
            if path.stem.isdecimal() and not keep <= int(path.stem) <= newest:
                path.unlink()

    def due(self, flush: bool = False) -> bool:
        """Whether a batch should be cut now. If so, damaged rows are set aside first, and at least
        one row remains. flush: whether a single row is enough, even one that waits for the clock.
        """
        count, size = self._spool.waiting(self._limits.batch_count)
        if not count:
            self._waiting_since = None
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        full = count >= self._limits.batch_count or size >= self._limits.batch_bytes
        old = now - self._waiting_since >= self._limits.batch_age_s
        if not flush and (not (full or old) or self._waits_for_clock(now)):
            return False
        return not self._set_damaged_aside() or self._spool.waiting(1)[0] > 0

    def _set_damaged_aside(self) -> bool:
        """Remove rows with an invalid cell from the spool, and append them to the file `DAMAGED`.
        Such a row would stop all later rows. Return whether there were such rows.
        """
        path, any_of_them = self._folder / DAMAGED, False
        while found := self._spool.damaged(self._limits.batch_count):
            any_of_them = True
            with path.open("a", encoding="ascii") as file:
                give_to_uplink(file.fileno(), self._folder.parent)
                for _, literals in found:
                    file.write(f"{json.dumps(literals)}\n")
                file.flush()
                os.fsync(file.fileno())
            sync(self._folder)
            for item, _ in found:
                self._spool.drop(item.row[0])
                log.error("%s. The row does not land, and is set aside in %s", item, path)
        return any_of_them

    def _waits_for_clock(self, now: float) -> bool:
        """Whether to wait, for at most CLOCK_WAIT_S, because rows have no time of receipt yet. A
        Raspberry Pi gets the time from the network, often when the uplink connects. The gateway
        then needs a moment to fill in the times.
        """
        if not self._spool.lacks_time(self._limits.batch_count):
            self._clockless_since = None
            return False
        if self._clockless_since is None:
            self._clockless_since = now
            log.info(
                "messages have no time yet: waiting at most %.0f s for this machine's clock to be"
                " synchronised",
                CLOCK_WAIT_S,
            )
        return now - self._clockless_since < CLOCK_WAIT_S

    def cut(self) -> Cut:
        """Cut the oldest waiting rows into the next batch. Raises OSError if the disk is full, with
        nothing changed.
        """
        number, last = self._spool.last_cut()
        rows = self._numbered(
            self._spool.rows(last, self._limits.batch_count, self._limits.batch_bytes)
        )
        data = encode(rows, self._spool.origin(), number + 1)
        self._write(number + 1, data)
        cut = Cut(
            number + 1,
            rows[0][-1],
            rows[-1][-1],
            len(rows),
            len(data),
            sha256(data),
            time.time_ns() // 1000,
            None,
        )
        for hole in self._spool.holes(last, [row[-1] for row in rows]):
            log.error("%s", words(hole))
        spool_bytes = sum(len(row[4].encode()) + len(row[5]) + ROW_OVERHEAD for row in rows)
        nameless = self._spool.nameless()
        anonymous = sum(row[0] == nameless for row in rows)
        self._spool.record(cut, spool_bytes, pack(row[:3] for row in rows), anonymous)
        self._waiting_since = None
        return cut

    def _numbered(self, rows: list[Row]) -> list[Row]:
        return with_numbers(rows, self._spool)

    def _path(self, number: int) -> Path:
        return self._folder / f"{file_stem(number)}.parquet"

    def _write(self, number: int, data: bytes) -> None:
        with self._path(number).open("wb") as file:
            give_to_uplink(file.fileno(), self._folder.parent)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync(self._folder)

    def load(self, cut: Cut) -> bytes | None:
        """Return the bytes of a batch, as they were when it was cut. If its file is lost or
        damaged, make the file again from the spool. Return None if the rows no longer give the same
        bytes, for example after an update of arro3.
        """
        path = self._path(cut.number)
        data = path.read_bytes() if path.exists() else b""
        if sha256(data) == cut.sha256:
            return data
        data = encode(
            self._numbered(self._spool.rows(cut.first - 1, cut.rows, before=cut.last + 1)),
            self._spool.origin(),
            cut.number,
        )
        if sha256(data) != cut.sha256:
            return None
        self._write(cut.number, data)
        return data

    def forget(self, cut: Cut) -> None:
        """Remove the file of a batch that has landed."""
        self._path(cut.number).unlink(missing_ok=True)
