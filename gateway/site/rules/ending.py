"""What is over: each member that may hold an older session of a client hears of it, until it says
that there is none.

In: records of this gateway that name other members in `older`; what the others say is over. Out:
the same to them; the end of what is older here.

A member that gets the word ends what has a lower epoch. If it has a higher one, and it was not made
without us, then ours was made without knowing that epoch: ours gets a higher one, and the word goes
out again. If both records were made without the other one, nobody can tell which one the client saw
last: the one with the higher epoch (or name) stays, and is doubtful. It says so when that is on its
disk, in answer to the word of the other one, which ends its own only then: a link that breaks
before costs nothing. A record from a copy of a store ends for any other one.

A member that may have forgotten what is over, as after a restore, says the word for all clients.
All that a member holds that hears it is doubtful.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

from gateway.site.errors import SiteError
from gateway.site.rules.contacts import Contacts
from gateway.site.rules.holder import ALL_CLIENTS, Done, Held, Holder
from gateway.site.rules.merge_window import WINDOW_S
from gateway.site.rules.messages import MAX_EPOCH, End, Ended, Endings, Over, State, portions
from gateway.site.rules.suspect import doubt
from gateway.site.rules.trust import Trust
from gateway.site.rules.working import Working

AT_ONCE = 4096
"""So many words to one member are without an answer."""
MOST_PENDING = 65_536
"""So many words of one member may wait for the disk."""
REMEMBERED = 4096
"""Of so many clients it is remembered which epoch was confirmed last."""
AGAIN_S = 0.2
"""After so long a busy member hears it again."""


class _Listener:
    """One member that has to hear of what is over, for the time of a link."""

    def __init__(self) -> None:
        self.clients: OrderedDict[str, None] = OrderedDict()
        self.first: set[str] = set()
        """Those that it has to hear of before it gets a lease."""
        self.unanswered: dict[str, int] = {}
        """What was said and not answered: clients, with the epoch."""
        self.due: float | None = None
        self.restored = False
        """It has said the word for all clients. It need not say it twice."""


class Ending:
    """is_searched: whether this gateway is about to decide about a client. mistrust_searches: what
    it has decided, and is not on the disk yet, is in doubt.
    """

    def __init__(
        self,
        contacts: Contacts,
        holder: Holder,
        trust: Trust,
        working: Working,
        is_searched: Callable[[str], bool],
        mistrust_searches: Callable[[], None],
    ) -> None:
        self._contacts = contacts
        self._holder = holder
        self._trust = trust
        self._working = working
        self._is_searched = is_searched
        self._mistrust_searches = mistrust_searches
        self._listeners: dict[str, _Listener] = {name: _Listener() for name in contacts}
        self._again: deque[tuple[float, str, str]] = deque()
        self._pending = dict.fromkeys(contacts, 0)
        """Words of each member whose answers wait for the disk."""
        self._confirmed: OrderedDict[str, int] = OrderedDict()
        """Of clients of which something was here: the epoch below which it has ended."""

    def joined(self, member: str) -> None:
        """Begin with all that has to be heard there; a lease comes after it."""
        listener = self._listeners[member] = _Listener()
        listener.clients.update(dict.fromkeys(self._holder.older_at(member)))
        if ALL_CLIENTS in listener.clients:  # first, so that no session comes from there unmarked
            listener.clients.move_to_end(ALL_CLIENTS, last=False)
        listener.first.update(listener.clients)
        listener.due = self._contacts.now

    def left(self, member: str) -> None:
        self._listeners[member] = _Listener()

    def tell(self, client: str, members: frozenset[str]) -> None:
        """A record of this gateway names these members in `older`; those without a link hear of it
        when they have one.
        """
        for member in members:
            if member in self._contacts and self._contacts[member].up:
                listener = self._listeners[member]
                listener.clients[client] = None
                if listener.due is None:
                    listener.due = self._contacts.now + WINDOW_S
                self._contacts.stir()

    def _say(self, member: str, listener: _Listener) -> None:
        overs: list[Over] = []
        while listener.clients and len(listener.unanswered) < AT_ONCE:
            client, _ = listener.clients.popitem(last=False)
            held = self._holder.held(client)
            names = held is not None and member in held.older
            if names and (client in self._working or self._is_searched(client)):
                self._later(member, client)
                continue
            listener.first.discard(client)
            if held is not None and names:
                mask = self._contacts.mask(held.older)
                overs.append(Over(client, held.epoch, mask, held.copied))
                listener.unanswered[client] = held.epoch
        for portion in portions(overs):
            self._contacts.say(member, End(portion), call=True)
        listener.due = None
        if not listener.first:
            self._contacts[member].granting = True

    def _later(self, member: str, client: str) -> None:
        self._again.append((self._contacts.now + AGAIN_S, member, client))

    def on_end(self, member: str, end: End) -> None:
        """End what is older here; one answer when all of it is on disk."""
        ended: list[Ended] = []
        left = len(end.overs)
        if self._pending[member] + left > MOST_PENDING:
            raise SiteError("it says faster what is over than the disk takes it", member)
        self._pending[member] += left

        def add(item: Ended) -> None:
            nonlocal left
            ended.append(item)
            left -= 1
            if left == 0:
                self._holder.on_disk(answer)

        def answer() -> None:
            self._pending[member] -= len(ended)
            for portion in portions(ended):
                self._contacts.say(member, Endings(portion))

        for over in end.overs:
            if over.client == ALL_CLIENTS:
                self._mistrust_all(member, partial(add, Ended(ALL_CLIENTS, over.below, State.DONE)))
            else:
                self._end(member, over, add)

    def _mistrust_all(self, member: str, done: Done) -> None:
        """The client of any session here may have been at that member since."""
        if self._listeners[member].restored:
            done()
            return
        self._listeners[member].restored = True
        self._mistrust_searches()
        self._holder.mistrust_all(done)

    def _end(self, member: str, over: Over, add: Callable[[Ended], None]) -> None:
        client, below = over.client, over.below
        held = self._holder.held(client)
        if client in self._working or self._is_searched(client):
            self._trust.asked(client, (member,))
            add(Ended(client, below, State.BUSY))
        elif held is None:
            add(Ended(client, below, State.DONE))
        elif (state := self._judge(member, over, held)) is State.DONE:
            self._give_way(client, held, below, partial(add, Ended(client, below, state)))
        else:
            self._trust.asked(client, (member,))
            ended = Ended(client, below, state, held.epoch)
            if state is State.STAYS and held.copied == over.copied:
                names = self._contacts.unmask(member, over.older) & self._contacts.keys()
                self._stay(held, names, ended, add)
            else:
                add(ended)

    def _judge(self, member: str, over: Over, held: Held) -> State:
        """What becomes of our record, by a word of a member."""
        if held.copied != over.copied:
            return State.DONE if held.copied else State.STAYS
        if member in held.older and held.given_to != member:
            weaker = (held.epoch, self._contacts.me) < (over.below, member)
            return State.BUSY if weaker or held.given_to is not None else State.STAYS
        return State.DONE if held.epoch < over.below else State.HELD

    def _stay(
        self, held: Held, names: frozenset[str], ended: Ended, add: Callable[[Ended], None]
    ) -> None:
        """Keep our record, in doubt."""
        client = ended.client
        self._working.begin(client)

        def stayed(epoch: int) -> None:
            self._working.finish(client)
            self.tell(client, names - held.older)
            add(ended._replace(epoch=epoch))

        doubt(self._holder, client, held, names, stayed)

    def _give_way(self, client: str, held: Held, below: int, done: Done) -> None:
        """End our record, for one with the epoch `below`."""
        self._working.begin(client)
        gone = partial(self._gone, client, below, done)
        self._holder.end(client, max(below, held.epoch) + 1, gone)

    def _gone(self, client: str, below: int, done: Done) -> None:
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
        """An epoch above the one that was confirmed last, if that is remembered. Its member may
        come back without the confirmation, which goes to its disk late: a record that is made here
        meanwhile is the stronger one.
        """
        return min(self._confirmed.get(client, 0) + 1, MAX_EPOCH - 1)

    def on_endings(self, member: str, endings: Endings) -> None:
        listener = self._listeners[member]
        for item in endings.ended:
            if listener.unanswered.get(item.client) == item.below:
                del listener.unanswered[item.client]
                self._on_ended(member, item)
        if listener.clients and listener.due is None:
            listener.due = self._contacts.now

    def _on_ended(self, member: str, item: Ended) -> None:
        client = item.client
        held = self._holder.held(client)
        if held is None or member not in held.older:
            return
        busy = client in self._working or self._is_searched(client)
        wrong = client == ALL_CLIENTS and item.state is not State.DONE
        if busy or wrong or held.epoch != item.below or item.state is State.BUSY:
            self._later(member, client)
        elif item.state is State.DONE:
            self._holder.confirmed(client, member)
        elif item.state is State.STAYS:
            self._give_way(client, held, item.epoch, lambda: None)
        elif held.given_to is None and item.epoch + 1 < MAX_EPOCH:
            self._working.begin(client)
            done = partial(self._raised, client, held.older)
            self._holder.stand(client, item.epoch + 1, held.older, done)
        else:
            self._later(member, client)

    def _raised(self, client: str, members: frozenset[str]) -> None:
        self._working.finish(client)
        self.tell(client, members)

    @property
    def deadline(self) -> float | None:
        times = [listener.due for listener in self._listeners.values() if listener.due is not None]
        times += [self._again[0][0]] if self._again else []
        return min(times, default=None)

    def advance(self) -> None:
        while self._again and self._again[0][0] <= self._contacts.now:
            _, member, client = self._again.popleft()
            self.tell(client, frozenset((member,)))
        for member, listener in self._listeners.items():
            if (
                listener.due is not None
                and listener.due <= self._contacts.now
                and self._contacts[member].up
            ):
                self._say(member, listener)
