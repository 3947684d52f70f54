"""The directory of feeds at a landing place. It finds the feeds that may have new batches, with few
requests.

In: a landing place, at each pass. Out: feeds, and for each feed the number of the last batch to
look for.

Uplinks write a marker that names their newest batch (`gateway/uplink/newest.py`), so one listing
shows the new batches of all gateways. After a crash, a marker may be missing or old. So each
gateway is checked completely once an hour, and a gateway without markers is checked at each pass.

A folder that cannot be listed, or whose name the table cannot store, is reported in
`Directory.closed`. Other gateways are not affected.
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
"""Every gateway is checked completely once in this many seconds. Its name determines when."""

AS_FAR_AS_IT_GOES = 10**12
"""Limit above the number of every batch, so that no batch is excluded."""


log = logging.getLogger("onceway.ingest")


class Directory:
    """The feeds at a landing place. map_many: the function `map`, or a concurrent version of it."""

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
        """Reason why a gateway's folder cannot be used, by gateway."""
        self._looked_at: float | None = None
        self._followed: float | None = None  # time of the last complete look
        self.with_markers: set[str] = set()  # feeds whose gateway leaves markers
        self.by_marker: dict[str, int] = {}  # newest batch by marker

    def look(self) -> dict[str, int]:
        """Return the feeds, each with the number of the last batch to look for. If `looked` is not
        called afterwards, the next call checks the same gateways again.
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
        """Record that the feeds in the last result of `look` were read as far as possible."""
        self._followed = self._looked_at

    def feeds(self, gateways: list[str]) -> dict[str, list[str]]:
        """Return the feeds of each gateway. For a gateway that cannot be listed, return the feeds
        that were known before.
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
        """Return the number of each feed's newest batch, as given by its marker. If the markers
        cannot be read, log that and return nothing.
        """
        complaint, found = None, {}
        try:
            found = self._landing.markers()
        except OSError as error:
            complaint = error_text(error)
        if complaint is not None and self._complaint is None:
            log.warning(
                "the markers of new batches cannot be read, so the folder of each gateway is listed"
                " instead, which takes more requests: %s",
                complaint,
            )
        self._complaint = complaint
        return found

    def _tells_nothing(self, gateway: str, with_markers: set[str]) -> bool:
        """Whether a gateway's new batches can only be found by listing its folder, because the
        gateway writes no marker. False if the folder has no feeds and its name cannot be a
        gateway's name.
        """
        return gateway not in with_markers and (
            bool(self._feeds.get(gateway)) or gateway_name.problem(gateway) is None
        )

    def _turn(self, gateways: Iterable[str]) -> set[str]:
        """Return the gateways that are due for a complete check. In the first call, these are all
        gateways.
        """
        now = time.monotonic()
        before, self._looked_at = self._looked_at, now
        if before is None or now - before >= ROUND_S:
            return set(gateways)
        return {
            gateway
            for gateway in gateways
            if (crc32(os.fsencode(gateway)) - int(before)) % ROUND_S < int(now) - int(before)
        }
