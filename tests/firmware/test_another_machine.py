"""`onceway backup` and `restore` while a board continues to measure. The old machine is lost, and a
new machine continues under its name. The landing place has each reading under one key.
"""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from gateway.payload.rewording import says_the_same
from provisioning.registry import Registry
from tests.firmware.test_host_board import NAME, Board, board_on, gateway_at, until

pytestmark = pytest.mark.soak

Key = tuple[str, int, int]

TEXT = """
[gateway]
name = "site-7"
data = "{machine}/data"
trust_clock = true

[[serial]]
port = "{port}"

[[listener]]
bind = "127.0.0.1:0"
anonymous = true

[uplink]
landing = "file://{landing}"
"""


async def onceway(machine: Path, *words: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *words, "--config", machine / "gateway.toml"),
        env=os.environ | {"ONCEWAY_PASSPHRASE": "correct horse"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, out.decode()
    return out.decode()


def set_up(machine: Path, board: Board, landing: Path) -> None:
    machine.mkdir()
    registry = Registry(machine / "data" / "registry.db")
    registry.finish(registry.begin(board.identity, "uno", board.port), "ab" * 32)
    text = TEXT.format(machine=machine, port=board.port, landing=landing)
    (machine / "gateway.toml").write_text(text)


def landed(landing: Path) -> dict[Key, bytes]:
    """Return the payload of each key at the landing place. Check that rows with the same key have
    the same content.
    """
    found: dict[Key, bytes] = {}
    for path in landing.glob("site-7/*/*.parquet"):
        rows = pq.read_table(path, columns=["device", "incarnation", "sequence", "payload"])
        for device, incarnation, sequence, payload in zip(*rows.to_pydict().values(), strict=True):
            known = found.setdefault((device, incarnation, sequence), payload)
            assert known == payload or says_the_same(known, payload), sequence
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_each_reading_is_there_when_another_machine_goes_on(
    sensor: Path, tmp_path: Path, seed: int
) -> None:
    """Before the old machine is lost, it lands all publications that it received after
    the backup.
    """
    random, machine, landing = Random(seed), tmp_path / "machine", tmp_path / "landing"
    landing.mkdir()
    backup = tmp_path / "site-7.owback"
    async with board_on(sensor, tmp_path, 20) as board:
        set_up(machine, board, landing)
        async with gateway_at(machine / "gateway.toml") as site:
            await until(lambda: board.newest >= 40 + random.randrange(40))
            if seed % 2:
                await onceway(machine, "uplink", "run", "--once")
            await onceway(machine, "backup", backup)
            after = board.newest + 40 + random.randrange(80)
            await until(lambda: board.newest >= after)
            await board.power_off()  # usually in the middle of an exchange
            await onceway(machine, "uplink", "run", "--once")
            await site.gateway.end(signal.SIGKILL)
            before = set(landed(landing))
            shutil.rmtree(machine)

            said = await onceway(machine, "restore", backup)
            assert "never let the old machine run again" in said
            await site.start()
            await board.power_on(seed)
            await until(lambda: board.newest >= after + 40)
            await board.end_delivered(seed)
            await onceway(machine, "uplink", "run", "--once")
    keys = set(landed(landing))
    assert before < keys
    assert {(device, number) for device, number, _ in keys} == {(NAME, board.ledger.incarnation)}
    assert sorted(sequence for _, _, sequence in keys) == list(range(1, board.newest + 1))
    assert len(list((landing / "site-7").glob("????????"))) == 2, "a new epoch"
