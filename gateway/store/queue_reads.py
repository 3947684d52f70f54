"""Reads of the tails of long queues, on request of the broker (`gateway/broker/queue_pages.py`).

In: orders. Out: rows that are committed. The reads run on the writer's thread, between two commits.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any

from gateway.broker.delivery import PAGE_BYTES, PAGE_ROWS, Collect, Load
from gateway.store.cells import HIGHEST, MOST, teach
from gateway.store.row_checks import FITS, number_of

DELIVERY = (
    f"queue.first, queue.count, {number_of('queue.message')}, queue.skip, queue.flags,"
    " queue.extra, queue.share, message.topic, message.retain, message.count,"
    " message.properties, message.expires, message.body"
)
"""The columns of a `StoredDelivery`, for SELECT."""
PLAUSIBLE = f"queue.first BETWEEN 1 AND {HIGHEST} AND queue.count BETWEEN 1 AND {MOST}"
"""SQL condition: true if the numbers of a queue entry are plausible."""
SIZE = (
    "size BETWEEN length(body) / max(message.count, 1) AND length(body) / max(message.count, 1)"
    " + length(properties) + length(CAST(topic AS BLOB)) + 2"
)
"""SQL condition: true if `queue.size` is plausible for the message, including its properties and a
long topic (`PublishRun.weight`).
"""
WHOLE = (
    f"queue.first BETWEEN 1 AND {HIGHEST} AND flags BETWEEN 2 AND 5"
    # a row usually holds a single publication: the quick checks come first
    " AND (queue.count = 1 AND message.count = 1 AND skip = 0 AND size = length(body)"
    f" OR queue.count BETWEEN 1 AND {MOST} AND message.count BETWEEN 1 AND {MOST}"
    " AND length(body) % message.count = 0 AND skip BETWEEN 0 AND message.count - queue.count"
    f" AND {SIZE})"
    " AND typeof(first + queue.count + skip + flags + size + message.count + retain) = 'integer'"
    " AND typeof(body) = 'blob' AND typeof(properties) = 'blob' AND typeof(extra) = 'blob'"
    " AND typeof(topic) = 'text' AND typeof(share) = 'text'"
    f" AND (expires IS NULL OR typeof(expires) = 'integer' AND expires BETWEEN 0 AND {HIGHEST})"
    " AND (properties = x'' OR is_block(CAST(properties AS BLOB)))"
    " AND (extra = x'' OR is_extra(CAST(extra AS BLOB)))"
    " AND retain BETWEEN 0 AND 1 AND is_topic(CAST(topic AS BLOB))"
    " AND (share = '' OR is_text(CAST(share AS BLOB)))"
    f" AND {FITS}"
)
"""SQL condition: true if a queue entry and its message make valid PUBLISH packets. The connection
must be prepared by `teach`. The check must be fast for a million rows at a start; `cells.py` finds
other faults.
"""
UNSOUND = f"NOT EXISTS (SELECT 1 FROM message WHERE id = queue.message AND {WHOLE})"  # noqa: S608
"""SQL condition: true if a queue entry cannot be sent, because the entry or its message is damaged,
or the message is missing.
"""
_PAGE = DELIVERY.replace("queue.share", "iif(message.id IS NULL, '', queue.share)")
"""The columns of `DELIVERY`. For an entry that cannot be sent, the columns of the message are NULL,
and `share` is empty. The broker checks the topic for NULL (`gateway/broker/queue_pages.py`).
"""
_SOUND = f"LEFT JOIN message ON message.id = queue.message AND {WHOLE}"
_OTHERS = (
    f"SELECT {number_of('message')} FROM queue"  # noqa: S608 - names of ours
    " WHERE session = ? AND first >= ? AND share = ''"
)


class DamagedPlace(Exception):
    """Error: an entry of a queue has impossible numbers, so the position of later entries is
    unknown.
    """


def load(database: sqlite3.Connection, order: Load) -> list[tuple[Any, ...]]:
    """Return a page of the queue that an order names, as `StoredDelivery` rows. Raises
    DamagedPlace.
    """
    teach(database)
    query = (
        f"SELECT {_PAGE} FROM queue {_SOUND}"  # noqa: S608 - names of ours
        " WHERE queue.session = ? AND queue.first >= ? ORDER BY queue.first LIMIT ?"
    )
    return _page(database.execute(query, (order.session, order.first, PAGE_ROWS)))


def _page(found: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the first rows, up to the row that reaches PAGE_BYTES in all. Raises DamagedPlace."""
    rows, size = [], 0
    for row in found:
        first, count = row[:2]
        if not (type(first) is type(count) is int and 0 < count <= MOST and first <= HIGHEST):
            raise DamagedPlace(
                f"an entry of its queue is damaged: {count!r} messages from {first!r}"
            )
        rows.append(row)
        topic, *_, properties, _, body = row[-6:]
        if topic is not None:
            size += len(topic) + len(properties) + len(body)
        if size >= PAGE_BYTES:
            break
    return rows


def collect(
    database: sqlite3.Connection, order: Collect
) -> tuple[list[int], list[tuple[Any, ...]]]:
    """Return two lists for an ended session. First: if the order requests it, the numbers of the
    messages that did not come from shared subscriptions; otherwise an empty list. Second: a page of
    the entries from shared subscriptions, as `StoredDelivery` rows; empty after the last page.
    Raises DamagedPlace.
    """
    teach(database)
    key = (order.session, order.first)
    messages = [row[0] for row in database.execute(_OTHERS, key)] if order.others else []
    query = (
        f"SELECT {_PAGE} FROM queue {_SOUND}"  # noqa: S608 - names of ours
        " WHERE queue.session = ? AND queue.first >= ? AND queue.share <> '' ORDER BY queue.first"
        " LIMIT ?"
    )
    return messages, _page(database.execute(query, (*key, PAGE_ROWS)))
