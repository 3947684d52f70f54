"""Progress of feeds at the landing place, from which the source makes its offset.

In: a landing place and an offset {"GATEWAY/EPOCH": number}. Out: the next offset, the manifests
between two offsets, and the reasons why feeds are held.

An offset advances one manifest at a time, so a missing number holds only its own feed, until it
arrives. If `wait` is set, a damaged batch holds its feed until it is repaired. If `settle` is set,
a damaged batch holds its feed while the batch may be an unfinished copy. An unreadable file holds
its feed, and an unreadable folder holds its feed or gateway.

A pass makes one look-up for each new batch, and one for each feed whose gateway writes no marker,
however many batches the feed has.
"""

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from gateway.ingest.landing import batch
from gateway.ingest.landing.directory import AS_FAR_AS_IT_GOES, Directory
from gateway.ingest.landing.place import UNREADABLE, Announced, Landing, error_text
from gateway.ingest.landing.senders import Senders
from gateway.ingest.landing.trust import Trust
from gateway.system import gateway_name

Offset = dict[str, int]
T = TypeVar("T")
R = TypeVar("R")

LOOK_UPS_AT_ONCE = 32
AHEAD = 4096
"""Largest number of manifests that one round of look-ups asks for, over all feeds; more if there
are more feeds.
"""

HOLE_CHECK_SECONDS = 60.0
HOLE_REPORT_SECONDS = 3600.0
HOLE_PROBES = 8
HOLE_LIST_SECONDS = 3600.0
HOLE_LISTS = 8
"""Number of waiting feeds whose folders one check for missing batches lists; the feeds take turns.
Without a listing, a gap is found only if the batches after it are at least as many as the missing
ones. Two kinds of feeds are listed in addition: feeds whose marker shows a later batch and, once an
hour, feeds whose last read batch has been deleted.
"""

SHOWN = 20
"""Largest number of unreadable feeds that one pass logs, a line each."""

log = logging.getLogger("onceway.ingest")


@dataclass(slots=True)
class Unreadable:
    """A feed or gateway that is held because of an unreadable file or folder. since: time of the
    first failure, in seconds since 1970. reported: time of the last log line, in seconds since
    1970.
    """

    name: str
    why: str
    since: float
    reported: float = 0.0

    @property
    def age(self) -> float:
        """Seconds since the first failure."""
        return max(0.0, time.time() - self.since)

    def __str__(self) -> str:
        return f"{gateway_name.shown(self.name)} cannot be read: {self.why}"


@dataclass(slots=True)
class Hole:
    """A feed that waits for batch `number`. why: the reason, for people. arrived: number of the
    batch that has arrived: a later one, or `number` itself if it is damaged. since: time of that
    arrival, in seconds since 1970. reported: time of the last log line, in seconds since 1970.
    """

    feed: str
    number: int
    why: str
    arrived: int
    since: float
    reported: float = 0.0

    @property
    def age(self) -> float:
        """Seconds since the arrival of batch `arrived`."""
        return max(0.0, time.time() - self.since)

    def __str__(self) -> str:
        return f"{self.feed} waits for batch {self.number}: {self.why} {self.age / 3600:.1f} h ago"


