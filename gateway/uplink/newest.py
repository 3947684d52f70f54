"""Marker of the newest batch for readers, at places where each listing is a request.

In: the landed batches. Out: a marker (`manifest.marker_name`) in place of the previous one. The
marker is only a hint: a batch is published by its manifest, and a reader with a missing or old
marker finds the batch later, by listing. So an error here is only logged.
"""

import logging
import time

from gateway.uplink.landing import Landing, Unreachable
from gateway.uplink.manifest import Origin, marker_name
from gateway.uplink.spool import Spool

TELL_EVERY_S = 30.0
"""Shortest time, in seconds, between two markers while batches land one after the other. The marker
for the last of these batches is written at once.
"""

log = logging.getLogger(__name__)


class Newest:
    """The writer of the marker of one gateway. Use an instance in one thread only."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._published: tuple[Origin, int] | None = None  # the current marker, as far as known
        self._tried: tuple[Landing, int] | None = None
        self._published_at = float("-inf")
        self._complained = False

    def tell(self, landing: Landing, more_comes: bool = False) -> None:
        """Write a marker for the newest landed batch, if this was not yet tried for it. more_comes:
        whether the next batch is about to land. If so, write nothing within TELL_EVERY_S seconds
        after the last marker.
        """
        if more_comes and time.monotonic() - self._published_at < TELL_EVERY_S:
            return
        origin, (number, _) = self._spool.origin(), self._spool.last_landed()
        if not number or self._published == (origin, number) or self._tried == (landing, number):
            return
        self._tried = landing, number
        old = (
            marker_name(*self._published)
            if self._published and self._published[0] == origin
            else None
        )
        try:
            if landing.move_marker(old, marker_name(origin, number)):
                self._published, self._published_at = (origin, number), time.monotonic()
        except Unreachable as error:
            if not self._complained:
                self._complained = True
                log.warning("the centre may find batches of this gateway late: %s", error)
