"""The problems that are reported to people by notifications: the problems of the page and of
`onceway status`, with two exceptions. An unsynchronised clock is not reported, because that is
normal after each power cut. Notifications that could not be sent are not reported.

In: a `Source`, and the uplink's state, which is read every READ_S. Out: problems in words, by
identifier.
"""

import math

from gateway.web.health import UNTOLD
from gateway.web.overview import all_problems
from gateway.web.source import Source
from gateway.web.uplink import UplinkReader, UplinkState

READ_S = 10.0
"""Seconds between two reads of the uplink's state."""
_UNTOLD = (UNTOLD, "clock")


class Told:
    """The present problems, for notifications. While the uplink's state cannot be read, the last
    state that was read counts.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._reader = UplinkReader(source.folder)
        self._uplink: UplinkState | None = None
        self._read = -math.inf

    async def problems(self) -> dict[str, str]:
        """Return a sentence for each present problem, by the problem's identifier."""
        broker = self._source.broker
        if broker.config.uplink is None:
            self._uplink = None
        elif broker.now - self._read >= READ_S:
            self._read = broker.now
            self._uplink = await self._reader.state() or self._uplink
        found: dict[str, str] = {}
        for item in all_problems(self._source, self._uplink):
            if item.part not in _UNTOLD:
                found[item.id if item.id not in found else f"{item.id} {item.what}"] = item.what
        return found
