"""A kernel that forgets failed writes: after an fsync that failed, the written data can be read,
but never reach the disk.

Linux does this: it marks the pages as clean, and the next fsync succeeds. If the gateway relied on
that success, it would acknowledge messages that a power cut then loses.
"""

import asyncio
import random
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connect, Publish, Pubrec, Pubrel
from gateway.mqtt.properties import PropertyId
from gateway.store.schema import FILE
from tests.service.process import gateway
from tests.service.test_bad_disk import build
from tests.service.test_power_cut import Note, read_notes
from tests.service.wire import Wire, wire

PUBLISHER = Connect(
    "publisher", clean_start=False, properties={PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}
)


def disk_after(notes: list[Note], moment: float, file: str, chance: random.Random) -> bytes:
    """Return the content of a file after a power cut. Writes before a successful sync are on disk.
    Writes before a failed sync are lost. Of writes without a later sync, any part is on disk.
    moment: time of the cut.
    """
    content, pending = bytearray(), list[Note]()

    def settle(items: list[Note]) -> None:
        for item in items:
            if item.operation == "t":
                del content[item.offset :]
            else:
                content.extend(bytes(max(0, item.offset - len(content))))
                content[item.offset : item.offset + len(item.data)] = item.data

    for note in notes:
        if note.file != file or note.end > moment:
            continue
        if note.operation in "wt":
            pending.append(note)
            continue
        if note.operation == "s":
            settle([item for item in pending if item.end <= note.begin])
        pending = [item for item in pending if item.end > note.begin]
    settle([item for item in pending if chance.random() < 0.5])
    return bytes(content)


def spooled_after_a_cut(
    notes: list[Note], moment: float, folder: Path, chance: random.Random
) -> set[bytes]:
    folder.mkdir()
    (folder / FILE).write_bytes(disk_after(notes, moment, "d", chance))
    (folder / f"{FILE}-wal").write_bytes(disk_after(notes, moment, "l", chance))
    with closing(sqlite3.connect(folder / FILE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {payload for (payload,) in database.execute("SELECT payload FROM spool")}


async def publish(client: Wire, identifier: int, payload: bytes, within: float = 30) -> float:
    """Publish a message at QoS 2. Return the monotonic time of its PUBREC. within: time limit in
    seconds.
    """
    client.send(Publish("t", payload, 2, identifier))
    packet = await client.take(Pubrec, within)
    assert not packet.reason
    return time.monotonic()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("libraries")
    return f"{build('recorder', folder)}:{build('faults', folder)}"


@pytest.mark.parametrize("restarted", [False, True], ids=["tried again", "restarted"])
async def test_message_acknowledged_after_a_failed_sync_is_on_the_disk(
    tmp_path: Path, libraries: str, restarted: bool
) -> None:
    record, plan = tmp_path / "record", tmp_path / "plan"
    environment = {
        "LD_PRELOAD": libraries,
        "ONCEWAY_RECORD": str(record),
        "ONCEWAY_FAULTS": str(plan),
    }
    promised = {b"before", b"meanwhile"}
    async with (
        gateway(tmp_path / "data", env=environment) as running,
        wire(running.port, PUBLISHER) as client,
    ):
        await publish(client, 1, b"before")
        plan.write_text("eio")
        stuck = asyncio.create_task(publish(client, 2, b"meanwhile"))
        await running.logged("SQLITE_IOERR_FSYNC")
        assert not stuck.done()
        if restarted:
            await running.end(signal.SIGKILL)
            with pytest.raises(AssertionError, match="closed the connection"):
                await stuck
            plan.write_text("")
        else:
            plan.write_text("")
            moment = await stuck
            await running.end(signal.SIGKILL)
    if restarted:
        async with (
            gateway(tmp_path / "data", env=environment) as running,
            wire(running.port, PUBLISHER) as client,
        ):
            moment = await publish(client, 2, b"meanwhile")
            client.send(Pubrel(1))
            await running.end(signal.SIGKILL)
    notes, chance = read_notes(record), random.Random(3)
    failed = next(note.end for note in notes if note.operation == "f")
    for number, cut in enumerate(
        [note.end for note in notes if failed < note.end < moment for _ in range(3)]
    ):
        assert b"before" in spooled_after_a_cut(notes, cut, tmp_path / f"cut-{number}", chance)
    assert spooled_after_a_cut(notes, moment, tmp_path / "cut", chance) == promised
