"""The uplink's loop: cut due batches, land them, and wait after failures.

In: a spool, a landing URL, limits. Out: landed batches, one log line at the beginning of an outage
and one at its end.
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
from gateway.system.causes import UNKNOWN, cause
from gateway.uplink import epoch, owner
from gateway.uplink.cutter import Cutter
from gateway.uplink.lander import NumberLost, NumberTaken, land
from gateway.uplink.landing import Landing, NotExclusive, Unreachable, Way
from gateway.uplink.manifest import Manifest
from gateway.uplink.newest import Newest
from gateway.uplink.pace import Pace
from gateway.uplink.signing import Signer
from gateway.uplink.spool import OUTAGE, RIVAL, WAY, Spool

log = logging.getLogger(__name__)

POLL_S = 0.5
# interval of checks, while batches land, that the name still belongs to this uplink
OWNER_CHECK_S = 60.0
# seconds to wait for another gateway's manifest after its file, before rows are compared
SETTLE_S = 2.0
RIVAL_EVERY_US = 86_400 * 1_000_000
# seconds until an idle connection is closed: keeping it alive takes more bytes than a new one
IDLE_S = 600.0

Trouble = (Unreachable, sqlite3.OperationalError, OSError)


@dataclass(slots=True)
class Backoff:
    """Waiting times between attempts: twice as long each time, from `first_s` to `longest_s`. A
    random part of ± a quarter keeps gateways from trying at the same time.
    """

    longest_s: float
    first_s: float = 1.0
    tries: int = 0

    def next(self) -> float:
        wait = min(self.first_s * 2.0 ** min(self.tries, 16), self.longest_s)
        self.tries += 1
        return wait * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, no secret


def _words(error: Exception) -> str:
    """Return the text of an error. If its cause is at this gateway, such as a full disk, the text
    begins with this fact.
    """
    found = cause(error)
    return str(error) if found is UNKNOWN else f"on this gateway, {found.reason} ({error})"


class Uplink:
    """One gateway's uplink. `run` returns when `stop` is set; with once=True, also when the spool
    is empty. connect: opens the landing place. signer: signs the manifests. first_retry_s: seconds
    to wait after the first failure.
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
        # whether the landing place was reached and the name is ours; checked at the start even if
        # nothing is to be landed
        self._introduced = False
        self._proven = False  # whether this connection has landed a batch
        self._renumbered = False  # whether a new epoch has begun and none of its batches has landed
        self._untidy = False  # whether the last tidying left files behind
        self._last_used = 0.0
        self._owner_checked: float | None = None
        self._outage = spool.get(OUTAGE) is not None
        self._outage_since: float | None = None

    def run(self, stop: threading.Event, once: bool = False) -> None:
        """Run the loop until `stop` is set. once: land all rows now, whatever their age and the
        window, then return. Raises OwnedByAnother, and OncewayError if the database was replaced;
        with once=True also all other errors.
        """
        try:
            while not stop.is_set():
                if pause := self._pace.wait_s():
                    stop.wait(pause)
                    continue
                try:
                    busy = self._step(once)
                except owner.OwnedByAnother as error:
                    self._count_failure(self._as_outage(error))
                    raise
                except Trouble as error:
                    if once:
                        self._count_failure(None)
                        raise (
                            error
                            if isinstance(error, OncewayError)
                            else OncewayError(f"cannot continue: {_words(error)}")
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
        """Land one batch, if one is due. Return False if there is nothing to do now."""
        self._spool.check_not_replaced()
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
            # before the landing, because bytes that are sent before an error also cost money
            self._pace.sent(cut.size)
            land(cut, self._spool, self._cutter, landing, self._signer, self._read_back)
            self._newest.tell(landing, more_comes=self._cutter.due(once))
        except NumberLost as error:
            self._renumber(landing, error)
            return True
        self._proven = True
        self._renumbered = False
        self._succeeded()
        log.info("batch %d landed: %d messages, %d bytes", cut.number, cut.rows, cut.size)
        return True

    def _check_owner(self, landing: Landing) -> None:
        checked = self._owner_checked
        if checked is not None and time.monotonic() - checked < OWNER_CHECK_S:
            return
        owner.check(self._spool, landing)
        if checked is None:
            self._prove(landing)
            self._tidy(landing)
        if (refused := owner.rival(landing, self._spool)) is not None:
            self._note_rival(*refused)
        self._owner_checked = time.monotonic()

    def _prove(self, landing: Landing) -> None:
        try:
            way = landing.prove(self._spool.origin().gateway)
        except NotExclusive:
            self._spool.put({WAY: None})
            raise
        if self._spool.get(WAY) != way:
            self._spool.put({WAY: way})
            log.log(
                logging.WARNING if way is Way.LOOK else logging.DEBUG,
                "what keeps another gateway from overwriting a batch at the landing place: %s",
                way.text,
            )

    def _tidy(self, landing: Landing) -> None:
        """Remove leftovers from this gateway's folders. If some cannot be removed, write a log
        line, unless some could not be removed last time, either.
        """
        origin = self._spool.origin()
        stays = [why for at in (origin.gateway, origin.folder) if (why := landing.tidy(at))]
        if stays and not self._untidy:
            log.warning(
                "cannot remove all leftovers at the landing place: %s. They do no harm", stays[0]
            )
        self._untidy = bool(stays)

    def _note_rival(self, text: str, note: str = "") -> None:
        """Record another gateway with this gateway's name: log it once a day, and keep it for
        `onceway uplink status`. note: the time in that gateway's note, which stays the same until
        that gateway tries again.
        """
        known = json.loads(self._spool.get(RIVAL) or '{"seen": 0, "what": "", "note": ""}')
        now = time.time_ns() // 1000
        if note and note == known["note"]:
            return
        if text == known["what"] and 0 <= now - known["seen"] < RIVAL_EVERY_US:
            return
        seen = {"seen": now, "what": text, "note": note or known["note"]}
        self._spool.put({RIVAL: json.dumps(seen)})
        log.warning("%s. Give each gateway a name of its own", text)

    def _renumber(self, landing: Landing, reason: NumberLost) -> None:
        if self._renumbered:  # pause between epochs if all numbers are in use
            self._renumbered = False
            raise Unreachable(str(reason))
        self._renumbered = True
        cut = self._spool.unlanded()
        number = cut.number if cut else self._spool.last_cut()[0] + 1
        if isinstance(reason, NumberTaken):
            self._note_rival(str(reason))
            self._let_it_finish(landing, number)
        else:
            log.warning("%s", reason)
        with suppress(NumberLost):
            # a clone may have claimed the name in the meantime: then the number is the clone's
            owner.check(self._spool, landing)
        epoch.begin_after_conflict(self._spool, landing, number)
        self._cutter.tidy()
        self._owner_checked = None

    def _let_it_finish(self, landing: Landing, number: int) -> None:
        """Wait until the other gateway that uses this batch number has published its manifest, at
        most SETTLE_S. Rows that both gateways have can be recognised only in a published batch.
        """
        name = Manifest(self._spool.origin(), number, 0, 0, "").name
        until = time.monotonic() + SETTLE_S
        while landing.read(name) is None and time.monotonic() < until:
            time.sleep(0.1)

    def _rename(self) -> None:
        """Begin batch numbers at 1 under the gateway's new name. All batches of the old name must
        have landed.
        """
        log.warning(
            "the gateway %s is now called %s", self._spool.origin().gateway, self._spool.new_name()
        )
        epoch.begin_under_new_name(self._spool)
        self._cutter.tidy()
        self._owner_checked = None

    def _failed(self, error: Exception, stop: threading.Event) -> None:
        proven = self._proven
        self._disconnect()
        outage = None
        # connections break at times; it is an outage only if a new connection fails, too
        if self._outage_since is None and not proven:
            self._outage_since = time.monotonic()
            log.warning(
                "outage: %s. Readings stay in the spool; trying again until it works",
                _words(error).rstrip("."),
            )
            outage = self._as_outage(error)
        self._count_failure(outage)
        if not proven:
            stop.wait(self._backoff.next())

    def _as_outage(self, error: Exception) -> str:
        """Return an error as the JSON text that is stored under OUTAGE. If an outage is recorded
        already, its beginning stays, even over restarts.
        """
        known = self._spool.get(OUTAGE)
        since = json.loads(known)["since"] if known else time.time_ns() // 1000
        return json.dumps({"since": since, "error": _words(error)})

    def _count_failure(self, outage: str | None) -> None:
        """Record a failure for `onceway uplink status` and the gateway's metrics. If the store
        cannot be written, for example because the disk is full, nothing is recorded. outage: new
        value of OUTAGE; None leaves the value unchanged.
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
        # an S3 client consists of reference cycles, 10 MB of them, and an outage creates one per
        # attempt
        gc.collect()
