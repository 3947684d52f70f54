"""The options of a driver: a JSON object as its first argument, written by `python -m
tests.clients`.

does: "publish" sends messages with the payloads "0" to "count - 1" to the topic, and prints
"published" or "not published: REASON". "subscribe" uses a session that does not expire, and prints
"ready" and then each payload. way: tcp, tls, ws or wss. version: 4 (MQTT 3.1.1) or 5.
"""

import json
import sys
from types import SimpleNamespace


def options() -> SimpleNamespace:
    found = SimpleNamespace(**json.loads(sys.argv[1]))
    found.tls = found.way in ("tls", "wss")
    found.web = found.way in ("ws", "wss")
    return found


def say(text: str) -> None:
    print(text, flush=True)
