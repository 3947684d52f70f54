"""Live state of the page, as a stream of events.

In: a gateway's parts, read each second. Out: events for each subscriber: the whole state once, then
changes. Each event is made once for all subscribers that may see everything; any other
subscriber gets only the visible part, made when that subscriber takes the event (`sight.py`). A
subscriber that is too slow, or whose access rules have changed, is dropped, and its browser
connects again.

    {"now": µs UTC or null, "axis": µs on the time axis, "overview": {…}, "boards": [row, …],
     "gone": [name, …], "all": true}

`overview` is left out if it has not changed; `all` is in the first events of a subscriber.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from gateway.broker.connection import Connection
from gateway.mirror.last import LastReadings
from gateway.system.jobs import LOOP_S, Job
from gateway.web.air import air, heard
from gateway.web.board_rows import BoardRows
from gateway.web.overview import SAMPLE_S, History, overview
from gateway.web.sight import Row, Sight, Sights, value
from gateway.web.source import Source
from gateway.web.uplink import UplinkReader, UplinkState

log = logging.getLogger(__name__)

LOOK_S = 1.0
UPLINK_S = 5.0
_PART = 500
"""Largest number of rows in one event."""
_BEHIND = 64
"""Largest number of events that may wait for a subscriber. A slower subscriber is dropped."""


@dataclass(slots=True)
class News:
    """An event, before it is reduced to what a user may see. overview: None if the overview has not
    changed. owners: name of a board, by the text of its problem.
    """

    now: int | None
    axis: int
    boards: list[Row]
    removed: list[str]
    overview: Row | None
    owners: dict[str, str]
    first: bool = False
    """Whether the event belongs to the whole state that a new stream gets first."""
    _event: bytes | None = None

    def event(self) -> bytes:
        """Return the event for a user who sees everything."""
        if self._event is None:
            self._event = self.encode(self.boards, self.removed, self.overview)
        return self._event

    def encode(self, boards: list[Row], removed: list[str], overview: Row | None) -> bytes:
        parts: Row = {"all": True} if self.first else {"gone": removed}
        if overview is not None:
            parts["overview"] = overview
        return json.dumps({"now": self.now, "axis": self.axis, "boards": boards} | parts).encode()


class Subscriber:
    """The events of one browser. first: the events with the whole state, which are sent before all
    others; each is made when its turn to be sent comes. connected: returns the names of the
    connected boards.
    """

    def __init__(
        self, first: Iterator[News], sight: Sight, connected: Callable[[], Collection[str]]
    ) -> None:
        self.sight = sight
        self._first = first
        self._connected = connected
        self._events: asyncio.Queue[News | None] = asyncio.Queue()
        self._dropped = False
        self._shown: set[str] = set()
        """Names of the boards that this browser shows, if its user does not see everything."""
        self._latest: News | None = None
        """The newest event that has an overview."""
        self._overview: Row | None = None
        """The overview that was sent last."""

    async def get(self) -> bytes | None:
        """Return the next event. None if there will be no further event: the stream was closed, the
        subscriber was dropped, or its access rules have changed.
        """
        if self._dropped:
            return None
        if (news := next(self._first, None)) is not None:
            await asyncio.sleep(0)  # other tasks run between two parts of a long list
        else:
            news = await self._events.get()
        if news is None or not self.sight.holds:
            return None
        return news.event() if self.sight.whole else self._narrowed(news)

    def put(self, news: News) -> bool:
        """Queue an event. Return False if the subscriber is too far behind, or if its access rules
        have changed.
        """
        if self._events.qsize() >= _BEHIND or not self.sight.holds:
            self.drop()
        else:
            self._events.put_nowait(news)
        return not self._dropped

    def drop(self) -> None:
        self._dropped = True
        self._events.put_nowait(None)

    def _narrowed(self, news: News) -> bytes:
        """Return the part of an event that this user may see. A board that was shown, and
        that the user may no longer see, is reported as removed.
        """
        rows = [row for row in map(self.sight.row, news.boards) if row is not None]
        names = {row["name"] for row in rows}
        hidden = [row["name"] for row in news.boards if row["name"] not in names]
        removed = [name for name in [*news.removed, *hidden] if name in self._shown]
        self._shown = (self._shown | names) - set(removed)
        if news.overview is not None:
            self._latest = news
        if self._latest is None or self._latest.overview is None:
            return news.encode(rows, removed, None)
        connected = self._connected()
        counts = sum(name in connected for name in self._shown), len(self._shown)
        overview = self.sight.overview(self._latest.overview, self._latest.owners, counts)
        changed, self._overview = overview != self._overview, overview
        return news.encode(rows, removed, overview if changed else None)


class Live:
    """The state that all browsers watch. Runs from `start` to `close`."""

    def __init__(self, source: Source, readings: LastReadings, boards: BoardRows) -> None:
        self.boards = boards
        self._source = source
        self._readings = readings
        self._reader = UplinkReader(source.folder)
        self._history = History()
        self._uplink: UplinkState | None = None
        self._overview: Row = {}
        self._owners: dict[str, str] = {}
        self.sights = Sights(
            source.broker,
            readings,
            source.broker.config.page,
            mirror.topic if (mirror := source.broker.config.mirror) is not None else None,
        )
        self._subscribers: set[Subscriber] = set()
        self.job = Job("page", "the page is not updated", LOOP_S)
        self._task: asyncio.Task[None] | None = None

    @property
    def utc(self) -> int | None:
        """µs since 1970; None while the clock is not known."""
        return self._source.broker.utc

    def start(self) -> None:
        self.job.begin()
        self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for subscriber in self._subscribers:
            subscriber.drop()

    def subscribe(self, sight: Sight | None = None) -> Subscriber:
        """Begin a stream of events. sight: what the user may see; None for everything."""
        self._tell()
        sight = sight or self.sights.of("", operator=True)
        subscriber = Subscriber(self._everything(), sight, lambda: self.boards.connected)
        self._subscribers.add(subscriber)
        return subscriber

    def _everything(self) -> Iterator[News]:
        rows, names = self.boards.rows, list(self.boards.rows)
        for first in range(0, max(1, len(names)), _PART):
            part = [rows[name] for name in names[first : first + _PART] if name in rows]
            yield self._news(part, [], self._overview, first=True)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def board(self, name: str, sight: Sight) -> Row | None:
        """Return a board's row with its readings of the last hours. Return None if the board is
        unknown or not visible.
        """
        known = self.boards.rows.get(name)
        row = known and sight.row(known)
        if row is None:
            return None
        return {
            "row": row,
            "sequence": self._sequence(name),
            "radio": heard(self._source, name),
            "series": [
                value(series.last) | {"status": series.last.status, "points": sorted(series.points)}
                for series in self._readings.of(name).values()
                if sight.value(name, series.last.name)
            ],
        }

    def air(self, sight: Sight) -> list[Row]:
        """Return the radios, each with the boards that the user may see and how well it receives
        them.
        """
        rows = air(self._source)
        if sight.whole:
            return rows
        return [
            row
            | {
                "boards": [item for item in row["boards"] if sight.board(item["name"])],
                "problem": row["problem"] and "a problem, of which an operator sees the cause",
            }
            for row in rows
        ]

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
        rows, removed = self.boards.changes()
        counts = len(self.boards.connected), len(self.boards.rows)
        found = overview(self._source, self._uplink, self._history, counts)
        changed, self._overview = found != self._overview, found
        expected = self._source.expected
        problems = expected.problems if expected is not None else []
        self._owners = {state.sentence: name for name, state in problems}
        if self._subscribers:
            news = self._news(rows, removed, found if changed else None)
            self._subscribers = {one for one in self._subscribers if one.put(news)}

    def _news(
        self, rows: list[Row], removed: list[str], overview: Row | None, *, first: bool = False
    ) -> News:
        axis = int(self._source.broker.now * 1e6)
        return News(self.utc, axis, rows, removed, overview, self._owners, first)
