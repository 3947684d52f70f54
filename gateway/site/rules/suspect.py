"""Our record of a client is put into doubt, since another member's may be the newer one.

In: the record, the members that the other record names. Out: one commit, which makes our record
doubtful, and hands those names on to it: nobody else may know that what they hold is older.
"""

from collections.abc import Callable
from functools import partial

from gateway.site.rules.holder import Held, Holder
from gateway.site.rules.messages import MAX_EPOCH


def doubt(
    holder: Holder, client: str, held: Held, names: frozenset[str], done: Callable[[int], None]
) -> None:
    """done: called with the epoch of the record. It is another one if the record names more, so
    that no answer to an earlier word ends it. One that was given away stays so, and names nobody
    else.
    """
    older = held.older | names
    # no epoch is so high, but by a member that is mad
    if older == held.older or held.given_to is not None or held.epoch + 1 == MAX_EPOCH:
        holder.mistrust(client, partial(done, held.epoch))
        return
    holder.mistrust(client, lambda: None)
    holder.stand(client, held.epoch + 1, older, partial(done, held.epoch + 1))
