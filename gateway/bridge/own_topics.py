"""Retained messages of the gateway itself: readings as JSON, and topics for Home Assistant.

In: the configuration, and retained messages of both brokers. Out: whether only the gateway
publishes to a topic, and whether the other broker's message is newer than ours.

These messages are in memory only (`gateway/mirror/`). After a kill or a power cut some are missing
at this gateway, or up to ten minutes old. So a missing message does not count as deleted, and an
older reading does not replace a later one at the other broker. The next reading of the board makes
both brokers equal.
"""

from __future__ import annotations

import json
from datetime import datetime

from gateway.broker.retained import Retained
from gateway.config import Config
from gateway.mqtt.packets import Publish


class OwnTopics:
    """The topics to which only this gateway publishes, by their prefixes in the configuration."""

    def __init__(self, config: Config) -> None:
        starts = [config.mirror.topic] if config.mirror else []
        starts += [config.home_assistant.prefix] if config.home_assistant else []
        self._starts = tuple(f"{item}/" for item in starts)

    def has(self, topic: str) -> bool:
        """Whether only the gateway publishes to a topic."""
        return topic.startswith(self._starts)

    def is_newer(self, topic: str, theirs: Publish | None, ours: Retained | None) -> bool:
        """Whether the other broker has a later reading of this gateway's boards than the gateway
        itself.
        """
        if theirs is None or ours is None or not self.has(topic):
            return False
        their_time, our_time = _time(theirs.payload), _time(ours.payload)
        return their_time is not None and our_time is not None and their_time > our_time


def _time(payload: bytes) -> datetime | None:
    """Return the time in a reading that is encoded as JSON; None if it has no time."""
    try:
        return datetime.strptime(json.loads(payload)["time"], "%Y-%m-%dT%H:%M:%S%z")
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
