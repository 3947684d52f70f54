"""A person's settings for a board, shared by all gateways of a site: a board may move to any
gateway, and each gateway judges the boards whose sessions it has.

In: settings that were made here. Out: the same settings at each gateway, even if it was absent or
starts later.

Settings are retained messages of the gateway itself, which the gateways of a site share
(`gateway/site/wiring/retained.py`):

  $onceway/boards/NAME/paused      expires at the end of the pause
  $onceway/boards/NAME/interval    the expected interval in seconds; 0: no reading is due

A removed message ends the setting. Messages of clients on these topics do not count. Gateways of an
older Onceway keep the messages and ignore them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal

from gateway.boards.expected import Expected
from gateway.boards.intervals import LONGEST_S
from gateway.broker.retained import Retained
from gateway.broker.retained_changes import clear, keep, next_version
from gateway.errors import OncewayError
from gateway.runtime.engine import Engine

PREFIX = "$onceway/boards/"
Kind = Literal["paused", "interval"]
_MOST = 20_000
"""Largest number of settings that are read from the retained messages."""


def topic_of(name: str, kind: Kind) -> str:
    return f"{PREFIX}{name}/{kind}"


def share(engine: Engine, name: str, kind: Kind, seconds: float | None) -> None:
    """Publish a setting of a board to all gateways of the site. seconds: None ends the setting.
    Raises OncewayError if there is no room for the message.
    """
    broker, topic = engine.broker, topic_of(name, kind)
    engine.begin()
    with broker.step:
        if seconds is None:
            if broker.retained.get(topic) is not None:
                clear(broker, topic)
        else:
            payload = f"{seconds:.1f}".encode()
            limits, size = broker.limits, len(payload) + len(topic)
            fits = broker.retained.fits(topic, size, limits)
            if not fits or broker.lacks_room(size):
                raise OncewayError(
                    "there is no room to inform the other gateways of the site, so nothing was set",
                    name,
                    "Look at the disk, and at limits.retained and limits.retained_bytes",
                )
            expires = broker.now + seconds if kind == "paused" else None
            version = next_version(broker, topic)
            keep(broker, Retained(topic, "", 0, payload, expires=expires, version=version))
        broker.promise()
        broker.settle()


class SharedSettings:
    """The settings of a site's boards, as they are applied at this gateway."""

    def __init__(self, engine: Engine, expected: Expected) -> None:
        self._retained = engine.broker.retained
        self._expected = expected
        self._used: dict[str, int] = {}
        """Version of each retained message whose setting was applied, by topic."""

    def take(self, names: Collection[str]) -> None:
        """Apply each setting of these boards that has changed since it was last applied."""
        topics = self._retained.after(PREFIX, None, _MOST)
        for topic in topics:
            message, (name, kind) = self._retained.get(topic), _split(topic)
            if name not in names or message is None or message.client:
                continue
            if self._used.get(topic) != message.version:
                self._used[topic] = message.version
                self._set(name, kind, message)
        for topic in self._used.keys() - set(topics):
            del self._used[topic]
            name, kind = _split(topic)
            if name in names:
                self._set(name, kind, None)

    def _set(self, name: str, kind: str, message: Retained | None) -> None:
        """Apply a setting of a board. message: None if the retained message was removed or has
        expired.
        """
        if kind == "paused":
            end = message.expires if message is not None else None
            self._expected.pause_until(name, end)
        elif kind == "interval":
            seconds = None if message is None else _seconds(message.payload)
            self._expected.want(name, seconds)


def _split(topic: str) -> tuple[str, str]:
    """Return the board's name and the kind of setting that a topic names."""
    name, _, kind = topic.removeprefix(PREFIX).partition("/")
    return name, kind


def _seconds(payload: bytes) -> float | None:
    """Return the interval in a payload, in seconds; None if there is no valid one."""
    try:
        seconds = float(payload)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and 0 <= seconds <= LONGEST_S else None
