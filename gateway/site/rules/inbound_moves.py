"""Inbound moves of sessions from other members.

In: sessions to fetch, and their parts. Out: requests for parts; complete sessions, or the news that
a session is unavailable.

The first parts of all sessions are requested at once. The sender sends CREDIT frames, and one more
for each frame that this member reports as processed (Got). A session of several parts arrives part
by part. Parts wait in memory for the other parts of their session, and then for the disk. If
complete sessions that wait for the disk reach MEMORY_BYTES, no frames are reported as processed. If
complete and incomplete sessions together reach MEMORY_BYTES, only the oldest session of several
parts continues. So the waiting parts take at most MEMORY_BYTES, plus one large session, plus CREDIT
frames of each member.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from gateway.site.errors import SiteError
from gateway.site.rules.contacts import Contacts
from gateway.site.rules.messages import CREDIT, PART_BYTES, Give, Got, Part, Take, Wanted, portions

MEMORY_BYTES = 32_000_000
SESSION_BYTES = 256_000_000
"""Largest session that can move here, in bytes."""
STALL_S = 1.0
"""Seconds without any frame from a member after which moves from this member are abandoned."""
PROGRESS_S = 5.0
"""Seconds without a part from a member after which moves from this member are abandoned, even if it
sends other frames.
"""


class _Claim:
    __slots__ = ("epoch", "parts", "source", "suspect")

    def __init__(self, source: str, epoch: int) -> None:
        self.source = source
        self.epoch = epoch
        self.parts: list[bytes] = []
        self.suspect = False


class InboundMoves:
    def __init__(
        self,
        contacts: Contacts,
        arrived: Callable[[str, Sequence[bytes], bool], None],
        lost: Callable[[str], None],
        refused: Callable[[str, str], None],
    ) -> None:
        self._contacts = contacts
        self._arrived = arrived
        self._lost = lost
        self._refused = refused
        self._claims: dict[str, _Claim] = {}
        self._watched: set[str] = set()
        """Members for which a check of their progress is planned."""
        self._wanted: dict[str, list[Wanted]] = {name: [] for name in contacts}
        self._progress = dict.fromkeys(contacts, 0.0)
        self._count = dict.fromkeys(contacts, 0)
        self._coming: dict[str, int] = {}
        """Bytes of memory for each session of which some parts, but not all, have arrived; by
        client. The bytes of the next part are included.
        """
        self._later: OrderedDict[str, None] = OrderedDict()
        """Clients whose session has arrived in part. The next part is requested when memory has
        room. The client whose turn is next is first.
        """
        self._owed = dict.fromkeys(contacts, 0)
        """Number of frames received from each member that this gateway has not yet reported as
        processed.
        """
        self._unsettled = 0
        """Bytes of complete sessions that are not on disk yet."""

    def claim(self, client: str, source: str, epoch: int) -> None:
        """Request a client's session from the member `source`. Its reply, a CLAIM, has said that it
        has the session, with this epoch.
        """
        self._claims[client] = _Claim(source, epoch)
        if not self._count[source]:
            self._progress[source] = self._contacts.now
        self._count[source] += 1
        self._watch(source)
        self._call(client)

    def _call(self, client: str) -> None:
        claim = self._claims[client]
        self._wanted[claim.source].append(Wanted(client, claim.epoch, len(claim.parts)))
        self._contacts.afterwards[self._flush] = None

    def on_give(self, member: str, give: Give) -> None:
        if self._owed[member] == CREDIT:
            raise SiteError("it sends parts of sessions faster than allowed", member)
        self._owed[member] += 1
        self._progress[member] = self._contacts.now
        for part in give.moved_parts:
            claim = self._claims.get(part.client)
            if claim is not None and (claim.source, claim.epoch) == (member, part.epoch):
                self._on_part(part.client, claim, part)
        self._work_off()

    def _work_off(self) -> None:
        """Confirm all received Give frames, so that their senders may send more. If the memory is
        full, confirm none: then the senders wait.
        """
        if self._unsettled >= MEMORY_BYTES:
            return
        for member, count in self._owed.items():
            for _ in range(count):
                self._contacts.say(member, Got())
                self._progress[member] = self._contacts.now
            self._owed[member] = 0
            if count:
                self._watch(member)

    def settled(self, size: int) -> None:
        """Note that a complete session is on disk, or was refused. size: bytes of the session."""
        self._unsettled -= size
        self._work_off()
        self._go_on()
        if self._contacts.afterwards:
            self._contacts.wake(self._contacts.now)

    def _on_part(self, client: str, claim: _Claim, part: Part) -> None:
        if part.parts == 0:
            self._drop(client)
            self._contacts.afterwards[partial(self._lost, client)] = None
        elif part.parts * PART_BYTES > SESSION_BYTES:
            self._drop(client)
            reason = f"it is larger than {SESSION_BYTES} bytes"
            self._contacts.afterwards[partial(self._refused, client, reason)] = None
        elif part.part == len(claim.parts):
            last = part.part + 1 == part.parts
            if part.part == 0 and not last and not self._has_room(client):
                self._later[client] = None
                return
            claim.parts.append(part.data)
            claim.suspect |= part.suspect
            if last:
                self._unsettled += sum(map(len, claim.parts))
                self._drop(client)
                arrived = partial(self._arrived, client, claim.parts, claim.suspect)
                self._contacts.afterwards[arrived] = None
                return
            self._coming[client] = (part.part + 2) * PART_BYTES
            if self._has_room(client):
                self._call(client)
            else:
                self._later[client] = None

    def _has_room(self, client: str) -> bool:
        """Whether memory has room for one more part of this session. The oldest session has room
        unless complete sessions fill the memory.
        """
        if self._unsettled >= MEMORY_BYTES:
            return False
        oldest = next(iter(self._coming), client)
        return client == oldest or sum(self._coming.values()) + self._unsettled < MEMORY_BYTES

    def _drop(self, client: str) -> None:
        claim = self._claims.pop(client)
        self._count[claim.source] -= 1
        if self._coming.pop(client, None) is not None:
            self._go_on()

    def _go_on(self) -> None:
        """Request the next part of each session that waits for room, the oldest session first, as
        long as memory has room.
        """
        oldest = next(iter(self._coming), None)
        if oldest is not None and oldest in self._later:
            self._later.move_to_end(oldest, last=False)
        while self._later and self._has_room(next(iter(self._later))):
            following, _ = self._later.popitem(last=False)
            if following in self._claims:
                self._progress[self._claims[following].source] = self._contacts.now
                self._coming.setdefault(following, PART_BYTES)
                self._call(following)

    def link_ended(self, member: str) -> None:
        """Abandon all inbound moves from a member."""
        self._wanted[member].clear()
        self._owed[member] = 0
        self._lose(member)

    def _lose(self, member: str) -> None:
        for client in [one for one, claim in self._claims.items() if claim.source == member]:
            self._drop(client)
            self._contacts.afterwards[partial(self._lost, client)] = None

    def _flush(self) -> None:
        for member, wanted in self._wanted.items():
            if wanted:
                for portion in portions(wanted):
                    self._contacts.say(member, Take(portion), call=True)
                wanted.clear()

    def _gives_up(self, member: str) -> float:
        return min(
            max(self._contacts[member].heard, self._progress[member]) + STALL_S,
            self._progress[member] + PROGRESS_S,
        )

    def _watch(self, member: str) -> None:
        """Plan a check of the member's progress, if sessions are expected from the member and this
        gateway has reported all the member's frames as processed.
        """
        if self._count[member] and not self._owed[member] and member not in self._watched:
            self._watched.add(member)
            self._contacts.plan(self._gives_up(member), partial(self._look, member))

    def _look(self, member: str) -> None:
        self._watched.discard(member)
        if self._count[member] and not self._owed[member]:
            if self._gives_up(member) <= self._contacts.now:
                self._lose(member)
            else:
                self._watch(member)
