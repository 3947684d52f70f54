"""Subscriptions of a bridge at the other broker, to the filters of its setting `down`.

In: the filters of the configuration, and the filters of earlier connections. Out: one SUBSCRIBE or
UNSUBSCRIBE for each filter, and a line in the log for each filter that the other broker does not
grant. If the other broker closes the connection because of one filter, the bridge finds this filter
by sending each filter alone, as it does with messages (`suspects.py`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from gateway.bridge.far import FarConnection
from gateway.bridge.pairing import Pair, Pairing
from gateway.bridge.reasons import SAYS, own_words
from gateway.bridge.suspects import TIMES, Suspects
from gateway.bridge.translate import Unfit
from gateway.config import BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.packets import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from gateway.mqtt.reason import ReasonCode

log = logging.getLogger(__name__)

_ONLY_NEW = 1
"""Retain Handling 1: send retained messages only if the subscription is new."""
_LAST_IDENTIFIER = 65_535
"""Packet identifiers of requests count down from here; identifiers of messages count up from 1."""

Request = tuple[bool, str]
"""Whether to subscribe (True) or unsubscribe (False), and the filter at the other broker."""


class FarFilters:
    """The filters of one bridge at the other broker: wanted, requested, granted and refused."""

    def __init__(self, section: BridgeSection, pairing: Pairing, suspects: Suspects) -> None:
        self._section = section
        self._pairing = pairing
        self._suspects = suspects
        self._asked: dict[int, Request] = {}
        """Unanswered requests to the other broker, by packet identifier."""
        self._given_up: set[Request] = set()
        """Requests that the bridge does not repeat before the next start (`_is_given_up`)."""
        self.lacking: dict[str, str] = {}
        """Filters that the other broker refuses, with the reason."""
        self._subscribed: Pair | None = None
        self._qos = section.qos
        """QoS to subscribe with: the section's, or the other broker's maximum if that is lower."""
        self._granted: dict[str, int] = {}
        """QoS that the other broker has granted, by filter."""

    def requests(self, pair: Pair) -> list[Request]:
        """Return the requests to the other broker: unsubscribe from filters that are no longer
        wanted, and subscribe to the wanted filters, each with the prefix in front. Requests that
        were given up are left out.
        """
        wanted = [self._section.prefix + item for item in self._section.down]
        unwanted = sorted(set(pair.down) - set(wanted))
        wanted = [item for item in wanted if not self._is_given_up((True, item))]
        unwanted = [item for item in unwanted if not self._is_given_up((False, item))]
        self._subscribed = self._pairing.subscribe(pair, (*wanted, *unwanted))
        self._asked.clear()
        return [*((False, item) for item in unwanted), *((True, item) for item in wanted)]

    def _is_given_up(self, request: Request) -> bool:
        """Whether the bridge has given up a request until its next start, because the other broker
        closed the connection at this request TIMES times. Log it when a subscription is given up.
        """
        if self._suspects.guilty(request):
            self._suspects.forget_guilty(request)
            self._given_up.add(request)
            if request[0]:
                self._lack(
                    request[1],
                    f"the other broker closed the connection at that request, {TIMES} times",
                )
        return request in self._given_up

    def _lack(self, item: str, why: str) -> None:
        """Note that the other broker refuses a filter, and log each new reason."""
        if self.lacking.get(item, "").partition(SAYS)[0] != why.partition(SAYS)[0]:
            log.warning(
                "bridge %s: the other broker refuses the subscription to %s: %s",
                self._section.name,
                item,
                why,
            )
        self.lacking[item] = why

    def request(self, request: Request, far: FarConnection) -> Subscribe | Unsubscribe | None:
        """Return the packet of a request, or None if the other broker cannot accept it."""
        subscribe, item = request
        identifier = _LAST_IDENTIFIER - len(self._asked)
        packet: Subscribe | Unsubscribe = (
            Subscribe(identifier, [subscription(item, self._section.qos)])
            if subscribe
            else Unsubscribe(identifier, [item])
        )
        self._qos = min(self._section.qos, far.qos)
        if subscribe and not far.offers(item):
            self._lack(item, "the other broker offers no wildcards")
            return None
        try:
            size = len(far.encoded(packet))
        except Unfit as error:
            if subscribe:
                self._lack(item, str(error))
            return None
        self._asked[identifier] = request
        self._suspects.sent(request, size, asyncio.get_running_loop().time())
        return packet

    def subscribed(self, packet: Suback | Unsuback) -> None:
        """Handle the answer to a SUBSCRIBE or UNSUBSCRIBE. If the other broker refuses the filter
        or grants a lower QoS, log this."""
        request = self._asked.pop(packet.packet_id, None)
        if request is None:
            return
        self._suspects.answered(request)
        subscribe, item = request
        if not subscribe:
            self._unsubscribed(item)
            return
        reason = packet.reasons[0]
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._lack(item, f"{reason.name}{own_words(packet)}")
            return
        self.lacking.pop(item, None)
        if reason < self._qos and self._granted.get(item) != reason:
            log.warning(
                "bridge %s: the other broker grants QoS %d for %s. Messages may be lost or arrive"
                " twice after an outage",
                self._section.name,
                reason,
                item,
            )
        self._granted[item] = reason

    def _unsubscribed(self, item: str) -> None:
        """Note that the other broker has confirmed the end of the subscription to a filter."""
        if (pair := self._subscribed) is not None:
            down = tuple(other for other in pair.down if other != item)
            with suppress(OncewayError):  # the next connection tries again
                self._subscribed = self._pairing.subscribe(pair, down)


def subscription(topic_filter: str, qos: int) -> Subscription:
    """Return a bridge's subscription: No Local, with RETAIN as published, and with retained
    messages only if the subscription is new [MQTT-3.8.3-3].
    """
    return Subscription(topic_filter, qos, True, True, _ONLY_NEW)
