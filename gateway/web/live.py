"""Live state of the page, as a stream of events.

In: a gateway's parts, read each second. Out: events for each subscriber: the whole state once, then
changes. Each event is made once for all subscribers. A subscriber that is too slow is dropped, and
its browser connects again.

    {"now": µs UTC or null, "axis": µs on the time axis, "overview": {…}, "boards": [row, …],
     "gone": [name, …], "all": true}

`overview` is left out if it has not changed; `all` is in the first events of a subscriber.
"""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

from gateway.broker.connection import Connection
from gateway.mirror.last import LastReadings
from gateway.system.jobs import LOOP_S, Job
from gateway.web.air import air, heard
from gateway.web.board_rows import BoardRows, value
from gateway.web.overview import SAMPLE_S, History, overview
from gateway.web.source import Source
from gateway.web.uplink import UplinkReader, UplinkState

log = logging.getLogger(__name__)

LOOK_S = 1.0
UPLINK_S = 5.0
_PART = 500
"""Largest number of rows in one event."""
_BEHIND = 64
"""Largest number of events by which a subscriber may be behind."""


class Subscriber:
    """The events of one browser. first: events with the whole state, made when they are sent."""

    def __init__(self, first: Iterator[bytes]) -> None:
        self._first = first
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._dropped = False

    async def get(self) -> bytes | None:
        """Return the next event, or None after the last one."""
        if self._dropped:
            return None
        if (event := next(self._first, None)) is not None:
            await asyncio.sleep(0)  # other tasks run between two parts of a long list
            return event
        return await self._events.get()

    def put(self, event: bytes) -> bool:
        """Queue an event. Return False if the subscriber is too far behind."""
        if self._events.qsize() >= _BEHIND:
            self.drop()
        else:
            self._events.put_nowait(event)
        return not self._dropped

    def drop(self) -> None:
        self._dropped = True
        self._events.put_nowait(None)


class Live:
    """The state that all browsers watch. Runs from `start` to `close`."""

    def __init__(self, source: Source, readings: LastReadings, boards: BoardRows) -> None:
        self.boards = boards
        self._source = source
        self._readings = readings
        self._reader = UplinkReader(source.folder)
        self._history = History()
        self._uplink: UplinkState | None = None
        self._overview: dict[str, Any] = {}
        self._subscribers: set[Subscriber] = set()
        self.job = Job("page", "the page is not updated", LOOP_S)
        self._task: asyncio.Task[None] | None = None

    @property
    def utc(self) -> int | None:
        """µs since 1970, if the clock is known."""
        return self._source.broker.utc

    def start(self) -> None:
        self.job.begin()
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
        """Return a board's row with its readings of the last hours, or None if it is unknown."""
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
        """Return the radios, and how well each board is received."""
        return air(self._source)

    def _sequence(self, name: str) -> int | None:
        """Return the newest sequence of a connected board, or None."""
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
                self.job.go_round()
            except Exception as error:
                self.job.fail(error)
            await asyncio.sleep(LOOK_S)

    def _tell(self) -> None:
        """Send the changes to all subscribers."""
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
