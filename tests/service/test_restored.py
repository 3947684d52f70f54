"""A restored store acknowledges only messages that it has."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.commands import control_client as control
from gateway.mqtt.packets import Connect, Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.store.backup import backup, restore
from tests.service.process import gateway
from tests.service.wire import wire

CLIENT = Connect("c", clean_start=False, properties={PropertyId.SESSION_EXPIRY_INTERVAL: 1000})


def spooled(folder: Path) -> list[bytes]:
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        return [row[0] for row in database.execute("SELECT payload FROM spool ORDER BY id")]


@pytest.mark.parametrize("way", ["onceway store backup", "a copy of the file"])
async def test_a_new_message_with_an_identifier_from_before_the_backup_arrives(
    tmp_path: Path, way: str
) -> None:
    """The backup is made between PUBREC and PUBREL of a message. After the restore, a new message
    uses the same packet identifier.
    """
    folder, copy = tmp_path / "data", tmp_path / "copy.db"
    async with gateway(folder) as running:
        async with wire(running.port, CLIENT) as client:
            client.send(Publish("t", b"first", 2, 7))
            await client.take(Pubrec)
            if way == "onceway store backup":
                backup(folder, copy)
        await running.end()
    if not copy.exists():
        shutil.copy(folder / "gateway.db", copy)
    async with gateway(folder) as running:
        async with wire(running.port, CLIENT) as client:
            client.send(Pubrel(7))
            assert (await client.take(Pubcomp)).reason == ReasonCode.SUCCESS, (
                "a restart forgets none"
            )
        assert control.ask(folder, do="status")[0]["restored"] is None
        await running.end()

    if way == "onceway store backup":
        restore(folder, copy)
    else:
        shutil.copy(copy, folder / "gateway.db")
    async with gateway(folder) as running:
        async with wire(running.port, CLIENT) as client:
            client.send(Publish("t", b"second", 2, 7))
            assert (await client.take(Pubrec)).reason < ReasonCode.UNSPECIFIED_ERROR
            client.send(Pubrel(7))
            assert (await client.take(Pubcomp)).reason == ReasonCode.SUCCESS
        await running.logged("a new generation of the store begins")
        assert control.ask(folder, do="status")[0]["restored"]
        await running.end()
    assert spooled(folder) == [b"first", b"second"]
