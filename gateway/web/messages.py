"""Live MQTT messages for one browser.

In: messages of a live view (`Watching`). Out: events with several messages each. If the browser is
too slow, the oldest messages are dropped.

    {"messages": [{"time", "topic", "retain", "size", "text", "kind"}, …], "watching", "more"}

The last event may have `error`, a sentence. `watching`: the subscription is active, and messages
are complete since then. `more`: some messages were dropped.

`time`: the gateway's time, µs since 1970, or null. `kind`: `text`; `readings` for SenML, with the
readings in words in `text`; `bytes`, in hexadecimal; `empty`.
"""

import asyncio
import json
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable
from typing import Any

from gateway.mqtt.packets import Publish
from gateway.payload.readings import readings

_PAUSE_S = 0.2
"""Seconds between two events, so that a browser draws a few times a second."""
_MOST = 300
"""Largest number of messages that wait for a browser."""
_LONGEST_SENML = 4096
_TEXT = 400
_BYTES = 64


class Messages:
    """The queue of messages for one browser. utc: the gateway's time, µs since 1970."""

    def __init__(self, utc: Callable[[], int | None]) -> None:
        self._utc = utc
        self._waiting: deque[tuple[int | None, Publish]] = deque(maxlen=_MOST)
        self._more = False
        self._error: str | None = None
        self._watching = False
        self._error_sent = False
        self._news = asyncio.Event()

    def begin(self) -> None:
        self._watching = True
        self._news.set()

    def message(self, message: Publish) -> None:
        self._more |= len(self._waiting) == _MOST
        self._waiting.append((self._utc(), message))
        self._news.set()

    def more(self) -> None:
        self._more = True
        self._news.set()

    def end(self, why: str) -> None:
        self._error = self._error or why
        self._news.set()

    async def get(self) -> bytes | None:
        """Return the next event, or None after the last one."""
        if self._error_sent:
            return None
        await self._news.wait()
        await asyncio.sleep(_PAUSE_S)
        self._news.clear()
        waiting, self._waiting = self._waiting, deque(maxlen=_MOST)
        more, self._more = self._more, False
        event = {
            "messages": [_shown(time, item) for time, item in waiting],
            "watching": self._watching,
            "more": more,
        }
        if self._error is not None:
            event["error"], self._error_sent = self._error, True
        return json.dumps(event).encode()


Watching = Callable[[str, str, Messages], Callable[[], None]]
"""A function of user and topic filter that starts a view and returns a function that stops it."""


def _shown(time: int | None, message: Publish) -> dict[str, Any]:
    kind, text = payload_text(message.topic, message.payload)
    return {
        "time": time,
        "topic": message.topic,
        "retain": message.retain,
        "size": len(message.payload),
        "kind": kind,
        "text": text,
    }


def payload_text(topic: str, payload: bytes) -> tuple[str, str]:
    """Return kind and text of a payload, for people. A long payload is cut."""
    if not payload:
        return "empty", ""
    try:
        decoder, most = getincrementaldecoder("utf-8")(), 4 * _TEXT
        # the cut may be inside a character
        text = decoder.decode(payload[:most], final=len(payload) <= most)
        if all(letter.isprintable() or letter in "\r\n\t" for letter in text):
            return "text", text[:_TEXT]
    except UnicodeDecodeError:
        pass
    found = readings("", topic, payload, None) if len(payload) <= _LONGEST_SENML else []
    if found:
        values = (f"{item.name} = {item.value} {item.unit or ''}".rstrip() for item in found)
        return "readings", ", ".join(values)[:_TEXT]
    return "bytes", payload[:_BYTES].hex(" ")
