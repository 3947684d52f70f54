"""Ten thousand boards on the page cost the gateway's loop little."""

import asyncio
import json
import time
from pathlib import Path

from gateway.mirror.decode import Reading
from gateway.mirror.last import LastReadings
from gateway.service.devices import Listed
from gateway.web.board_rows import BoardRows
from gateway.web.live import Live
from tests.web.test_web import a_source

BOARDS, UPDATES, SECONDS = 10_000, 50, 10
NOW = 1_767_225_600_000_000


async def test_ten_thousand_boards_and_fifty_updates_a_second(tmp_path: Path) -> None:
    readings, source = LastReadings(tmp_path), a_source(tmp_path)
    names = [f"roof-{number}" for number in range(BOARDS)]
    listed = {name: Listed("ready", "uno", "ab" * 32) for name in names}
    boards = BoardRows(source, readings, lambda: listed, dict)
    for name in names:
        readings.take(name, Reading("adc0", 1.0, "V", NOW, "synchronised", None, NOW))
    live = Live(source, readings, boards)
    longest = 0.0
    while len(boards.rows) < BOARDS:
        began = time.process_time()
        live._tell()
        longest = max(longest, time.process_time() - began)
    subscriber = live.subscribe()
    shown: set[str] = set()
    while len(shown) < BOARDS:
        began = time.process_time()
        event = await subscriber.get()
        longest = max(longest, time.process_time() - began)
        assert event is not None
        shown |= {row["name"] for row in json.loads(event)["boards"]}
    print(f"longest step: {longest * 1000:.1f} ms")
    assert longest < 0.1
    spent = []
    for second in range(SECONDS):
        began = time.process_time()
        for name in names[second * UPDATES : (second + 1) * UPDATES]:
            readings.take(
                name, Reading("adc0", 2.0, "V", NOW, "synchronised", None, NOW + second + 1)
            )
            boards.touch(name)
        live._tell()
        spent.append(time.process_time() - began)
    print(f"CPU a second: {sorted(spent)[SECONDS // 2] * 1000:.1f} ms")
    assert sorted(spent)[SECONDS // 2] < 0.05
    async with asyncio.timeout(10):
        updated = 0
        while updated < UPDATES * SECONDS:
            event = await subscriber.get()
            assert event is not None
            updated += len(json.loads(event)["boards"])
