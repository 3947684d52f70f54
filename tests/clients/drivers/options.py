"""The options of a driver, as `python -m tests.clients` gives them: a JSON object as first word.

does: publish (messages "0" to "count - 1" to the topic; then one line, "published" or "not
published: REASON") or subscribe (with a session that stays; a line "ready", then each payload).
way: tcp, tls, ws or wss. version: 4 (3.1.1) or 5.
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
