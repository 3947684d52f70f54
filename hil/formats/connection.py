"""Reader of one Network Connection, over a line or over the air. In: packets of both ends, in the
order of sending. Out: events for publications, refusals, the gateway's CONNACK, answers that are
not due, and bytes that are not MQTT.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hil.formats.packets import Answer, Connack, Connect, Kind, Packet, Property, Publish

DIRECTIONS = ("up", "down")
"""`up`: from the board. `down`: to the board."""
BACK = {"up": "down", "down": "up"}

Say = Callable[[str, dict[str, Any]], object]
"""Callback that takes the name of an event, and its keys."""

_ASKED_BY_PUBLISH = {1: Kind.PUBACK, 2: Kind.PUBREC}


class Due:
    """The answers that one end of a connection still owes to the other end (MQTT Version 5.0,
    section 4.3). A PUBLISH asks for one PUBACK or PUBREC, a PUBREL for one PUBCOMP. An end that
    answers more often has accepted a message twice. (A PUBREL does not count as an answer: a
    connection may begin with a PUBREL, for a PUBREC of the previous connection [MQTT-4.4.0-1].)
    """

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


class Connection:
    """Reader of a connection. incarnation: the link session's incarnation. unread: directions that
    cannot be read any more.
    """

    def __init__(self, incarnation: int, say: Say) -> None:
        self.unread: set[str] = set()
        self._incarnation = incarnation
        self._say = say
        self._clean = False
        self._topics: dict[tuple[str, object], str] = {}
        """Topics by direction and alias."""
        self._due = {direction: Due() for direction in DIRECTIONS}

    def break_off(self, direction: str, error: ValueError) -> None:
        """Report that a direction cannot be read any more."""
        self.unread.add(direction)
        self._say("unread", {"direction": direction, "why": str(error)})

    def take(self, direction: str, packet: Packet) -> None:
        """Report the events of a packet. direction: `up` from the board, `down` to the board."""
        match packet:
            case Publish():
                topic = self._topic(direction, packet)
                message = {"id": packet.id, "topic": topic, "payload": packet.payload.hex()}
                self._say("publish", {"direction": direction, **message})
            case Connect():
                self._clean = packet.clean_start
            case Connack():
                connack = {"session_present": packet.session_present, "reason": packet.reason}
                of = {"incarnation": self._incarnation, "clean": self._clean}
                self._say("connack", {**connack, **of})
            case Answer():
                self._answer(direction, packet)
        self._due[BACK[direction]].ask(packet)

    def _topic(self, direction: str, packet: Publish) -> str:
        """Return the topic of a PUBLISH: its own, or that of its Topic Alias [MQTT-3.3.2-7]."""
        for name, value in packet.properties:
            if name is Property.TOPIC_ALIAS:
                known = self._topics.get((direction, value), "")
                self._topics[direction, value] = packet.topic or known
                return packet.topic or known
        return packet.topic

    def _answer(self, direction: str, packet: Answer) -> None:
        name, asked = packet.kind.name.lower(), self._due[direction].answer(packet)
        fields = {"direction": direction, "id": packet.id}
        if packet.kind in (Kind.PUBREL, Kind.PUBCOMP):
            self._say(name, fields)
        if packet.refused:
            self._say("refused", {**fields, "packet": name, "reason": packet.reason})
        if not asked and BACK[direction] not in self.unread:
            self._say("unasked", {**fields, "packet": name})
