"""`onceway ingest clean`: old batches leave the landing place once the table has them.

In: the landing place and the table. Out: fewer batches, and `LANDING/GATEWAY/cleaned.json`, which
says up to which number they were deleted on purpose. That is written first, so an ingest that does
not find a batch knows why, whenever it starts. Without Spark.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import fsspec

from gateway.errors import OncewayError
from gateway.ingest.landing.place import Landing, said
from gateway.ingest.report.tables import in_quarantine, taken
from gateway.system.gateway_name import shown
from gateway.uplink.landing import Unreachable, open_landing
from gateway.uplink.manifest import cleaned_json, cleaned_name

SHOWN = 5
"""Feeds that a message names."""

log = logging.getLogger("onceway.ingest")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """until: the last batch of the feed that is deleted; batches: how many were now."""

    feed: str
    until: int
    batches: int


def clean(landing: Landing, table: str, older_than: float) -> Iterator[Cleaned]:
    """Delete the batches that the table has and that landed longer ago than `older_than` seconds. A
    batch in quarantine stays, for nobody else has it.

    Raises OncewayError when there is no such table or landing place, or one of them has nothing,
    and, when all others are clean, for feeds that cannot be cleaned; OSError when it cannot be
    reached.
    """
    landing.refuse_empty()
    feeds = taken(table)
    if not feeds:
        raise OncewayError(
            "the table has no batch of this landing place", table, "Is it the right table?"
        )
    _tidy_markers(landing)
    quarantined = in_quarantine(table)
    before = time.time() - older_than
    failed = []
    for feed, number in sorted(feeds.items()):
        keep = {damaged for one, damaged in quarantined if one == feed}
        try:
            until = landing.old_until(feed, number, before, keep)
            if until:
                say(landing, feed, until)
                yield Cleaned(feed, until, landing.delete(feed, until, keep))
        except OSError as error:
            landing.refuse_outage(error)
            failed.append(f"{shown(feed)}: {said(error)}")
        except Unreachable as error:
            failed.append(f"{shown(feed)}: {shown(str(error))}")
    if failed:
        more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
        raise OncewayError(
            f"{len(failed)} feeds were not cleaned: {'; '.join(failed[:SHOWN])}{more}", landing.url
        )


def _tidy_markers(landing: Landing) -> None:
    """Markers are hints: that they cannot be read or deleted stops nothing."""
    try:
        landing.tidy_markers()
    except OSError as error:
        log.warning("old markers were not deleted: %s", said(error))


def say(landing: Landing, feed: str, until: int) -> None:
    """Note that batches of a feed up to `until` were deleted on purpose."""
    gateway, slash, epoch = feed.partition("/")
    if not slash or until < 1:
        raise OncewayError("a feed is GATEWAY/EPOCH, and its batches begin at 1", f"{feed} {until}")
    if gateway not in landing.gateways() or feed not in landing.feeds(gateway):
        raise OncewayError(
            "there is no such feed at the landing place",
            feed,
            "`onceway ingest report` lists the feeds",
        )
    cleaned = landing.cleaned_epochs(gateway)
    cleaned[epoch] = max(until, cleaned.get(epoch, 0))
    # fsspec adds what its environment says to every file system but those that are made directly
    options = fsspec.config.conf.get(landing.url.partition("://")[0], {})
    place = open_landing(landing.url, options)
    try:
        place.replace(cleaned_name(gateway), cleaned_json(gateway, cleaned))
    finally:
        place.close()
