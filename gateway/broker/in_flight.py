"""The messages in flight of one session: messages that were sent and are not fully acknowledged.

In: messages as they are sent, and acknowledgements (`send_flow.py`). Out: messages to send again on
the next connection, and the packet identifiers in use.
"""

from __future__ import annotations

from collections import deque

from gateway.broker.delivery import Delivery
from gateway.mqtt.message_ids import IDENTIFIERS, number_of, packet_id


class InFlight:
    __slots__ = ("acknowledging", "receiving", "released", "resend")

    def __init__(self) -> None:
        self.acknowledging: dict[int, Delivery] = {}
        """QoS 1 deliveries that wait for PUBACK, by packet identifier."""
        self.receiving: dict[int, Delivery] = {}
        """QoS 2 deliveries that wait for PUBREC, by packet identifier."""
        self.released: dict[int, Delivery | None] = {}
        """Identifiers that wait for PUBCOMP, in order, with the delivery to delete after it."""
        self.resend: deque[tuple[int, Delivery]] = deque()
        """Messages that were in flight on an earlier connection, each as number and delivery."""

    @property
    def count(self) -> int:
        return len(self.acknowledging) + len(self.receiving) + len(self.released) + len(self.resend)

    @property
    def to_resend(self) -> set[int]:
        """Packet identifiers of messages to send again on the next connection."""
        return {packet_id(number) for number, _ in self.resend}

    @property
    def latest(self) -> int:
        """Number of the latest message that waits for PUBACK or PUBREC, 0 for none."""
        return max(self.ends(), default=0)

    def find(self, identifier: int) -> tuple[Delivery, int] | None:
        """Return delivery and run index of the message that waits for PUBACK or PUBREC, or None."""
        delivery = self.acknowledging.get(identifier) or self.receiving.get(identifier)
        if delivery is None:
            return None
        number = number_of(identifier, delivery.first)
        return delivery, delivery.skip + number - delivery.first

    def ends(self) -> list[int]:
        """Return the numbers of the oldest and the latest message in flight of each QoS, sorted."""
        return sorted(
            number_of(identifier, delivery.first)
            for flights in (self.acknowledging, self.receiving)
            if flights
            for identifier, delivery in (
                next(iter(flights.items())),
                next(reversed(flights.items())),
            )
        )

    def distance(self, number: int) -> int:
        """Return how many identifiers `number` is beyond the oldest in use; 0 if none is in use."""
        last = packet_id(number) - 1
        used = self.acknowledging.keys() | self.receiving.keys() | self.released.keys()
        return max(((last - identifier) % IDENTIFIERS + 1 for identifier in used), default=0)

    def suspend(self, committed: int) -> tuple[int | None, list[Delivery]]:
        """Keep the messages that were sent, to send them again on the next connection. Return the
        number of the first message that waited for a commit, and so was not sent (None: there is
        none), and all deliveries in flight, in order. committed: the last commit on disk.
        """
        flights = [
            (number_of(identifier, delivery.first), delivery)
            for flight in (self.acknowledging, self.receiving)
            for identifier, delivery in flight.items()
        ]
        waiting = (
            number
            for number, delivery in flights
            if delivery.flags & 4 and delivery.commit > committed
        )
        least = min(waiting, default=None)
        flights = sorted([*flights, *self.resend], key=lambda item: item[0])
        self.resend = deque(item for item in flights if least is None or item[0] < least)
        self.acknowledging.clear()
        self.receiving.clear()
        return least, [delivery for _, delivery in flights]
