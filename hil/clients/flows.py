"""Messages that a client has in flight, by the rules of MQTT 5 for a sender (section 4.3), without
I/O.

In: messages, answers, and whether the broker still knew the session after a reconnect. Out: packets
to send, and the fate of each message.

An identifier is free again after its flow, never earlier [MQTT-2.2.1-3]. The client takes the next
free identifier of those that it may use, so a client with few identifiers soon uses each one again.
Messages are sent again only after a reconnect [MQTT-4.4.0-1].
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from hil.clients import IDENTIFIERS
from hil.formats.packets import Answer, Kind, Packet, Publish


class Fate(Enum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """The broker refused the message, which must be published again."""
    FORGOTTEN = "forgotten"
    """The message must be published again: the broker lost it after its PUBREC."""


@dataclass(slots=True)
class _Flow:
    """A flow. released: number of the connection of its first PUBREL; 0 if none was sent."""

    message: int
    publish: Publish
    released: int = 0


class Flows:
    """The flows of a client. first, count: the client uses the `count` packet identifiers from
    `first` on (after 65,535 comes 1). The caller gives each message a number.
    """

    def __init__(self, first: int = 1, count: int = IDENTIFIERS) -> None:
        self._first = first
        self._count = count
        self._turn = 0
        self._flows: dict[int, _Flow] = {}  # by identifier, in the order of the first PUBLISH
        self._connection = 0

    def __len__(self) -> int:
        return len(self._flows)

    @property
    def messages(self) -> list[int]:
        """Return the numbers of the messages in flight."""
        return [flow.message for flow in self._flows.values()]

    def released(self, identifier: int) -> int | None:
        """Return the number of the message with this identifier if the message is between PUBREC
        and PUBCOMP, else None.
        """
        flow = self._flows.get(identifier)
        return flow.message if flow and flow.released else None

    def postpone(self, identifier: int) -> None:
        """Note that the PUBREL with this identifier is still to be sent on the next connection."""
        self._flows[identifier].released += 1

    @property
    def free(self) -> bool:
        return len(self._flows) < self._count

    def begin(self, message: int, publish: Publish) -> Publish:
        """Begin the flow of a message. Return `publish` with an identifier."""
        while (identifier := self._identifier()) in self._flows:
            pass
        publish = replace(publish, id=identifier, dup=False)
        self._flows[identifier] = _Flow(message, publish)
        return publish

    def _identifier(self) -> int:
        offset, self._turn = self._turn, (self._turn + 1) % self._count
        return (self._first - 1 + offset) % IDENTIFIERS + 1

    def connected(self, session_present: bool) -> tuple[list[Packet], list[int]]:
        """Begin a connection. Return the packets to send at once, in their original order
        [MQTT-4.6.0-1]. If the broker has lost the session, return no packets, but the numbers of
        the messages that must be published again [MQTT-3.2.2-4].
        """
        self._connection += 1
        if not session_present:
            lost = self.messages
            self._flows.clear()
            return [], lost
        return [self._again(flow) for flow in self._flows.values()], []

    def _again(self, flow: _Flow) -> Packet:
        if flow.released:
            return Answer(Kind.PUBREL, flow.publish.id)
        return replace(flow.publish, dup=True)

    def take(self, answer: Answer) -> tuple[list[Packet], list[tuple[int, Fate]]]:
        """Return the packets to send, and the fate of each message whose flow is over. An
        unexpected answer changes nothing. A PUBREC for an unknown identifier is answered by PUBREL
        with 0x92 (4.3.3).
        """
        flow = self._flows.get(answer.id)
        match answer.kind:
            case Kind.PUBACK if flow and flow.publish.qos == 1:
                return [], list(self._over(flow, _fate(answer)))
            case Kind.PUBREC if flow and flow.publish.qos == 2:
                if answer.refused and not flow.released:
                    return [], list(self._over(flow, Fate.REFUSED))
                flow.released = flow.released or self._connection
                return [Answer(Kind.PUBREL, answer.id)], []
            case Kind.PUBREC:
                return [Answer(Kind.PUBREL, answer.id, 0x92)], []
            case Kind.PUBCOMP if flow and flow.released:
                # perhaps only the PUBCOMP was lost, on an earlier connection
                known = not answer.refused or flow.released < self._connection
                return [], list(self._over(flow, Fate.ACKNOWLEDGED if known else Fate.FORGOTTEN))
        return [], []

    def _over(self, flow: _Flow, fate: Fate) -> Iterator[tuple[int, Fate]]:
        del self._flows[flow.publish.id]
        yield flow.message, fate


def _fate(answer: Answer) -> Fate:
    return Fate.REFUSED if answer.refused else Fate.ACKNOWLEDGED
