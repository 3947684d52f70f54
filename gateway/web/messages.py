"""MQTT messages as they come, for one who looks at the page.

In: messages of a `Watching`. Out: events, several messages in each; the oldest go when the browser
takes them too slowly.

    {"messages": [{"time", "topic", "retain", "size", "text", "kind"}, …], "watching", "more"}

`error` stands in the last one, as a sentence. `watching`: nothing has been missed since it was said
first, unless there is `more`, which is not shown.

`time`: of the gateway, µs since 1970, or null. `kind`: `text`; `readings` for SenML, which `text`
then says in words; `bytes`, in hexadecimal; `empty`.
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
"""Between two events, so that a browser draws a few times a second."""
_MOST = 300
"""Messages that wait for a browser."""
_LONGEST_SENML = 4096
_TEXT = 400
_BYTES = 64


class Messages:
    """What waits for one browser. utc: the gateway's time, µs since 1970."""

    def __init__(self, utc: Callable[[], int | None]) -> None:
        self._utc = utc
        self._waiting: deque[tuple[int | None, Publish]] = deque(maxlen=_MOST)
        self._more = False
        self._error: str | None = None
        self._watching = False
        self._told = False
        """The error."""
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
        """The next event; None when it is over."""
        if self._told:
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
            event["error"], self._told = self._error, True
        return json.dumps(event).encode()


Watching = Callable[[str, str, Messages], Callable[[], None]]
"""User, topic filter, and where messages go to → what stops it."""


def _shown(time: int | None, message: Publish) -> dict[str, Any]:
    kind, text = said(message.topic, message.payload)
    return {
        "time": time,
        "topic": message.topic,
        "retain": message.retain,
        "size": len(message.payload),
        "kind": kind,
        "text": text,
    }


def said(topic: str, payload: bytes) -> tuple[str, str]:
    """Kind and text of a payload, for people; a long one is cut."""
    if not payload:
        return "empty", ""
    try:
        decoder, most = getincrementaldecoder("utf-8")(), 4 * _TEXT
        # a cut may fall into a letter
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
