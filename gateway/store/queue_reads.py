"""The tails of long queues, read when the broker asks for them (`gateway/broker/queue_pages.py`).

In: orders. Out: rows, as far as they are committed. Runs on the writer's thread, between two
commits.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any

from gateway.broker.delivery import PAGE_BYTES, PAGE_ROWS, Collect, Load

DELIVERY = (
    "queue.first, queue.count, queue.message, queue.skip, queue.flags, queue.extra, queue.share,"
    " message.topic, message.retain, message.count, message.properties, message.expires,"
    " message.body"
)
"""The columns of a `StoredDelivery`. Those of a message that is gone are NULL: whoever reads a page
of a queue joins by LEFT JOIN, and looks (`gateway/broker/queue_pages.py`).
"""
UNSOUND = (
    "NOT EXISTS (SELECT 1 FROM message WHERE id = queue.message AND queue.count > 0 AND skip >= 0"
    " AND skip + queue.count <= message.count AND length(body) % max(message.count, 1) = 0)"
)
"""SQL: a place in a queue whose message is gone, or is not as long as it says."""


def load(database: sqlite3.Connection, order: Load) -> list[tuple[Any, ...]]:
    """A page of `StoredDelivery`."""
    query = (
        f"SELECT {DELIVERY} FROM queue LEFT JOIN message ON message.id = queue.message"  # noqa: S608 - names of ours
        " WHERE queue.session = ? AND queue.first >= ? ORDER BY queue.first LIMIT ?"
    )
    return _page(database.execute(query, (order.session, order.first, PAGE_ROWS)))


def _page(found: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """As many as a page holds."""
    rows, size = [], 0
    for row in found:
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
    """The messages that other rows refer to, if they are asked for; and a page of `StoredDelivery`
    from shared subscriptions, empty when there are no more.
    """
    key = (order.session, order.first)
    others = "SELECT message FROM queue WHERE session = ? AND first >= ? AND share = ''"
    messages = [row[0] for row in database.execute(others, key)] if order.others else []
    query = (
        f"SELECT {DELIVERY} FROM queue LEFT JOIN message ON message.id = queue.message"  # noqa: S608 - names of ours
        " WHERE queue.session = ? AND queue.first >= ? AND queue.share <> '' ORDER BY queue.first"
        " LIMIT ?"
    )
    return messages, _page(database.execute(query, (*key, PAGE_ROWS)))
