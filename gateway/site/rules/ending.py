"""Ending of outdated sessions: each member that may hold an older session of a client is notified,
until that member answers that it has none.

In: records of this gateway that name other members in `older`; Over messages of other members. Out:
Over messages to the named members; the end of older records here.

A member that gets an Over message compares its own record of the client with the epoch in the
message:

- If its own epoch is lower, it ends its record.
- If its own epoch is not lower, and its record does not name the sender in `older`, the sender did
  not know of this epoch. The sender gives its record a still higher epoch, and sends the message
  again.
- If each record names the other member in `older`, each was made without knowledge of the other,
  and it is unknown which session the client saw last. The record with the higher epoch stays, and
  becomes suspect; with equal epochs, the record of the member with the greater name. Its member
  first writes `suspect` to disk, and then answers the other member's message. The other member ends
  its record only after this answer, so a link that breaks earlier does no harm.

A record from a copy of a store ends in favour of any other record.

If `older` of an Over message includes the sender itself, the sender has a session that can be used.
If both members have such a session, the client had two sessions, and each may hold messages that
the other session has delivered. So the remaining session is replaced (Session Present 0).

A member that may have forgotten that sessions elsewhere are outdated, for example after a restore,
sends one Over message for `ALL_CLIENTS`. All sessions of a member that gets this message become
suspect.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from gateway.site.errors import SiteError
from gateway.site.rules.contacts import Contacts
from gateway.site.rules.holder import ALL_CLIENTS, NOBODY, Done, Held, Holder
from gateway.site.rules.merge_window import WINDOW_S
from gateway.site.rules.messages import MAX_EPOCH, End, Ended, Endings, Over, State, portions
from gateway.site.rules.search import is_live
from gateway.site.rules.suspect import doubt
from gateway.site.rules.trust import Trust, Working

AT_ONCE = 4096
"""Largest number of unanswered Over messages to one member."""
MOST_PENDING = 65_536
"""Largest number of Over messages of one member whose answers may wait for the disk. A member that
sends more gets a SiteError.
"""
REMEMBERED = 4096
"""Largest number of clients in `Ending._confirmed`. If there are more, the oldest is dropped."""
AGAIN_S = 0.2
"""Seconds after which a member is notified again of a client's outdated session, for example
because a session lookup of this client was in progress at either member.
"""


class _Listener:
    """The notifications of outdated sessions to one member. Exists as long as the member's link."""

    def __init__(self) -> None:
        self.clients: OrderedDict[str, None] = OrderedDict()
        self.first: set[str] = set()
        """Clients about which the member has to be informed before it gets a lease."""
        self.unanswered: dict[str, int] = {}
        """Epoch in each Over message that waits for an answer, by client."""
        self.is_due = False
        """Whether a call of `_say` for the member is planned."""
        self.restored = False
        """Whether the member has sent an Over message for `ALL_CLIENTS` over this link. If so, all
        sessions here were marked as suspect at that time.
        """


