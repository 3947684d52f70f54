"""The tails of long queues, read when the broker asks for them (`gateway/broker/queue_pages.py`).

In: orders. Out: rows, as far as they are committed. Runs on the writer's thread, between two
commits.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any

from gateway.broker.delivery import PAGE_BYTES, PAGE_ROWS, Collect, Load
from gateway.broker.sound_rows import FLAGS, HIGHEST, MOST, is_block, is_text, is_topic, text

DELIVERY = (
    "queue.first, queue.count, queue.message, queue.skip, queue.flags, queue.extra,"
    " CAST(queue.share AS BLOB), CAST(message.topic AS BLOB), message.retain, message.count,"
    " message.properties, message.expires, message.body"
)
"""The columns of a `StoredDelivery`, its texts as bytes (`delivery`). Those of a message that is
gone are NULL: whoever reads a page of a queue joins by LEFT JOIN, and looks
(`gateway/broker/queue_pages.py`).
"""
PLAUSIBLE = f"queue.first BETWEEN 1 AND {HIGHEST} AND queue.count BETWEEN 1 AND {MOST}"
"""SQL: a place of a queue with numbers that a queue can have."""
SIZE = (
    "size BETWEEN length(body) / max(message.count, 1) AND length(body) / max(message.count, 1)"
    " + length(properties) + length(CAST(topic AS BLOB)) + 2"
)
"""SQL: `queue.size` fits the message."""
_WHOLE = (
    f"{PLAUSIBLE} AND message.count BETWEEN 1 AND {MOST} AND length(body) % message.count = 0"
    f" AND skip BETWEEN 0 AND message.count - queue.count AND flags BETWEEN {FLAGS[0]} AND"
    f" {FLAGS[1]} AND {SIZE} AND (expires IS NULL OR expires BETWEEN 0 AND {HIGHEST})"
    " AND is_topic(CAST(topic AS BLOB)) AND is_text(CAST(share AS BLOB)) AND is_block(properties)"
    " AND is_block(extra)"
)
UNSOUND = f"NOT EXISTS (SELECT 1 FROM message WHERE id = queue.message AND {_WHOLE})"  # noqa: S608
"""SQL: a place in a queue that cannot be sent: the place or its message is damaged, or the message
is gone. For a database that `teach` has taught.
"""


def teach(database: sqlite3.Connection) -> None:
    """Give a connection the functions that `UNSOUND` calls, once: SQLite replaces no function while
    a statement runs.
    """
    known = "SELECT 1 FROM pragma_function_list WHERE name = 'is_block'"
    if database.execute(known).fetchone() is not None:
        return
    for function in (is_topic, is_text, is_block):
        database.create_function(function.__name__, 1, function, deterministic=True)


def delivery(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row that ends with the columns of `DELIVERY`, as a `StoredDelivery`. A text that is no
    UTF-8 is None.
    """
    return (*row[:-7], text(row[-7]), text(row[-6]), *row[-5:])


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
    for one in found:
        row = delivery(one)
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
