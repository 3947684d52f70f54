"""What the page shows, as it changes.

In: a gateway's parts, looked at each second. Out: events for each subscriber: everything once, then
what is not as it was. They are made once for all subscribers; one that takes none for a while is
dropped, and its browser begins again.

    {"now": µs UTC or null, "axis": µs on the time axis, "overview": {…}, "boards": [row, …],
     "gone": [name, …], "all": true}

`overview` is missing where it has not changed; `all` stands in the first events of a subscriber.
"""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

from gateway.broker.connection import Connection
from gateway.mirror.last import LastReadings
from gateway.web.air import air, heard
from gateway.web.board_rows import BoardRows, value
from gateway.web.overview import SAMPLE_S, History, overview
from gateway.web.source import Source
from gateway.web.uplink import UplinkReader, UplinkState

log = logging.getLogger(__name__)

LOOK_S = 1.0
UPLINK_S = 5.0
_PART = 500
"""Rows in one event."""
_BEHIND = 64
"""Events that a subscriber may be behind."""


class Subscriber:
    """first: events that are made when they are asked for."""

    def __init__(self, first: Iterator[bytes]) -> None:
        self._first = first
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._dropped = False

    async def get(self) -> bytes | None:
        """The next event; None when there is none any more."""
        if self._dropped:
            return None
        if (event := next(self._first, None)) is not None:
            await asyncio.sleep(0)  # a long list is told a part a turn
            return event
        return await self._events.get()

    def put(self, event: bytes) -> bool:
        """False when it is too far behind."""
        if self._events.qsize() >= _BEHIND:
            self.drop()
        else:
            self._events.put_nowait(event)
        return not self._dropped

    def drop(self) -> None:
        self._dropped = True
        self._events.put_nowait(None)


class Live:
    """Runs from `start` to `close`."""

    def __init__(self, source: Source, readings: LastReadings, boards: BoardRows) -> None:
        self.boards = boards
        self._source = source
        self._readings = readings
        self._reader = UplinkReader(source.folder)
        self._history = History()
        self._uplink: UplinkState | None = None
        self._overview: dict[str, Any] = {}
        self._subscribers: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def utc(self) -> int | None:
        """µs since 1970, if the clock is known."""
        return self._source.broker.utc

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for subscriber in self._subscribers:
            subscriber.drop()

    def subscribe(self) -> Subscriber:
        self._tell()
        subscriber = Subscriber(self._everything())
        self._subscribers.add(subscriber)
        return subscriber

    def _everything(self) -> Iterator[bytes]:
        rows, names = self.boards.rows, list(self.boards.rows)
        for first in range(0, max(1, len(names)), _PART):
            part = [rows[name] for name in names[first : first + _PART] if name in rows]
            yield self._event(all=True, overview=self._overview, boards=part)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def board(self, name: str) -> dict[str, Any] | None:
        """A board's row and what is known of its last hours; None for an unknown one."""
        row = self.boards.rows.get(name)
        if row is None:
            return None
        return {
            "row": row,
            "sequence": self._sequence(name),
            "radio": heard(self._source, name),
            "series": [
                value(series.last) | {"status": series.last.status, "points": sorted(series.points)}
                for series in self._readings.of(name).values()
            ],
        }

    def air(self) -> list[dict[str, Any]]:
        """The radios, and how each board was heard."""
        return air(self._source)

    def _sequence(self, name: str) -> int | None:
        """The newest number of a board that is connected."""
        for connection in self._source.broker.connections:
            device = connection.peer.device
            if device is not None and device.name == name and isinstance(connection, Connection):
                return connection.sequence
        return None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        looked = sampled = float("-inf")
        while True:
            try:
                now = loop.time()
                sample = now - sampled >= SAMPLE_S
                if sample or (self._subscribers and now - looked >= UPLINK_S):
                    looked = now
                    if self._source.broker.config.uplink is not None:
                        self._uplink = await self._reader.state()
                if sample:
                    sampled = now
                    self._history.add(self._source, self._uplink)
                self._tell()
            except Exception:
                log.exception("the page met an internal error")
            await asyncio.sleep(LOOK_S)

    def _tell(self) -> None:
        """Tell what has changed."""
        rows, gone = self.boards.changes()
        counts = self.boards.connected, len(self.boards.rows)
        found = overview(self._source, self._uplink, self._history, counts)
        news: dict[str, Any] = {} if found == self._overview else {"overview": found}
        self._overview = found
        if self._subscribers:
            event = self._event(boards=rows, gone=gone, **news)
            self._subscribers = {one for one in self._subscribers if one.put(event)}

    def _event(self, **parts: Any) -> bytes:
        axis = int(self._source.broker.now * 1e6)
        return json.dumps({"now": self.utc, "axis": axis} | parts).encode()