class Ending:
    """The ending of outdated sessions. is_searched: returns whether this gateway is about to decide
    about a client. mark_searches_suspect: marks all decisions that are not on disk yet as suspect.
    """

    def __init__(
        self,
        contacts: Contacts,
        holder: Holder,
        trust: Trust,
        working: Working,
        is_searched: Callable[[str], bool],
        mark_searches_suspect: Callable[[], None],
    ) -> None:
        self._contacts = contacts
        self._holder = holder
        self._trust = trust
        self._working = working
        self._is_searched = is_searched
        self._mark_searches_suspect = mark_searches_suspect
        self._listeners: dict[str, _Listener] = {name: _Listener() for name in contacts}
        self._pending = dict.fromkeys(contacts, 0)
        """Number of Over messages of each member that wait for their answers, until the ends of the
        sessions are on disk.
        """
        self._confirmed: OrderedDict[str, int] = OrderedDict()
        """Epoch, by client, of the other member's record that last replaced the record here
        (`above`).
        """

    def joined(self, member: str) -> None:
        """Begin to notify the member of all its outdated sessions. It gets a lease only after these
        notifications.
        """
        listener = self._listeners[member] = _Listener()
        listener.clients.update(dict.fromkeys(self._holder.older_at(member)))
        if ALL_CLIENTS in listener.clients:  # first, before any session moves here
            listener.clients.move_to_end(ALL_CLIENTS, last=False)
        listener.first.update(listener.clients)
        self._say_at(self._contacts.now, member, listener)

    def link_ended(self, member: str) -> None:
        self._listeners[member] = _Listener()

    def tell(self, client: str, members: frozenset[str]) -> None:
        """Send Over messages about the client to `members`. This gateway's record of the client has
        these members in `older`. A member without a link gets the message when it has a link.
        """
        for member in members:
            if member in self._contacts and self._contacts[member].up:
                listener = self._listeners[member]
                listener.clients[client] = None
                self._say_at(self._contacts.now + WINDOW_S, member, listener)

    def _say_at(self, time: float, member: str, listener: _Listener) -> None:
        if not listener.is_due:
            listener.is_due = True
            self._contacts.plan(time, partial(self._say, member, listener))

    def _say(self, member: str, listener: _Listener) -> None:
        if self._listeners[member] is not listener:  # the member's link has ended
            return
        listener.is_due = False
        overs: list[Over] = []
        while listener.clients and len(listener.unanswered) < AT_ONCE:
            client, _ = listener.clients.popitem(last=False)
            record = self._holder.record(client)
            names = record is not None and member in record.older
            if names and (client in self._working or self._is_searched(client)):
                self._later(member, client)
                continue
            listener.first.discard(client)
            if record is not None and names:
                live = {self._contacts.me} if is_live(record) else NOBODY
                mask = self._contacts.mask(record.older | live)
                overs.append(Over(client, record.epoch, mask, record.copied))
                listener.unanswered[client] = record.epoch
        for portion in portions(overs):
            self._contacts.say(member, End(portion), call=True)
        if not listener.first:
            self._contacts[member].granting = True

    def _later(self, member: str, client: str) -> None:
        again = partial(self.tell, client, frozenset((member,)))
        self._contacts.plan(self._contacts.now + AGAIN_S, again)

    def on_end(self, member: str, end: End) -> None:
        """Handle a member's Over messages: end or mark the older records that they name. Answer
        when all changes are on disk.
        """
        ended: list[Ended] = []
        remaining = len(end.overs)
        if self._pending[member] + remaining > MOST_PENDING:
            raise SiteError("it reports ended sessions faster than the disk accepts", member)
        self._pending[member] += remaining

        def add(item: Ended) -> None:
            nonlocal remaining
            ended.append(item)
            remaining -= 1
            if remaining == 0:
                self._holder.on_disk(answer)

        def answer() -> None:
            self._pending[member] -= len(ended)
            for portion in portions(ended):
                self._contacts.say(member, Endings(portion))

        for over in end.overs:
            if over.client == ALL_CLIENTS:
                self._mark_all_suspect(
                    member, partial(add, Ended(ALL_CLIENTS, over.below, State.DONE))
                )
            else:
                self._end(member, over, add)

    def _mark_all_suspect(self, member: str, done: Done) -> None:
        """Mark all sessions here as suspect, at most once for each link of `member`: the member may
        have forgotten a newer session of any client.
        """
        if self._listeners[member].restored:
            done()
            return
        self._listeners[member].restored = True
        self._mark_searches_suspect()
        self._holder.mark_all_suspect(done)

    def _end(self, member: str, over: Over, add: Callable[[Ended], None]) -> None:
        client, below = over.client, over.below
        record = self._holder.record(client)
        if client in self._working or self._is_searched(client):
            self._trust.asked(client, (member,))
            add(Ended(client, below, State.BUSY))
        elif record is None:
            add(Ended(client, below, State.DONE))
        elif (state := self._judge(member, over, record)) is State.DONE:
            self._give_way(client, record, below, partial(add, Ended(client, below, state)))
        else:
            self._trust.asked(client, (member,))
            ended = Ended(client, below, state, record.epoch)
            names = self._contacts.unmask(member, over.older) & self._contacts.keys()
            copied = record.copied or over.copied
            twofold = member in names & record.older and is_live(record) and not copied
            if twofold and state is not State.HELD:
                self._holder.mark_twofold(client)
            if state is State.STAYS and record.copied == over.copied:
                self._stay(record, names, ended, add)
            elif twofold and state is State.BUSY:  # our session gives way soon
                self._holder.mark_suspect(client, partial(add, ended))
            else:
                add(ended)

    def _judge(self, member: str, over: Over, record: Held) -> State:
        """Return the answer to an Over message. record: this gateway's record of the client."""
        if record.copied != over.copied:
            return State.DONE if record.copied else State.STAYS
        if member in record.older and record.given_to != member:
            weaker = (record.epoch, self._contacts.me) < (over.below, member)
            return State.BUSY if weaker or record.given_to is not None else State.STAYS
        return State.DONE if record.epoch < over.below else State.HELD

    def _stay(
        self, record: Held, names: frozenset[str], ended: Ended, add: Callable[[Ended], None]
    ) -> None:
        """Keep this gateway's record, and mark it as suspect on disk. Then call `add` with the
        answer.
        """
        client = ended.client
        self._working.begin(client)

        def stayed(epoch: int) -> None:
            self._working.finish(client)
            self.tell(client, names - record.older)
            add(ended._replace(epoch=epoch))

        doubt(self._holder, client, record, names, stayed)

    def _give_way(self, client: str, record: Held, below: int, done: Done) -> None:
        """End this gateway's record in favour of another member's record with the epoch `below`."""
        self._working.begin(client)
        ended = partial(self._ended, client, below, done)
        self._holder.end(client, max(below, record.epoch) + 1, ended)

    def _ended(self, client: str, below: int, done: Done) -> None:
        self._working.finish(client)
        self._trust.settled(client)
        self._confirm(client, below)
        done()

    def _confirm(self, client: str, below: int) -> None:
        self._confirmed[client] = below
        self._confirmed.move_to_end(client)
        if len(self._confirmed) > REMEMBERED:
            self._confirmed.popitem(last=False)

    def above(self, client: str) -> int:
        """Return the lowest epoch for a new record of this client. If another member's record has
        replaced the record here, this is one more than the epoch of that member's record; else 1.
        That member may restart and not know that the record here has ended. Therefore a new record
        here needs the higher epoch.
        """
        return min(self._confirmed.get(client, 0) + 1, MAX_EPOCH - 1)

    def on_endings(self, member: str, endings: Endings) -> None:
        listener = self._listeners[member]
        for item in endings.ended:
            if listener.unanswered.get(item.client) == item.below:
                del listener.unanswered[item.client]
                self._on_ended(member, item)
        if listener.clients:
            self._say_at(self._contacts.now, member, listener)

    def _on_ended(self, member: str, item: Ended) -> None:
        client = item.client
        record = self._holder.record(client)
        if record is None or member not in record.older:
            return
        busy = client in self._working or self._is_searched(client)
        wrong = client == ALL_CLIENTS and item.state is not State.DONE
        if busy or wrong or record.epoch != item.below or item.state is State.BUSY:
            self._later(member, client)
        elif item.state is State.DONE:
            self._holder.confirmed(client, member)
        elif item.state is State.STAYS:
            self._give_way(client, record, item.epoch, lambda: None)
        elif record.given_to is None and item.epoch + 1 < MAX_EPOCH:
            self._working.begin(client)
            done = partial(self._raised, client, record.older)
            self._holder.stand(client, item.epoch + 1, record.older, done)
        else:
            self._later(member, client)

    def _raised(self, client: str, members: frozenset[str]) -> None:
        self._working.finish(client)
        self.tell(client, members)
