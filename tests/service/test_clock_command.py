"""`onceway clock`: a gateway that doubts the system clock reports that until a person decides which
time is right.
"""

import asyncio
import json
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from gateway.commands import control_client as control
from gateway.store.schema import FILE
from tests.service.process import gateway

YEAR_US = 365 * 86_400 * 1_000_000


async def clock(folder: Path, what: str) -> tuple[int, dict[str, Any]]:
    words = (sys.executable, "-m", "gateway", "clock", what, "--data", str(folder), "--json")
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    told, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(told)


async def test_clock_of_another_year_is_a_problem_until_a_person_trusts_it(tmp_path: Path) -> None:
    folder, file = tmp_path / "data", tmp_path / "c.toml"
    file.write_text(
        f'[gateway]\ndata = "{folder}"\ntrust_clock = true\n'
        '[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n'
    )
    arguments = ("--config", str(file))
    async with gateway(folder, *arguments) as running:
        assert (await clock(folder, "show"))[0] == 0
        await running.end()
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        seen = time.time_ns() // 1000 + 2 * YEAR_US
        database.execute("UPDATE meta SET value = ? WHERE key = 'axis'", (f"9000 at {seen}",))
        database.execute("DELETE FROM meta WHERE key = 'uptime'")  # as after a reboot
    async with gateway(folder, *arguments) as running:
        assert any("is not believed" in line for line in running.log)
        code, told = await clock(folder, "show")
        assert (code, told["utc"]) == (1, None)
        for do in ("everything", "status"):
            (found,) = control.ask(folder, do=do)
            parts = [(item["part"], "not believed" in item["what"]) for item in found["problems"]]
            assert parts == [("clock", True)]
        code, told = await clock(folder, "trust")
        assert (code, told["doubt"]) == (0, None)
        await running.end()
    async with gateway(folder, *arguments) as running:
        code, told = await clock(folder, "show")
        assert (code, told["doubt"]) == (0, None)
        assert not any("believed" in line for line in running.log)
        await running.end()
