"""Marking this gateway's record of a client as suspect, because another member's may be newer.

In: the record, the members that the other record names. Out: one commit, which marks this gateway's
record, and adds those names to it: no other record may tell those members that their records are
older.
"""

from collections.abc import Callable
from functools import partial

from gateway.site.rules.holder import Held, Holder
from gateway.site.rules.messages import MAX_EPOCH


def doubt(
    holder: Holder, client: str, record: Held, names: frozenset[str], done: Callable[[int], None]
) -> None:
    """Mark a record as suspect. done: called with the epoch of the record. If the record gets more
    names, its epoch is new, so that an answer to an earlier message does not end it. A session that
    has moved away stays as it is, and gets no more names.
    """
    older = record.older | names
    # only a faulty member sends so high an epoch
    if older == record.older or record.given_to is not None or record.epoch + 1 == MAX_EPOCH:
        holder.mark_suspect(client, partial(done, record.epoch))
        return
    holder.mark_suspect(client, lambda: None)
    holder.stand(client, record.epoch + 1, older, partial(done, record.epoch + 1))
