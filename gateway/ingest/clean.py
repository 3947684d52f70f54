"""`onceway ingest clean`: deletion of batches at the landing place that the table already has.

In: the landing place and the table. Out: fewer batches, and `LANDING/GATEWAY/cleaned.json`, which
says up to which number the batches of each epoch were deleted on purpose. This file is written
before the deletion, so an ingest that misses a batch always finds the reason. The module does not
use Spark.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import fsspec
from deltalake.exceptions import DeltaError

from gateway.errors import OncewayError
from gateway.ingest.landing.place import Landing, error_text
from gateway.ingest.report.health import damage
from gateway.ingest.report.tables import in_quarantine, progress_of_feeds
from gateway.system.amounts import were
from gateway.system.gateway_name import shown
from gateway.uplink.delta_reader import reason, unsupported
from gateway.uplink.landing import Unreachable, open_landing
from gateway.uplink.manifest import cleaned_json, cleaned_name

SHOWN = 5
"""Largest number of feeds that a message names."""

log = logging.getLogger("onceway.ingest")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A feed with deleted batches. until: number of the last deleted batch. batches: how many
    batches this call deleted.
    """

    feed: str
    until: int
    batches: int


def clean(landing: Landing, table: str, older_than: float) -> Iterator[Cleaned]:
    """Delete the batches that the table has and that landed more than `older_than` seconds ago.
    Yield each feed with deleted batches. A batch in quarantine is not deleted, because it exists
    nowhere else.

    Raises OncewayError if the landing place or the table is missing or empty, or if the table is
    damaged. Raises OncewayError at the end, after all other feeds, if a feed could not be cleaned.
    Raises OSError if the landing place cannot be reached.
    """
    landing.refuse_empty()
    feeds = progress_of_feeds(table)
    if (flaw := _damage(table)) is not None:
        raise OncewayError(
            f"the table is damaged ({flaw}), so no batch is deleted",
            table,
            "Perhaps only the landing place has the missing rows. See `onceway ingest report`",
        )
    if not feeds:
        raise OncewayError(
            "the table has no batch of this landing place",
            table,
            "Make sure that this is the right table",
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
            failed.append(f"{shown(feed)}: {error_text(error)}")
        except Unreachable as error:
            failed.append(f"{shown(feed)}: {shown(str(error))}")
    if failed:
        more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
        raise OncewayError(
            f"{were(len(failed), 'feed')} not cleaned: {'; '.join(failed[:SHOWN])}{more}",
            landing.url,
        )


def _damage(table: str) -> str | None:
    """Return a description of the table's missing or unreadable parts. None if there are none, or
    if only Spark can read the table: deltalake does not support one of its features.
    """
    try:
        return damage(table)
    except DeltaError as error:
        text = reason(error)
        return None if unsupported(text) else text


def _tidy_markers(landing: Landing) -> None:
    """Delete outdated markers at the landing place. A marker is only a hint at a gateway's newest
    batch, so an error is only logged.
    """
    try:
        landing.tidy_markers()
    except OSError as error:
        log.warning("old markers were not deleted: %s", error_text(error))


def say(landing: Landing, feed: str, until: int) -> None:
    """Record at the landing place that the batches of a feed up to number `until` were deleted on
    purpose. Raises OncewayError if there is no such feed.
    """
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
    # fsspec adds options of its environment to every file system except those created directly
    options = fsspec.config.conf.get(landing.url.partition("://")[0], {})
    place = open_landing(landing.url, options)
    try:
        place.replace(cleaned_name(gateway), cleaned_json(gateway, cleaned))
    finally:
        place.close()
