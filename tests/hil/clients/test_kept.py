"""The project's publisher as a client of the rig: it reports each event once, however often it is
restarted.
"""

import asyncio
import json
import sys
from pathlib import Path

from gateway.mqtt.reason import ReasonCode as R
from hil.clients.telling import INCARNATION, heard
from tests.publisher.server import Server, server

MESSAGES, KILLS = 60, 5


async def reports(own: Server, kills: int, *more: str) -> list[dict[str, object]]:
    options = {
        "port": own.port,
        "name": "client-1",
        "messages": MESSAGES,
        "payload": "text",
        "payload-bytes": 30,
        "qos": 2,
        "per-s": 500,
        "seed": "7",
        "kills": kills,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hil.devices.kept", *words, *more),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    out = await process.stdout.read()
    await process.wait()
    assert process.returncode == 0, "the program failed, or was killed too seldom"
    return [json.loads(line) for line in out.splitlines()]


async def test_a_killed_publisher_reports_each_fact_once() -> None:
    async with server() as own:
        answers = iter([R.QUOTA_EXCEEDED, R.NOT_AUTHORIZED])
        own.refuse = lambda packet: next(answers, R.SUCCESS)
        said = await reports(own, KILLS)
    assert [heard(json.dumps(it).encode()) for it in said] == said
    numbers = list(range(1, MESSAGES + 1))
    assert [it["sequence"] for it in said if it["event"] == "publication"] == numbers
    acknowledged = [it["sequence"] for it in said if it["event"] == "acknowledged"]
    assert sorted(acknowledged) == numbers  # type: ignore[type-var]
    assert {*own.taken} == {(INCARNATION, number) for number in numbers}
    again = sum(it["event"] == "again" for it in said)
    assert again >= len(own.publishes) - MESSAGES - KILLS * 32
    assert again >= 2, "the refused ones"
    assert len(own.connects) > KILLS
    sent = {json.dumps((one.topic, one.payload.hex())) for one in own.publishes}
    told = {json.dumps((it["topic"], it["payload"])) for it in said if it["event"] == "publication"}
    assert sent == told


async def test_journal_that_has_lost_messages_is_a_contradiction(tmp_path: Path) -> None:
    async with server() as own:
        lost = (f"--journal={tmp_path / 'journal.db'}", "--announced=57", "--stored=57")
        said = await reports(own, 0, *lost)
    assert [it["text"] for it in said if it["event"] == "contradiction"] == [
        "the journal ends with message 0, but had message 57"
    ]
    assert {*own.taken} == {(INCARNATION, number) for number in range(1, MESSAGES + 1)}
