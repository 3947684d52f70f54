"""The receive flow of one session: Delivery Method B (MQTT 5, section 4.3.3).

    PUBLISH, new identifier      → keep the identifier, route at once; commit both; then PUBREC
    PUBLISH, kept identifier     → PUBREC again, however often; nothing is routed. DUP is no
                                 evidence of anything [MQTT-4.3.3-12]
    PUBLISH, refused             → PUBREC with the reason (0x80 and above); the identifier is not
                                 kept [MQTT-4.3.3-9]
    PUBREL, kept identifier      → forget it; commit; then PUBCOMP
    PUBREL, unknown identifier   → PUBCOMP with 0x92; never a forged success

A board that has proved its key has a mark (`marks.py`). It tells by the full sequence what has
come, also after a restart or Clean Start, and nothing of its flow is stored:

    PUBLISH, marked              → PUBREC; nothing is routed
    PUBLISH, not marked          → mark it, route; commit both; then PUBREC
    PUBLISH, refused             → PUBREC with the reason; no mark
    PUBREL, kept or marked       → forget the identifier; PUBCOMP, not before the PUBLISH is on disk
    PUBREL, neither              → PUBCOMP with 0x92: the board publishes again

A board without a key numbers its publications in the same way and keeps fewer than `WINDOW` of
them, so within the window its identifier stands for the full sequence. Its PUBCOMP promises nothing
that the commit of its PUBLISH has not brought to disk, and waits for no commit of its own: an
identifier that a power cut brings back is of a sequence that does not come again, and is forgotten
when the window has passed it.

Nothing of a payload is kept here. What counts against our Receive Maximum starts again with each
connection (section 4.9): an identifier of an earlier connection counts only once its PUBLISH has
come again.
"""

from __future__ import annotations

from gateway.broker.ledger import Ledger
from gateway.broker.marks import WINDOW, Mark
from gateway.broker.message_ids import pack_bits, pack_ids, unpack_set

_FEW = 128
"""So many identifiers are written as a list: shorter than bits, and quicker."""
_PART = 8
"""The identifiers of all sessions may take this part of the memory of queues."""
_IDENTIFIER_BYTES = 80
_EACH = 16
"""Identifiers that a session may always have, even if the others have used up the rest."""


class ReceiveFlow:
    __slots__ = ("_bits", "_earlier", "_ledger", "commit", "mark", "received", "unacknowledged")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.received: dict[int, bool] = {}
        """Identifiers of QoS 2 messages between PUBLISH and PUBREL, with whether this connection
        has brought the PUBLISH."""
        self.unacknowledged = 0
        """QoS 1 messages whose PUBACK has not left."""
        self.commit = 0
        """Number of the last commit that holds a change of `received`, or of `mark`."""
        self.mark: Mark | None = None
        """Of the board that is connected, or was last, if it has proved its key."""
        self._earlier = 0
        """Identifiers whose PUBLISH this connection has not brought."""
        self._bits: bytearray | None = None
        """The same identifiers as bits while they are many: a list of them all, made again for each
        message, would cost a client's hoard thousands of bytes a message."""

    def go_by(self, mark: Mark | None) -> bool:
        """A board is connected; its mark, if it has one, decides from now on. True: identifiers are
        forgotten that the board brought when another one did, or none.
        """
        changes = self.mark is not mark
        if changes:
            self.drop()
            self.mark = mark
        if mark is not None:
            self.commit = max(self.commit, mark.commit)
        return changes

    def suspend(self) -> None:
        """The connection is gone."""
        self.received = dict.fromkeys(self.received, False)
        self._earlier = len(self.received)
        self.unacknowledged = 0

    def restore(self, received: bytes) -> None:
        """The state after a restart."""
        self.keep(unpack_set(received))
        self.suspend()

    def row(self) -> bytes:
        """What the store keeps: at most 8 kB, however many identifiers there are."""
        if self.mark is not None:
            return b""
        return pack_ids(self.received) if self._bits is None else pack_bits(self._bits)

    @property
    def outstanding(self) -> int:
        """What counts against our Receive Maximum (MQTT 5, section 4.9)."""
        return len(self.received) - self._earlier + self.unacknowledged

    def all_new(self, identifiers: tuple[int, ...]) -> bool:
        """Whether none of these is kept and none stands there twice."""
        return self.received.keys().isdisjoint(identifiers) and (
            len(identifiers) == 1 or len(set(identifiers)) == len(identifiers)
        )

    def has_come(self, identifiers: tuple[int, ...], sequence: int) -> bool:
        """Whether one of these has come before. sequence: of a board's publication."""
        mark = self.mark
        if mark is None or mark.is_below(sequence):
            return not self.all_new(identifiers)
        return mark.has(sequence)

    def has_room(self, count: int) -> bool:
        """Whether `count` more identifiers may be kept."""
        ledger, most = self._ledger, self._ledger.limits.memory_bytes // _PART // _IDENTIFIER_BYTES
        return ledger.received + count <= most or len(self.received) + count <= _EACH

    def keep(self, identifiers: tuple[int, ...]) -> None:
        """Keep identifiers that are not kept yet."""
        self._ledger.received += len(identifiers)
        self._mark(identifiers)

    def _mark(self, identifiers: tuple[int, ...]) -> None:
        self.received.update(dict.fromkeys(identifiers, True))
        if self._bits is not None:
            for identifier in identifiers:
                self._bits[identifier >> 3] |= 1 << (identifier & 7)
        elif len(self.received) > _FEW:
            self._bits = bytearray(1 << 13)
            self._mark(tuple(self.received))

    def outdate(self, identifier: int) -> None:
        """A device's new publication has this identifier, the low half of its sequence: what is so
        far from it that the device cannot have it in its journal any more stands for nothing, nor
        does the same identifier of another sequence.
        """
        old = [
            kept
            for kept in self.received
            if kept == identifier or WINDOW <= (identifier - kept) & 0xFFFF <= 0x1_0000 - WINDOW
        ]
        if old:
            self.release(tuple(old))

    def repeat(self, identifier: int) -> None:
        """The PUBLISH of a kept identifier has come again; of a marked one, it may not be kept any
        more.
        """
        if identifier in self.received:
            self._earlier -= not self.received[identifier]
            self.received[identifier] = True

    def release(self, identifiers: tuple[int, ...]) -> list[int]:
        """Forget identifiers; returns the positions of those that were not kept, or not any
        more.
        """
        received, bits = self.received, self._bits
        unknown = []
        for position, identifier in enumerate(identifiers):
            counted = received.pop(identifier, None)
            if bits is not None:
                bits[identifier >> 3] &= ~(1 << (identifier & 7))
            if counted is None:
                unknown.append(position)
            elif not counted:
                self._earlier -= 1
        self._ledger.received -= len(identifiers) - len(unknown)
        if bits is not None and len(received) <= _FEW:
            self._bits = None
        return unknown

    def drop(self) -> None:
        """The session has ended."""
        self.release(tuple(self.received))
