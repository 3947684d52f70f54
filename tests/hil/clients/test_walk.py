"""The clients of `hil/clients/walk.toml`, at another broker: what the table demands comes from the
standard, not from the gateway.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hil.clients import records
from hil.judge.walked import wrong
from hil.observe.history import Event
from tests.bridge.mosquitto import mosquitto

OTHERWISE = {
    "no-local-of-a-shared-subscription": "mosquitto grants it",
    "retained-messages": "mosquitto sends them to a shared subscription",
    "overlapping-filters": "mosquitto sends a copy for each filter, as the standard allows",
    "a-subscription-is-replaced": "mosquitto keeps No Local",
    "session-is-taken-over": "mosquitto closes without DISCONNECT",
    "own-keep-alive": "mosquitto has a longest Keep Alive",
    "what-the-gateway-offers": "limits of the gateway",
    "receive-maximum-of-the-gateway": "limits of the gateway",
    "sessions-outlive-the-gateway": "mosquitto has lost the session after its start",
    "topic-alias-that-is-invalid": "mosquitto says 0x81 of the alias 0",
}
"""Records that mosquitto 2.0.11 does not show as the table demands, with the difference."""


@pytest.mark.timeout(120)
async def test_mosquitto_shows_what_the_table_demands(tmp_path: Path) -> None:
    """Try the table at mosquitto, and its scripts `after` when mosquitto has started again."""
    more = "allow_anonymous true\nmax_inflight_messages 0\nmax_topic_alias 64"
    names = [name for name, record in records({}).items() if name not in OTHERWISE]
    async with mosquitto(tmp_path, more) as broker:
        for after in (False, True):
            argv = [sys.executable, "-m", "hil.clients.walk", "--port", str(broker.port)]
            for name in names:
                argv += ["--record", name] if "after" in records()[name] or not after else []
            done = subprocess.run(  # noqa: ASYNC221  mosquitto is another process
                [*argv, *["--after"] * after], stdout=subprocess.PIPE, check=True
            )
            told = [json.loads(line) for line in done.stdout.splitlines()]
            assert told
            assert wrong([Event(0, "walk", "tried", one) for one in told]) == []
            if not after:
                await broker.end()
                await broker.start()
