"""The receive flow of one session: Delivery Method B (MQTT 5, section 4.3.3).

  PUBLISH, new identifier       → keep the identifier, route at once; commit both; then PUBREC
  PUBLISH, kept identifier      → PUBREC again, however often; nothing is routed. DUP proves
                                  nothing [MQTT-4.3.3-12]
  PUBLISH, refused              → PUBREC with the reason (0x80 and above); the identifier is not
                                  kept [MQTT-4.3.3-9]
  PUBREL, kept identifier       → forget it; commit; then PUBCOMP
  PUBREL, unknown identifier    → PUBCOMP with 0x92; never a forged success. MQTT 3.1.1 has
                                  only a plain PUBCOMP (its section 4.3.3); while a peer gateway
                                  is silent, the connection ends instead

A board that has proved its key has an anti-replay window (`marks.py`). The window knows accepted
publications by their full sequence, also after a restart or Clean Start, so nothing of the flow is
stored in addition:

  PUBLISH, in the window        → PUBREC; nothing is routed
  PUBLISH, not in the window    → add it, route; commit both; then PUBREC
  PUBLISH, refused              → PUBREC with the reason; the window stays
  PUBREL, kept or in the window → forget the identifier; PUBCOMP, not before the PUBLISH is on disk
  PUBREL, neither               → PUBCOMP with 0x92: the board publishes again

A board without a key keeps fewer than `WINDOW` publications, so its identifier stands for the full
sequence, and its PUBCOMP waits for no commit of its own. New publications outdate old identifiers
(`outdate`).

No payload is kept here. The count against the broker's Receive Maximum starts again with each
connection (section 4.9): an identifier of an earlier connection counts only after its PUBLISH has
arrived again.
"""

from __future__ import annotations

from gateway.broker.ledger import Ledger
from gateway.broker.marks import WINDOW, Mark
from gateway.mqtt.message_ids import pack_bits, unpack_set
from gateway.mqtt.wire import pack_u16

_FEW = 128
"""Largest number of identifiers that are stored as a list. More identifiers are stored as bits."""
_PART = 8
"""The identifiers of all sessions may take 1 / _PART of `limits.memory_bytes`."""
_IDENTIFIER_BYTES = 80
_EACH = 16
"""Number of identifiers that each session may have, even if no memory for more is left."""


class ReceiveFlow:
    __slots__ = ("_bits", "_earlier", "_ledger", "commit", "mark", "received", "unacknowledged")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.received: dict[int, bool] = {}
        """Identifiers of QoS 2 messages between PUBLISH and PUBREL, each with whether its PUBLISH
        arrived on this connection."""
        self.unacknowledged = 0
        """Number of QoS 1 messages whose PUBACK was not sent yet."""
        self.commit = 0
        """Number of the last commit with a change of `received` or `mark`."""
        self.mark: Mark | None = None
        """Anti-replay window of the present or last board; None if it has not proved its key."""
        self._earlier = 0
        """Number of identifiers in `received` whose PUBLISH has not arrived on this connection."""
        self._bits: bytearray | None = None
        """The identifiers in `received` as bits, None if they are few. As a list, many identifiers
        would take kilobytes in the store for each message."""

    def use_mark(self, mark: Mark | None) -> bool:
        """Replace the anti-replay window. mark: a board's window, or None for no window. If the
        window changes, forget all identifiers, and return True."""
        changes = self.mark is not mark
        if changes:
            self.drop()
            self.mark = mark
        if mark is not None:
            self.commit = max(self.commit, mark.commit)
        return changes

    def suspend(self) -> None:
        """Note the end of a connection: its PUBLISHes no longer count against Receive Maximum."""
        self.received = dict.fromkeys(self.received, False)
        self._earlier = len(self.received)
        self.unacknowledged = 0

    def restore(self, received: bytes) -> None:
        self.keep(unpack_set(received))
        self.suspend()

    def row(self) -> bytes:
        """Return the row for the store: at most 8 kB, however many identifiers there are."""
        if self.mark is not None:
            return b""
        if self._bits is not None:
            return pack_bits(self._bits)
        return b"".join(map(pack_u16, self.received))

    @property
    def outstanding(self) -> int:
        """Number of messages that count against the broker's Receive Maximum (MQTT 5, 4.9)."""
        return len(self.received) - self._earlier + self.unacknowledged

    def is_duplicate(self, identifiers: tuple[int, ...], sequence: int) -> bool:
        """Whether one of these publications is a duplicate. sequence: a board's sequence."""
        mark = self.mark
        if mark is None or mark.is_below(sequence):
            return not self.received.keys().isdisjoint(identifiers) or (
                len(identifiers) > 1 and len(set(identifiers)) < len(identifiers)
            )
        return mark.has(sequence)

    def has_room(self, count: int) -> bool:
        """Whether `count` more identifiers may be kept."""
        ledger, most = self._ledger, self._ledger.limits.memory_bytes // _PART // _IDENTIFIER_BYTES
        return ledger.received + count <= most or len(self.received) + count <= _EACH

    def keep(self, identifiers: tuple[int, ...]) -> None:
        """Store the packet identifiers of new publications."""
        self._ledger.received += len(identifiers)
        self.received.update(dict.fromkeys(identifiers, True))
        more = identifiers
        if self._bits is None:
            if len(self.received) <= _FEW:
                return
            self._bits, more = bytearray(1 << 13), tuple(self.received)
        for identifier in more:
            self._bits[identifier >> 3] |= 1 << (identifier & 7)

    def outdate(self, identifier: int) -> None:
        """Forget identifiers that a device's new publication makes obsolete: the same identifier of
        an older sequence, and identifiers too far away for the device's journal. identifier: the
        low half of the new sequence.
        """
        old = [
            kept
            for kept in self.received
            if kept == identifier or WINDOW <= (identifier - kept) & 0xFFFF <= 0x1_0000 - WINDOW
        ]
        if old:
            self.release(tuple(old))

    def repeat(self, identifier: int) -> None:
        """Note that the PUBLISH of an identifier in `received` has arrived again. Ignore an
        identifier that only the window has.
        """
        if identifier in self.received:
            self._earlier -= not self.received[identifier]
            self.received[identifier] = True

    def release(self, identifiers: tuple[int, ...]) -> list[int]:
        """Forget identifiers. Return the positions in `identifiers` of those that were unknown."""
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
        """Release all identifiers. Call this when the session has ended."""
        self.release(tuple(self.received))
