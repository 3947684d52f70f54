"""Answers due on one Network Connection (MQTT Version 5.0, section 4.3). In: packets, in their
order on the connection. Out: for each PUBACK, PUBREC and PUBCOMP whether the other end has asked
for it. A PUBLISH asks for one PUBACK or PUBREC, a PUBREL for one PUBCOMP. An end that answers more
often has accepted a message twice. (A PUBREL does not count as an answer: a connection may begin
with a PUBREL, for a PUBREC of the previous connection [MQTT-4.4.0-1].)
"""

from collections import Counter

from hil.formats.packets import Answer, Kind, Packet, Publish

_ASKED_BY_PUBLISH = {1: Kind.PUBACK, 2: Kind.PUBREC}


class Due:
    """The answers that one end of a connection still owes to the other end."""

    def __init__(self) -> None:
        self._due: Counter[tuple[Kind, int]] = Counter()

    def ask(self, packet: Packet) -> None:
        """Handle a packet that the owing end receives. The packet may make another answer due."""
        match packet:
            case Publish() if packet.qos:
                self._due[_ASKED_BY_PUBLISH[packet.qos], packet.id] += 1
            case Answer(kind=Kind.PUBREL):
                self._due[Kind.PUBCOMP, packet.id] += 1

    def answer(self, packet: Packet) -> bool:
        """Handle a packet that the owing end sends. Return False for an answer that is not due."""
        match packet:
            case Answer(kind=Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP):
                due = packet.kind, packet.id
                self._due[due] -= 1
                return self._due[due] >= 0
        return True
