"""The uplink's loop: cut what is due, land it, and wait out what fails.

In: a spool, a landing URL, limits. Out: landed batches, one log line when an outage begins and one when it ends.
"""

import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from gateway.errors import OncewayError
from gateway.uplink import epoch, owner
from gateway.uplink.cutter import Cutter
from gateway.uplink.lander import NumberLost, land
from gateway.uplink.landing import Landing, Unreachable
from gateway.uplink.spool import Spool

log = logging.getLogger(__name__)

POLL_S = 0.5
OWNER_CHECK_S = 24 * 3600.0


@dataclass(slots=True)
class Backoff:
    """Waiting times between tries: doubled from `first_s` to `longest_s`, ± a quarter of jitter so that gateways do not march in step."""

    first_s: float = 1.0
    longest_s: float = 60.0
    tries: int = 0

    def next(self) -> float:
        wait = min(self.first_s * 2.0 ** min(self.tries, 16), self.longest_s)
        self.tries += 1
        return wait * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, no secret


class Uplink:
    """One gateway's uplink. `run` returns when `stop` is set, or with once=True when the spool is empty."""

    def __init__(self, spool: Spool, cutter: Cutter, connect: Callable[[], Landing], backoff: Backoff | None = None) -> None:
        self._spool = spool
        self._cutter = cutter
        self._connect = connect
        self._landing: Landing | None = None
        self._owner_checked = 0.0
        self._backoff = backoff or Backoff()
        self._outage_since: float | None = None

    def run(self, stop: threading.Event, once: bool = False) -> None:
        """Raises OwnedByAnother; with once=True also what else goes wrong."""
        try:
            while not stop.is_set():
                try:
                    busy = self._step(flush=once)
                except (Unreachable, sqlite3.OperationalError, OSError) as error:
                    if once:
                        raise error if isinstance(error, OncewayError) else OncewayError(f"cannot go on: {error}") from error
                    self._failed(error)
                    stop.wait(self._backoff.next())
                    continue
                if not busy:
                    if once:
                        return
                    stop.wait(POLL_S)
        finally:
            self._disconnect()

    def _step(self, flush: bool) -> bool:
        """Land one batch; False when there is nothing to do."""
        landing = self._landing or self._connect()
        self._landing = landing
        try:
            if not self._owner_checked or time.monotonic() - self._owner_checked > OWNER_CHECK_S:
                self._check_owner(landing)
            cut = self._spool.unlanded()
            if cut is None:
                if not self._cutter.due(flush):
                    self._recovered()
                    return False
                cut = self._cutter.cut()
            land(cut, self._spool, self._cutter, landing)
        except NumberLost as error:
            self._renumber(landing, error)
            return True
        self._recovered()
        log.info("batch %d landed: %d readings, %d bytes", cut.number, cut.rows, cut.size)
        return True

    def _check_owner(self, landing: Landing) -> None:
        owner.check(self._spool, landing)
        origin = self._spool.origin()
        landing.tidy(origin.gateway)
        landing.tidy(origin.folder)
        self._owner_checked = time.monotonic()

    def _renumber(self, landing: Landing, reason: NumberLost) -> None:
        log.warning("%s", reason)
        with suppress(NumberLost):
            owner.check(self._spool, landing)  # a twin may have taken the name meanwhile: then the number is rightly its
        cut = self._spool.unlanded()
        number = cut.number if cut else self._spool.last_cut()[0] + 1
        epoch.begin_after_conflict(self._spool, landing, number)
        self._cutter.tidy()
        self._owner_checked = 0.0

    def _failed(self, error: Exception) -> None:
        self._disconnect()
        if self._outage_since is None:
            self._outage_since = time.monotonic()
            log.warning("outage: %s. Readings stay in the spool; trying again until it works", error)

    def _recovered(self) -> None:
        if self._outage_since is not None:
            log.warning("outage over after %.0f s", time.monotonic() - self._outage_since)
        self._outage_since = None
        self._backoff.tries = 0

    def _disconnect(self) -> None:
        if self._landing is not None:
            self._landing.close()
        self._landing = None
        self._owner_checked = 0.0
