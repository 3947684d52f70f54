"""Tells readers which batch is the newest, where a look at the landing place costs a request.

In: what has landed. Out: a marker (`manifest.marker_name`) in place of the one before. It is a
hint: a batch is published by its manifest, and a reader that finds no marker, or an old one, finds
the batch by looking for it, only later. So what goes wrong here stops nothing.
"""

import logging
import time

from gateway.uplink.landing import Landing, Unreachable
from gateway.uplink.manifest import Origin, marker_name
from gateway.uplink.spool import Spool

TELL_EVERY_S = 30.0
"""While one batch lands after the other; the last one is told at once."""

log = logging.getLogger(__name__)


class Newest:
    """Use it from one thread."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._told: tuple[Origin, int] | None = None  # what stands there, as far as this one knows
        self._tried: tuple[Landing, int] | None = None
        self._told_at = float("-inf")
        self._complained = False

    def tell(self, landing: Landing, more_comes: bool = False) -> None:
        """more_comes: whether the next batch is about to land."""
        if more_comes and time.monotonic() - self._told_at < TELL_EVERY_S:
            return
        origin, (number, _) = self._spool.origin(), self._spool.last_landed()
        if not number or self._told == (origin, number) or self._tried == (landing, number):
            return
        self._tried = landing, number
        old = marker_name(*self._told) if self._told and self._told[0] == origin else None
        try:
            if landing.move_marker(old, marker_name(origin, number)):
                self._told, self._told_at = (origin, number), time.monotonic()
        except Unreachable as error:
            if not self._complained:
                self._complained = True
                log.warning("the centre may find batches of this gateway late: %s", error)
