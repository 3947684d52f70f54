"""Counts of a bridge since the start, and the log lines about the counted events."""

from __future__ import annotations

import logging
import time
from collections import Counter

from gateway.mqtt.errors import quote
from gateway.mqtt.packets import Publish
from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)

_MOST_LOOPS = 16
"""A loop is logged once for each bridge from which messages come back, for at most this many
bridges.
"""
_TIMES = 200
_WITHIN_S = 10.0
"""A message that is forwarded _TIMES times within _WITHIN_S seconds is probably in a loop."""
_MOST_KNOWN = 2000
"""Largest number of different messages in `_crossed`."""


class Counts:
    """The counts of one bridge. gateway: the name of this gateway. name: the name of the bridge."""

    def __init__(self, gateway: str, name: str, throttle: LogThrottle) -> None:
        self.bridge = f"{gateway}/{name}"
        """The name of the bridge in the log, GATEWAY/BRIDGE: unique among several gateways."""
        self._name = name
        self._throttle = throttle
        self.sent = 0
        """Messages sent. At QoS 1 and 2, a message counts when the other broker has acknowledged it
        fully.
        """
        self.refused = 0
        """Messages that the other broker refuses for good."""
        self.dropped = 0
        """Number of QoS 0 messages that were dropped while suspect packets were sent alone
        (`suspects.py`).
        """
        self.received = 0
        self.not_taken = 0
        """Messages from the other broker that our broker can never accept."""
        self.looped = 0
        """Messages that came back in a loop of bridges and were stopped."""
        self.unconfirmed = 0
        """Messages that the bridge has given up, because the other broker closes the connection at
        their PUBREL. They may have arrived.
        """
        self._loops: set[str] = set()
        """Bridges from which messages came back, each logged once; at most `_MOST_LOOPS`."""
        self._crossed = Counter[int]()
        """Number of times that each message has crossed since `_since`."""
        self._since = 0.0

    def cannot_take(self, topic: str, why: str) -> None:
        """Count and log a message from the other broker that our broker can never accept."""
        self.not_taken += 1
        name = self._name
        if self._throttle.allows(f"bridge {name} cannot accept a message"):
            log.warning(
                "bridge %s: this gateway cannot accept a message from the other broker and"
                " refuses it, topic %s: %s. Later messages are accepted",
                name,
                quote(topic),
                why,
            )

    def came_back(self, packet: Publish, other: str) -> None:
        """Count a message that has come back to this bridge. other: the last bridge that the
        message crossed. Log the first message from each such bridge, for at most _MOST_LOOPS
        bridges.
        """
        self.looped += 1
        if other not in self._loops and len(self._loops) < _MOST_LOOPS:
            self._loops.add(other)
            log.warning(
                "bridge %s: a message that this bridge had forwarded came back through %s, topic"
                " %s. The bridge does not forward such a message again. Give the bridges topics"
                " that do not overlap: up, down and prefix of [[bridge]]",
                self.bridge,
                other,
                quote(packet.topic),
            )

    def crosses(self, packet: Publish) -> None:
        """Count a message that crosses. Log it if it has crossed often in a short time: it may be
        in a loop through a bridge that drops user properties. The message is not stopped, because a
        sensor may legitimately repeat the same value very often.
        """
        if (now := time.monotonic()) > self._since + _WITHIN_S or len(self._crossed) > _MOST_KNOWN:
            self._crossed.clear()
            self._since = now
        key = hash((packet.topic, packet.payload))
        self._crossed[key] += 1
        if self._crossed[key] == _TIMES and self._throttle.allows(f"bridge {self._name} repeats"):
            log.warning(
                "bridge %s: the same message was forwarded %d times in %.0f s, topic %s. If no"
                " client sends the message that often, another bridge returns it and drops user"
                " properties: let that bridge use MQTT 5 (mosquitto: bridge_protocol_version"
                " mqttv50), or give the bridges topics that do not overlap",
                self.bridge,
                _TIMES,
                now - self._since,
                quote(packet.topic),
            )

    def waits(self, topic: str) -> None:
        """Log that a message of the other broker waits, because our broker refuses it for now."""
        name = self._name
        if self._throttle.allows(f"bridge {name} holds a message"):
            log.warning(
                "bridge %s: this gateway has no room for a message from the other broker, topic %s."
                " The other broker keeps it, and the bridge tries again every 1 to 30 s",
                name,
                quote(topic),
            )