class Feeds:
    """The feeds of a landing place. Use an instance in one thread only.

    wait: whether a damaged batch holds its feed; if so, each batch is checked before the offset
    advances. ingested: progress of the table; batches up to it are not read again, whatever offset
    is requested. trust: trusted gateways; if None, all gateways are trusted. settle: the time after
    its file time, in seconds, for which a damaged batch counts as an unfinished copy and holds its
    feed.
    """

    def __init__(
        self,
        landing: Landing,
        wait: bool = False,
        ingested: Offset | None = None,
        trust: Trust | None = None,
        settle: float = 0.0,
    ) -> None:
        self._landing = landing
        self._wait = wait
        self._settle = settle
        self.senders = Senders(trust)
        self._ingested = dict(ingested or {})
        self._looked_for_cleaned = False
        self._pool = None if landing.local else ThreadPoolExecutor(LOOK_UPS_AT_ONCE)
        self._directory = Directory(landing, self._map)
        self._manifests: dict[tuple[str, int], Announced] = {}
        self._first_turn = 0
        self._hole_check_due = 0.0
        self._hole_list_due = 0.0
        self._next_listed = 0
        self.holes: dict[str, Hole] = {}
        self.unreadable: dict[str, Unreadable] = {}
        self._failed: dict[str, str] = {}  # why a manifest could not be read, by feed
        self._unknown: dict[str, str] = {}  # why it is not known what a feed waits for

    def advance(self, start: Offset, rows: int, ceiling: Offset | None = None) -> Offset:
        """Return the offset that follows `start` by at least `rows` rows. If all batches together
        have fewer rows, return the offset after the last batch. The offset never exceeds `ceiling`.

        Feeds take turns, so a feed with a long backlog does not delay others. Raises OSError if the
        landing place as a whole cannot be read.
        """
        offset = self._advance(start, rows, ceiling)
        self._say_unreadable()
        return offset

    def _advance(self, start: Offset, rows: int, ceiling: Offset | None) -> Offset:
        self.senders.refresh()
        limits = self._limits(ceiling)
        offset = self._from(start, limits)
        feeds = self.senders.trusted(sorted(offset))
        self._failed = {feed: self._failed[feed] for feed in self._failed.keys() & set(feeds)}
        turn = self._first_turn % max(1, len(feeds))
        active, waiting = feeds[turn:] + feeds[:turn], []
        count, step = 0, 1
        while active:
            wanted = {
                feed: range(
                    offset[feed] + 1,
                    min(offset[feed] + step, limits.get(feed, AS_FAR_AS_IT_GOES)) + 1,
                )
                for feed in active
            }
            self._look_up(
                ((feed, number) for feed, numbers in wanted.items() for number in numbers),
                True,
            )
            more: list[str] = []
            for feed in active:
                for number in wanted[feed]:
                    manifest = self._manifests.get((feed, number))
                    if manifest is None:
                        waiting.append(feed)
                        break
                    offset[feed], count = number, count + manifest.rows
                    if count >= rows:
                        self._first_turn = feeds.index(feed) + 1
                        return _started(offset)
                else:
                    (more if wanted[feed] else waiting).append(feed)
            active, step = more, max(1, min(2 * step, AHEAD // max(1, len(more))))
        self._look_for_holes([feed for feed in waiting if not self._quiet(feed, offset)], offset)
        self._directory.looked()
        return _started(offset)

    def _limits(self, ceiling: Offset | None) -> Offset:
        """Return, by feed, the highest batch number to look for in this pass."""
        if ceiling is not None:
            return ceiling
        limits = self._directory.look()
        return limits | dict.fromkeys({*self.holes, *self._failed}, AS_FAR_AS_IT_GOES)

    def names(self) -> list[str]:
        """Return all feeds at the landing place, sorted. Gateways that cannot be listed are in
        `closed`.
        """
        found = self._directory.feeds(self._landing.gateways())
        return [feed for feeds in found.values() for feed in feeds]

    @property
    def held_feeds(self) -> list[str]:
        """Names of the feeds and gateways that are held, sorted, as of the last `advance`."""
        return sorted({*self.holes, *self.unreadable, *self.senders.untrusted})

    @property
    def closed(self) -> dict[str, Unreadable]:
        """Gateways whose feeds are unknown because their folder cannot be used, by name."""
        now = time.time()
        return {
            name: self.unreadable.get(name) or Unreadable(name, why, now)
            for name, why in self._directory.closed.items()
        }

    def newest(self, start: Offset) -> Offset:
        """Return the number of each feed's newest batch, as an upper bound for `advance`. A feed
        that cannot be read keeps its number in `start`.
        """
        offset = self._from(start, self._directory.look())
        return dict(zip(offset, self._map(self._newest, offset.items()), strict=True))

    def _newest(self, item: tuple[str, int]) -> int:
        feed, known = item
        try:
            return self._landing.newest(feed, known)
        except OSError as error:
            self._failed[feed] = self._own(error)
            return known

    def _own(self, error: OSError) -> str:
        """Return the reason why one feed cannot be read. Raises the error if the landing place as a
        whole cannot be read.
        """
        self._landing.refuse_outage(error)
        return error_text(error)

    def between(self, start: Offset, end: Offset) -> list[Announced]:
        """Return the manifests after `start` up to `end`. A manifest that is missing or unreadable
        now is returned with that flaw, or left out if its batch was deleted on purpose.
        """
        self.senders.refresh()
        wanted = [
            (feed, number)
            for feed in sorted(end)
            for number in range(
                max(start.get(feed, 0), self._ingested.get(feed, 0)) + 1, end[feed] + 1
            )
        ]
        self._look_up(wanted)
        absent = {feed for feed, number in wanted if (feed, number) not in self._manifests}
        cleaned = {feed: self._cleaned(feed) for feed in absent}
        return [
            self._manifests.get((feed, number))
            or Announced(
                feed,
                number,
                flaw=f"{UNREADABLE}: {self._failed[feed]}"
                if feed in self._failed
                else "the manifest is gone",
            )
            for feed, number in wanted
            if (feed, number) in self._manifests or number > cleaned[feed]
        ]

    def _cleaned(self, feed: str) -> int:
        """Return the number of a feed's last batch that was deleted on purpose; 0 if there is none.
        If the file with this number cannot be read, return 0, and hold the feed.
        """
        try:
            return self._landing.cleaned(feed)
        except OSError as error:
            self._failed.setdefault(feed, self._own(error))
            return 0

    def _from(self, start: Offset, names: Iterable[str]) -> Offset:
        """Return for each feed the number of the batch after which reading continues. The first
        call also goes past batches that were deleted on purpose.
        """
        offset = dict.fromkeys(names, 0) | start
        if not self._looked_for_cleaned:
            fresh = {
                feed: max(number, self._ingested.get(feed, 0)) for feed, number in offset.items()
            }
            for feed, number in zip(
                fresh,
                self._map(self._begin, fresh.items()),
                strict=True,
            ):
                if number > fresh[feed]:
                    self._ingested[feed] = number
            self._looked_for_cleaned = True
        return {feed: max(number, self._ingested.get(feed, 0)) for feed, number in offset.items()}

    def _begin(self, item: tuple[str, int]) -> int:
        feed, number = item
        try:
            return self._behind_cleaned(feed, number)
        except OSError as error:
            self._failed[feed] = self._own(error)
            return number

    def _behind_cleaned(self, feed: str, number: int) -> int:
        """Return the number after which a feed continues. If the next batches were deleted on
        purpose, and the first batch after them exists, this is the number of the last deleted
        batch. Otherwise it is `number`.
        """
        if self._landing.has(feed, number + 1):
            return number
        cleaned = self._landing.cleaned(feed)
        if cleaned <= number or not self._landing.has(feed, cleaned + 1):
            return number
        log.warning(
            "%s continues at batch %d: batches %d to %d were deleted at the landing place, and"
            " this table does not have them",
            feed,
            cleaned + 1,
            number + 1,
            cleaned,
        )
        return cleaned

    def _goes_on(self, hole: Hole, offset: Offset) -> bool:
        """Return whether the missing batches of a hole were deleted on purpose after the last
        check. If so, move `offset` behind them.
        """
        if hole.arrived == hole.number:
            return False
        number = self._behind_cleaned(hole.feed, offset[hole.feed])
        if number == offset[hole.feed]:
            return False
        self._ingested[hole.feed] = offset[hole.feed] = number
        return True

    def forget(self, end: Offset) -> None:
        """Drop the manifests of the batches up to `end` from memory."""
        self._manifests = {
            (feed, number): found
            for (feed, number), found in self._manifests.items()
            if number > end.get(feed, 0)
        }

    def _look_up(self, items: Iterable[tuple[str, int]], new: bool = False) -> None:
        """Read manifests into memory. new: whether the batches are in no offset yet. If a new batch
        is damaged, and its feed must wait until the batch is whole, the batch counts as missing.
        """
        unknown = [item for item in items if item not in self._manifests]
        answers = list(self._map(lambda item: self._manifest(item, new), unknown))
        for feed, _ in unknown:
            self._failed.pop(feed, None)
        for item, answer in zip(unknown, answers, strict=True):
            if isinstance(answer, OSError):
                self._failed[item[0]] = error_text(answer)
            elif answer is not None:
                self._manifests[item] = answer

    def _manifest(self, item: tuple[str, int], new: bool) -> Announced | OSError | None:
        """Return the manifest of a batch after the check of its signature. Return None if there is
        no manifest, or if the batch is damaged and its feed waits until the batch is whole. Return
        the error if the landing place answers but the manifest cannot be read. new: as for
        `_look_up`.
        """
        try:
            manifest = self._landing.manifest(*item)
            if manifest is None:
                return None
            checked = self.senders.check(manifest)
            waits = new and (self._wait or self._is_fresh(checked))
            return None if waits and batch.flaw(self._landing, checked) else checked
        except OSError as error:
            self._landing.refuse_outage(error)
            return error

    def _is_fresh(self, manifest: Announced) -> bool:
        """Whether a batch's newest file is so new, by this machine's clock, that copying the batch
        may not have ended.
        """
        if not self._settle:
            return False
        times = (
            self._landing.modified(manifest.feed, manifest.number, ending)
            for ending in ("json", "parquet")
        )
        newest = max((one for one in times if one is not None), default=0.0)
        return abs(time.time() - newest) < self._settle

    def _map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return map(function, items) if self._pool is None else self._pool.map(function, items)

    def _look_for_holes(self, waiting: list[str], offset: Offset) -> None:
        now = time.time()
        if now < self._hole_check_due:
            return
        self._hole_check_due = now + HOLE_CHECK_SECONDS
        listed = self._to_list(now, waiting, offset)
        holes: dict[str, Hole] = {}
        unknown: dict[str, str] = {}

        def look(feed: str) -> Hole | None:
            hole = self.holes.get(feed)
            if feed in self._failed:
                return hole
            try:
                hole = self.hole(feed, offset[feed], feed in listed)
                return None if hole is None or self._goes_on(hole, offset) else hole
            except OSError as error:
                unknown[feed] = self._own(error)
                return hole

        for hole in self._map(look, waiting):
            if hole is not None:
                known = self.holes.get(hole.feed)
                holes[hole.feed] = (
                    known
                    if known is not None and (known.number, known.why) == (hole.number, hole.why)
                    else hole
                )
        for hole in holes.values():
            if now >= hole.reported + HOLE_REPORT_SECONDS:
                hole.reported = now
                log.warning("held: %s", hole)
        for feed in self.holes.keys() - holes.keys():
            log.info("%s continues: batch %d has arrived", feed, self.holes[feed].number)
        self.holes, self._unknown = holes, unknown

    def _say_unreadable(self) -> None:
        """Log unreadable feeds: at once if they are new, then once an hour."""
        now = time.time()
        why = {**self._directory.closed, **self._unknown, **self._failed}
        found = {
            name: Unreadable(name, reason, known.since, known.reported)
            if (known := self.unreadable.get(name))
            else Unreadable(name, reason, now)
            for name, reason in why.items()
        }
        due = [one for one in found.values() if now >= one.reported + HOLE_REPORT_SECONDS]
        for one in due:
            one.reported = now
        for one in due[:SHOWN]:
            log.warning("held: %s", one)
        if len(due) > SHOWN:
            log.warning(
                "held: %d more folders cannot be read; `onceway ingest report` names all",
                len(due) - SHOWN,
            )
        for name in self.unreadable.keys() - found.keys():
            log.info("%s can be read again", gateway_name.shown(name))
        self.unreadable = found

    def _quiet(self, feed: str, offset: Offset) -> bool:
        """Whether no further batch of a feed is expected: the feed has no hole, its gateway writes
        markers, and the markers show no newer batch.
        """
        return (
            feed not in self.holes
            and feed in self._directory.with_markers
            and self._directory.by_marker.get(feed, 0) <= offset[feed]
        )

    def _to_list(self, now: float, waiting: list[str], offset: Offset) -> set[str]:
        """Return the waiting feeds to list at this check: HOLE_LISTS of them in turn, and those
        whose marker is beyond the next batch. Every HOLE_LIST_SECONDS, also those whose last read
        batch is missing. A listing may take long, so the other feeds are not listed.
        """
        feeds = sorted(waiting)
        first = self._next_listed % max(1, len(feeds))
        self._next_listed = first + HOLE_LISTS
        found = set((feeds[first:] + feeds[:first])[:HOLE_LISTS])
        by_marker = self._directory.by_marker
        found |= {feed for feed in feeds if by_marker.get(feed, 0) > offset[feed] + 1}
        if now >= self._hole_list_due:
            present = self._map(lambda feed: self._is_there(feed, offset[feed]), feeds)
            found |= {feed for feed, is_there in zip(feeds, present, strict=True) if not is_there}
            self._hole_list_due = now + HOLE_LIST_SECONDS
        return found

    def _is_there(self, feed: str, number: int) -> bool:
        try:
            return self._landing.has(feed, number)
        except OSError as error:
            self._landing.refuse_outage(error)
            return False

    def hole(self, feed: str, ingested: int, surely: bool = True) -> Hole | None:
        """Return the reason why a feed whose last read batch is `ingested` cannot continue. None if
        it can, or if no later batch exists. surely: whether to list the feed. If not, a few
        look-ups are made. They are sure to find a gap only if at least as many batches follow it as
        are missing in it.
        """
        number = ingested + 1
        manifest = self._landing.manifest(feed, number)
        if manifest is not None:
            fresh = self._is_fresh(manifest)
            flaw = batch.flaw(self._landing, manifest) if self._wait or fresh else None
            why = f"it is {'not whole yet' if fresh else 'damaged'} ({flaw}), and arrived"
            return None if flaw is None else self._hole(feed, number, why, number)
        known = self.holes.get(feed)
        if known is not None and known.number == number and self._landing.has(feed, known.arrived):
            return known
        seen = self._landing.after(feed, number) if surely else self._behind_hole(feed, number)
        return (
            None
            if seen is None
            else self._hole(feed, number, f"it is missing, and batch {seen} arrived", seen)
        )

    def _hole(self, feed: str, number: int, why: str, arrived: int) -> Hole:
        return Hole(
            feed, number, why, arrived, self._landing.modified(feed, arrived) or time.time()
        )

    def _behind_hole(self, feed: str, missing: int) -> int | None:
        """Return the number of a batch after the missing one; None if none is found. Numbers after
        a gap are contiguous again, so one of the distances 1, 2, 4, … finds a batch if enough
        batches follow the gap.
        """
        return next(
            (
                missing + 2**power
                for power in range(HOLE_PROBES)
                if self._landing.has(feed, missing + 2**power)
            ),
            None,
        )


def _started(offset: Offset) -> Offset:
    """Return the offset without the feeds of which it contains no batch (number 0)."""
    return {feed: number for feed, number in offset.items() if number}
