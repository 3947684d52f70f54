"""A directory of feeds that finds, with few requests, the feeds that may have new batches.

In: a landing place, at each pass. Out: feeds, and for each one the last batch to look for. Uplinks
leave a marker for their newest batch (`gateway/uplink/newest.py`), so one listing shows the news of
all gateways. A marker is a hint, and may be missing or old after a crash. So each gateway is
checked completely once an hour; those without markers are checked at each pass.

A folder that cannot be listed, or whose name the table cannot hold, is closed: it is reported, and
does not affect others.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from zlib import crc32

from gateway.ingest.landing.place import Landing, error_text
from gateway.system import gateway_name
from gateway.uplink.manifest import MARKERS

ROUND_S = 3600
"""Seconds in which every gateway is checked completely once. A gateway's turn is one second of this
time, given by its name.
"""

AS_FAR_AS_IT_GOES = 10**12
"""An upper bound that excludes nothing: a number above every batch."""


log = logging.getLogger("onceway.ingest")


class Directory:
    """The directory. map_many: `map`, or a concurrent version."""

    def __init__(
        self,
        landing: Landing,
        map_many: Callable[[Callable[[str], list[str]], Iterable[str]], Iterable[list[str]]],
    ) -> None:
        self._landing = landing
        self._map = map_many
        self._feeds: dict[str, list[str]] = {}  # by gateway
        self._complaint: str | None = None  # why there are no markers
        self.closed: dict[str, str] = {}
        """Reasons why a gateway cannot be listed, by gateway."""
        self._looked_at: float | None = None
        self._followed: float | None = None  # time of the last complete look
        self.with_markers: set[str] = set()  # feeds whose gateway leaves markers
        self.by_marker: dict[str, int] = {}  # newest batch by marker

    def look(self) -> dict[str, int]:
        """Return feeds, each with the last batch to search for. Until `looked` is called, the same
        gateways are checked again.
        """
        self._looked_at = self._followed
        gateways, markers = self._landing.gateways(), self._markers()
        with_markers = {feed.partition("/")[0] for feed in markers}
        turn = self._turn(gateways)
        to_list = [
            gateway
            for gateway in gateways
            if gateway in turn
            or gateway not in self._feeds
            or gateway in self.closed
            or self._tells_nothing(gateway, with_markers)
        ]
        found = self.feeds(to_list)
        self.closed = {one: why for one, why in self.closed.items() if one in gateways}
        self._feeds = {
            gateway: found.get(gateway, self._feeds.get(gateway, [])) for gateway in gateways
        }
        limits = {}
        for gateway, feeds in self._feeds.items():
            whole = gateway in turn or gateway not in with_markers
            for feed in feeds:
                limits[feed] = AS_FAR_AS_IT_GOES if whole else 0
        for feed, number in markers.items():
            limits[feed] = max(number, limits.get(feed, 0))
        self.by_marker = markers
        self.with_markers = {feed for feed in limits if feed.partition("/")[0] in with_markers}
        return limits

    def looked(self) -> None:
        """Note that the last result was followed: each feed was read as far as possible."""
        self._followed = self._looked_at

    def feeds(self, gateways: list[str]) -> dict[str, list[str]]:
        """Return the feeds of each gateway; for a gateway that cannot be listed, its known
        feeds.
        """
        return dict(zip(gateways, self._map(self._feeds_of, gateways), strict=True))

    def _feeds_of(self, gateway: str) -> list[str]:
        try:
            feeds = self._landing.feeds(gateway)
            if gateway_name.problem(gateway):  # not a gateway name, except for older versions
                feeds = [feed for feed in feeds if self._landing.after(feed, 0) is not None]
        except OSError as error:
            self._landing.refuse_outage(error)
            if gateway == MARKERS:
                return []  # markers are only hints
            self.closed[gateway] = f"it cannot be listed: {error_text(error)}"
            return self._feeds.get(gateway, [])
        if feeds and not gateway_name.is_text(gateway):
            self.closed[gateway] = (
                "its name is not in UTF-8. Rename the folder, or mount it with names in UTF-8"
            )
            return []
        self.closed.pop(gateway, None)
        return feeds

    def _markers(self) -> dict[str, int]:
        """Return the newest batches from the markers; none if they are unreadable, because they are
        hints.
        """
        complaint, found = None, {}
        try:
            found = self._landing.markers()
        except OSError as error:
            complaint = error_text(error)
        if complaint is not None and self._complaint is None:
            log.warning(
                "the markers of new batches cannot be read, so each gateway is looked at instead,"
                " which takes more requests: %s",
                complaint,
            )
        self._complaint = complaint
        return found

    def _tells_nothing(self, gateway: str, with_markers: set[str]) -> bool:
        """Whether a gateway leaves no marker, so that only a listing shows new batches. A folder
        with an impossible gateway name is probably no gateway.
        """
        return gateway not in with_markers and (
            bool(self._feeds.get(gateway)) or gateway_name.problem(gateway) is None
        )

    def _turn(self, gateways: Iterable[str]) -> set[str]:
        """Return the gateways that are due for a complete check: at first, all gateways."""
        now = time.monotonic()
        before, self._looked_at = self._looked_at, now
        if before is None or now - before >= ROUND_S:
            return set(gateways)
        return {
            gateway
            for gateway in gateways
            if (crc32(os.fsencode(gateway)) - int(before)) % ROUND_S < int(now) - int(before)
        }
