"""Marking this gateway's record of a client as suspect, because another member may have a newer
record.

In: this gateway's record, and the names in `older` of the other member's record. Out: one commit,
which marks this gateway's record as suspect and adds the names to its `older`. The other member's
record may end or move. Then only this gateway's record says that the records of the named members
are older.
"""

from collections.abc import Callable
from functools import partial

from gateway.site.rules.holder import Held, Holder
from gateway.site.rules.messages import MAX_EPOCH


def doubt(
    holder: Holder, client: str, record: Held, names: frozenset[str], done: Callable[[int], None]
) -> None:
    """Mark a record as suspect, and add the members `names` to its `older`. If `older` gets a new
    member, the record gets a new epoch, so that an answer to an earlier Over message does not end
    the record. If the record's session has moved away, the record is only marked. done: called with
    the epoch of the record.
    """
    older = record.older | names
    # only a faulty member sends so high an epoch
    if older == record.older or record.given_to is not None or record.epoch + 1 == MAX_EPOCH:
        holder.mark_suspect(client, partial(done, record.epoch))
        return
    holder.mark_suspect(client, lambda: None)
    holder.stand(client, record.epoch + 1, older, partial(done, record.epoch + 1))
