"""Modes of the gateway's files in a data directory that other accounts may enter."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connect, Puback, Publish
from gateway.store.schema import FILE, open_store
from tests.service.process import gateway
from tests.service.wire import wire


def open_to_others(folder: Path) -> list[str]:
    """Return the files that accounts outside of their group may read, write or execute."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o007:
            found.append(f"{path.name} {path.stat().st_mode & 0o777:o}")
    return found


async def test_no_file_is_for_other_accounts_though_the_folder_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    file = tmp_path / "gateway.toml"
    file.write_text(
        f'[gateway]\ndata = "{data}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        '[page]\nbind = "127.0.0.1:0"\n'
    )
    before = os.umask(0o022)
    try:
        async with gateway(data, "--config", str(file)) as running:
            async with wire(running.port, Connect("c")) as client:
                client.send(Publish("t", b"x", 1, 1, retain=True))
                await client.take(Puback)
            await asyncio.sleep(0)
            assert (data / FILE).exists()
            assert (data / f"{FILE}-wal").exists()
            assert open_to_others(data) == []
            await running.end()
        assert open_to_others(data) == []
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o664])
def test_a_store_that_was_open_to_other_accounts_is_shut(tmp_path: Path, mode: int) -> None:
    open_store(tmp_path, "g").close()
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute("INSERT INTO meta VALUES ('x', 'y')")
        database.commit()
        for path in tmp_path.glob(f"{FILE}*"):
            path.chmod(mode)
        with closing(open_store(tmp_path, "g")):
            assert open_to_others(tmp_path) == []
