"""The uplink's loop: cut what is due, land it, and wait out what fails.

In: a spool, a landing URL, limits. Out: landed batches, one log line when an outage begins and one
when it ends.
"""

import gc
import json
import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from gateway.config import UplinkSection
from gateway.errors import OncewayError
from gateway.uplink import epoch, owner
from gateway.uplink.cutter import Cutter
from gateway.uplink.lander import NumberLost, land
from gateway.uplink.landing import Landing, Unreachable
from gateway.uplink.newest import Newest
from gateway.uplink.pace import Pace
from gateway.uplink.signing import Signer
from gateway.uplink.spool import OUTAGE, Spool

log = logging.getLogger(__name__)

POLL_S = 0.5
OWNER_CHECK_S = 24 * 3600.0
# an idle connection is closed after this time: to keep it alive costs more bytes than a new one
IDLE_S = 600.0

Trouble = (Unreachable, sqlite3.OperationalError, OSError)


@dataclass(slots=True)
class Backoff:
    """Waiting times between tries: doubled from `first_s` to `longest_s`, ± a quarter of jitter so
    that gateways do not march in step.
    """

    longest_s: float
    first_s: float = 1.0
    tries: int = 0

    def next(self) -> float:
        wait = min(self.first_s * 2.0 ** min(self.tries, 16), self.longest_s)
        self.tries += 1
        return wait * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, no secret


class Uplink:
    """One gateway's uplink. `run` returns when `stop` is set, or with once=True when the spool is
    empty.

    connect: opens the landing place. signer: of manifests. first_retry_s: the wait after the first
    failure.
    """

    def __init__(
        self,
        spool: Spool,
        cutter: Cutter,
        settings: UplinkSection,
        connect: Callable[[], Landing],
        signer: Signer,
        first_retry_s: float = 1.0,
    ) -> None:
        self._spool = spool
        self._cutter = cutter
        self._signer = signer
        self._read_back = settings.read_back
        self._newest = Newest(spool)
        self._pace = Pace(settings)
        self._backoff = Backoff(settings.retry_s, first_retry_s)
        self._connect = connect
        self._landing: Landing | None = None
        # the landing place was reached and the name is ours; done at the start even with nothing to
        # land
        self._introduced = False
        self._proven = False  # this connection has landed something
        self._renumbered = False  # a new epoch was begun, and nothing has landed in it yet
        self._last_used = 0.0
        self._owner_checked: float | None = None
        self._outage = spool.get(OUTAGE) is not None
        self._outage_since: float | None = None

    def run(self, stop: threading.Event, once: bool = False) -> None:
        """once: do not wait for age or window. Raises OwnedByAnother, and OncewayError when the
        database was replaced; with once=True also what else goes wrong.
        """
        try:
            while not stop.is_set():
                if pause := self._pace.wait_s():
                    stop.wait(pause)
                    continue
                try:
                    busy = self._step(once)
                except Trouble as error:
                    if once:
                        self._count_failure(None)
                        raise (
                            error
                            if isinstance(error, OncewayError)
                            else OncewayError(f"cannot go on: {error}")
                        ) from error
                    self._failed(error, stop)
                    continue
                if not busy:
                    if once:
                        return
                    stop.wait(POLL_S)
        finally:
            self._disconnect()

    def _step(self, once: bool) -> bool:
        """Land one batch; False when there is nothing to do now."""
        self._spool.stay()
        if not (once or self._pace.open()):
            self._disconnect()
            return False
        cut = self._spool.unlanded()
        due = cut is not None or self._cutter.due(once)
        if self._introduced and not due:
            if self._landing is not None:
                self._newest.tell(self._landing)
            self._close_when_idle()
            return False
        landing = self._landing = self._landing or self._connect()
        try:
            self._check_owner(landing)
            self._introduced = True
            if not due:
                self._newest.tell(landing)
                self._succeeded()
                return False
            if cut is None:
                if self._spool.new_name():
                    self._rename()
                    return True
                cut = self._cutter.cut()
            # also when it fails on the way: what was sent until then costs as much
            self._pace.sent(cut.size)
            land(cut, self._spool, self._cutter, landing, self._signer, self._read_back)
            self._newest.tell(landing, more_comes=self._cutter.due(once))
        except NumberLost as error:
            self._renumber(landing, error)
            return True
        self._proven = True
        self._renumbered = False
        self._succeeded()
        log.info("batch %d landed: %d readings, %d bytes", cut.number, cut.rows, cut.size)
        return True

    def _check_owner(self, landing: Landing) -> None:
        if (
            self._owner_checked is not None
            and time.monotonic() - self._owner_checked < OWNER_CHECK_S
        ):
            return
        owner.check(self._spool, landing)
        origin = self._spool.origin()
        landing.tidy(origin.gateway)
        landing.tidy(origin.folder)
        self._owner_checked = time.monotonic()

    def _renumber(self, landing: Landing, reason: NumberLost) -> None:
        if self._renumbered:  # a place where every number is taken gets a pause between epochs
            self._renumbered = False
            raise Unreachable(str(reason))
        self._renumbered = True
        log.warning("%s", reason)
        with suppress(NumberLost):
            # a twin may have taken the name meanwhile: then the number is rightly its
            owner.check(self._spool, landing)
        cut = self._spool.unlanded()
        number = cut.number if cut else self._spool.last_cut()[0] + 1
        epoch.begin_after_conflict(self._spool, landing, number)
        self._cutter.tidy()
        self._owner_checked = None

    def _rename(self) -> None:
        """Everything cut under the old name has landed; number from 1 under the new one."""
        log.warning(
            "the gateway %s is called %s now", self._spool.origin().gateway, self._spool.new_name()
        )
        epoch.begin_under_new_name(self._spool)
        self._cutter.tidy()
        self._owner_checked = None

    def _failed(self, error: Exception, stop: threading.Event) -> None:
        proven = self._proven
        self._disconnect()
        outage = None
        # connections die; only when a new one fails too it is an outage
        if self._outage_since is None and not proven:
            self._outage_since = time.monotonic()
            log.warning(
                "outage: %s. Readings stay in the spool; trying again until it works",
                str(error).rstrip("."),
            )
            outage = json.dumps({"since": time.time_ns() // 1000, "error": str(error)})
        self._count_failure(outage)
        if not proven:
            stop.wait(self._backoff.next())

    def _count_failure(self, outage: str | None) -> None:
        """For `onceway uplink status` and the gateway's metrics. When the disk is full they must do
        without.
        """
        with suppress(sqlite3.OperationalError):
            self._spool.failed(outage)
            self._outage = self._outage or outage is not None

    def _succeeded(self) -> None:
        self._last_used = time.monotonic()
        self._backoff.tries = 0
        if self._outage_since is not None:
            log.warning("outage over after %.0f s", time.monotonic() - self._outage_since)
            self._outage_since = None
        if self._outage:
            with suppress(sqlite3.OperationalError):
                self._spool.put({OUTAGE: None})
                self._outage = False

    def _close_when_idle(self) -> None:
        if self._landing is not None and time.monotonic() - self._last_used > IDLE_S:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._landing is not None:
            self._landing.close()
        self._landing = None
        self._proven = False
        self._owner_checked = None
        # an S3 client is a heap of cycles, 10 MB of it: in an outage there is a new one with every
        # try
        gc.collect()
