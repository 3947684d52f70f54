"""Which feeds there are, and which of them may have news, by few requests.

In: a landing place, at each pass. Out: feeds, and up to which batch each is worth a look. Uplinks
leave a marker that says which batch is the newest (`gateway/uplink/newest.py`), so one listing
tells the news of all gateways. A marker is a hint, and one may be missing or old, after a crash in
the wrong moment. So each gateway is looked at as a whole once an hour, as those without markers
are at each pass.
"""

import time
from collections.abc import Callable, Iterable
from zlib import crc32

from gateway.ingest.landing.place import Landing

ROUND_S = 3600
"""In this time each gateway is looked at as a whole: one in a second of it, by its name."""

AS_FAR_AS_IT_GOES = 10**12
"""Above every number of a batch."""


class Directory:
    """map_many: `map`, or one that asks many things at once."""

    def __init__(
        self,
        landing: Landing,
        map_many: Callable[[Callable[[str], list[str]], Iterable[str]], Iterable[list[str]]],
    ) -> None:
        self._landing = landing
        self._map = map_many
        self._feeds: dict[str, list[str]] = {}  # by gateway
        self._looked_at: float | None = None
        self.marked: set[str] = set()  # feeds whose gateway leaves markers
        self.told: dict[str, int] = {}  # what they say

    def look(self) -> dict[str, int]:
        """Feeds, and up to which batch each may have news."""
        gateways, markers = self._landing.gateways(), self._landing.markers()
        marked = {feed.partition("/")[0] for feed in markers}
        turn = self._turn(gateways)
        to_list = [
            gateway
            for gateway in gateways
            if gateway in turn or gateway not in marked or gateway not in self._feeds
        ]
        found = dict(zip(to_list, self._map(self._landing.feeds, to_list), strict=True))
        self._feeds = {
            gateway: found.get(gateway, self._feeds.get(gateway, [])) for gateway in gateways
        }
        limits = {}
        for gateway, feeds in self._feeds.items():
            whole = gateway in turn or gateway not in marked
            for feed in feeds:
                limits[feed] = AS_FAR_AS_IT_GOES if whole else 0
        for feed, number in markers.items():
            limits[feed] = max(number, limits.get(feed, 0))
        self.told = markers
        self.marked = {feed for feed in limits if feed.partition("/")[0] in marked}
        return limits

    def _turn(self, gateways: Iterable[str]) -> set[str]:
        """The gateways whose turn it is to be looked at as a whole: at first all."""
        now = time.monotonic()
        before, self._looked_at = self._looked_at, now
        if before is None or now - before >= ROUND_S:
            return set(gateways)
        return {
            gateway
            for gateway in gateways
            if (crc32(gateway.encode()) - int(before)) % ROUND_S < int(now) - int(before)
        }
