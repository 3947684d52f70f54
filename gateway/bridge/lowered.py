"""Messages that are forwarded at a lower QoS, because the other broker accepts no higher one
(Maximum QoS, MQTT-3.2.2-11).

In: messages for the other broker, and its answers. Out: the same messages at a QoS that the other
broker accepts, and the answers that our broker expects. A message at QoS 0 gets no answer, so it
counts as accepted when a later PINGREQ is answered. Our broker keeps the message until that answer.
"""

from dataclasses import replace

from gateway.mqtt.packets import Packet, Puback, Publish, Pubrec


class Lowered:
    """The messages of one connection that are sent at a lower QoS. most: Maximum QoS of the other
    broker.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lowered: dict[int, int] = {}
        """QoS at our broker of each message that was lowered, by packet identifier."""
        self._unanswered: list[Puback | Pubrec] = []

    def lower(self, packet: Publish) -> Publish:
        """Return a message at a QoS that the other broker accepts."""
        if packet.qos <= self.most:
            self._lowered.pop(packet.packet_id, None)
            return packet
        self._lowered[packet.packet_id] = packet.qos
        if self.most:
            return replace(packet, qos=self.most)
        return replace(packet, qos=0, packet_id=0, dup=False)

    def sent(self, packet: Publish) -> None:
        """Note that a message was sent. If the message was lowered to QoS 0, prepare the answer for
        our broker.
        """
        if packet.qos and not self.most:
            answer = Puback if packet.qos == 1 else Pubrec
            self._unanswered.append(answer(packet.packet_id))

    def take_unanswered(self) -> list[Puback | Pubrec]:
        """Remove and return the prepared answers. The caller passes them to our broker after a
        round trip to the other broker, because the messages count as accepted only then.
        """
        found, self._unanswered = self._unanswered, []
        return found

    def answer(self, packet: Packet) -> Packet:
        """Return an answer of the other broker as our broker expects it: PUBREC in place of PUBACK
        for a message that our broker sent at QoS 2.
        """
        if isinstance(packet, Puback) and self._lowered.get(packet.packet_id) == 2:
            return Pubrec(packet.packet_id, packet.reason)
        return packet
