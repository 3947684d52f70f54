"""The power fails at any moment. Afterwards, the store opens, and each acknowledged message is in
it once.

A gateway runs under load. A recorder between SQLite and the kernel notes all writes
(tests/store/recorder.c). From these notes, the test makes the disk as it would be after a power cut
at a random moment: synced data are there, and any subset of 512-byte sectors of later writes. The
publisher notes the time of each answer. Each answer from before the cut must be true afterwards.
"""

import random
import signal
import sqlite3
import struct
import subprocess
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.mqtt.message_ids import unpack_ids
from gateway.mqtt.packets import (
    Connect,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.mqtt.properties import PropertyId
from gateway.store.recovery import recover
from gateway.store.schema import FILE, open_store
from tests.service.process import gateway
from tests.service.wire import Wire, wire

SOURCE = Path(__file__).parents[1] / "store" / "recorder.c"
FOREVER = {PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}
SECTOR = 512
MESSAGES = 3000
MOST = 20 * MESSAGES
"""Largest number of messages that are published without a checkpoint. On a busy machine, a
checkpoint may be late.
"""
WINDOW = 20

_NOTE = struct.Struct("=ddcc6xQQ")


@dataclass
class Note:
    begin: float
    end: float
    operation: str
    file: str
    offset: int
    data: bytes


def read_notes(path: Path) -> list[Note]:
    raw, notes, at = path.read_bytes(), [], 0
    while at < len(raw):
        begin, end, operation, file, offset, length = _NOTE.unpack_from(raw, at)
        at += _NOTE.size
        notes.append(
            Note(begin, end, operation.decode(), file.decode(), offset, raw[at : at + length])
        )
        at += length
    return notes


def disk_after(notes: list[Note], moment: float, chance: random.Random) -> dict[str, bytes]:
    """Return the contents of the database (`d`) and of the write-ahead log (`l`) after a power cut
    at `moment`: all synced writes, and a random part of later ones.
    """
    files = {"d": bytearray(), "l": bytearray()}
    for file, content in files.items():
        past = [note for note in notes if note.file == file and note.begin <= moment]
        synced = max(
            (note.begin for note in past if note.operation == "s" and note.end <= moment),
            default=0.0,
        )
        for note in past:
            safe = note.end <= synced
            if note.operation == "t" and (safe or chance.random() < 0.5):
                del content[note.offset :]
            elif note.operation == "w":
                for start in range(0, len(note.data), SECTOR):
                    if safe or chance.random() < 0.5:
                        piece = note.data[start : start + SECTOR]
                        where = note.offset + start
                        content.extend(bytes(max(0, where - len(content))))
                        content[where : where + len(piece)] = piece
    return {file: bytes(content) for file, content in files.items()}


async def publish_all(client: Wire, first: int) -> dict[bytes, float]:
    """Publish MESSAGES messages, numbered from `first` on. Return the time of each payload's
    PUBREC.
    """
    recorded: dict[bytes, float] = {}
    flying: dict[int, bytes] = {}
    free = list(range(1, WINDOW + 1))
    sent = 0
    while len(recorded) < MESSAGES or flying:
        while free and sent < MESSAGES:
            identifier, payload = free.pop(0), b"%06d" % (first + sent)
            flying[identifier] = payload
            client.send(Publish("spool/t", payload, 2, identifier))
            sent += 1
        packet = await client.take(Pubrec | Pubcomp)  # type: ignore[arg-type]
        if isinstance(packet, Pubrec):
            recorded[flying[packet.packet_id]] = time.monotonic()
            client.send(Pubrel(packet.packet_id))
        else:
            del flying[packet.packet_id]
            free.append(packet.packet_id)
    return recorded


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("recorder") / "recorder.so"
    subprocess.run(
        [
            "gcc",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            built,
            SOURCE,
            "-ldl",
        ],
        check=True,
    )
    return built


@pytest.mark.parametrize("cuts", [80, pytest.param(1000, marks=pytest.mark.soak)])
async def test_acknowledged_message_survives_a_power_cut_at_any_moment(
    tmp_path: Path, library: Path, cuts: int
) -> None:
    record = tmp_path / "record"
    config = tmp_path / "gateway.toml"
    config.write_text(f"""
[gateway]
data = "{tmp_path / "data"}"
[[listener]]
bind = "127.0.0.1:0"
anonymous = true
[uplink]
landing = "file:///landing"
""")
    environment = {"LD_PRELOAD": str(library), "ONCEWAY_RECORD": str(record)}
    async with gateway(tmp_path, "--config", str(config), env=environment) as running:
        async with wire(
            running.port, Connect("subscriber", clean_start=False, properties=FOREVER)
        ) as subscriber:
            subscriber.send(Subscribe(1, [Subscription("#", 2)]))
            await subscriber.take(Suback)
        async with wire(
            running.port, Connect("publisher", clean_start=False, properties=FOREVER)
        ) as publisher:
            started = time.monotonic()
            recorded: dict[bytes, float] = {}
            database = tmp_path / "data" / FILE
            before = database.stat().st_mtime_ns
            while not recorded or (database.stat().st_mtime_ns == before and len(recorded) < MOST):
                recorded |= await publish_all(publisher, len(recorded))
            ended = time.monotonic()
        await running.end(signal.SIGKILL)
    notes = read_notes(record)
    assert {note.operation for note in notes} >= {"w", "s"}
    assert any(note.file == "d" and note.begin > started for note in notes), (
        "a checkpoint was under way, too"
    )
    chance = random.Random(7)
    for cut in range(cuts):
        moment = chance.uniform(started, ended)
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        files = disk_after(notes, moment, chance)
        (folder / FILE).write_bytes(files["d"])
        (folder / f"{FILE}-wal").write_bytes(files["l"])
        verify(folder, {payload for payload, when in recorded.items() if when < moment})


def verify(folder: Path, promised: set[bytes]) -> None:
    with closing(open_store(folder, "site")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        spooled = Counter(payload for (payload,) in database.execute("SELECT payload FROM spool"))
        queued = Counter(queue_of(database))
        state = recover(database, None, 1024)
    assert promised <= set(spooled), f"lost from the spool: {sorted(promised - set(spooled))[:3]}"
    assert promised <= set(queued), f"lost from the queue: {sorted(promised - set(queued))[:3]}"
    assert set(spooled.values()) | set(queued.values()) <= {1}
    assert spooled == queued, "a publication is in both or in none: one transaction"
    for _, received, *_ in state.flows:
        assert len(unpack_ids(received)) <= WINDOW


def queue_of(database: sqlite3.Connection) -> list[bytes]:
    payloads = []
    for count, skip, total, body in database.execute(
        "SELECT queue.count, skip, message.count, body FROM queue JOIN message ON message.id ="
        " queue.message"
    ):
        size = len(body) // total
        payloads += [body[size * index : size * (index + 1)] for index in range(skip, skip + count)]
    return payloads
