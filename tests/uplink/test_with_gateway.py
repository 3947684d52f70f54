"""Gateway and uplink as two processes with one database. Each published message lands once, and
landing makes room in a full spool.
"""

import signal
import sqlite3
import time
from contextlib import suppress

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion

from tests.service.process import free_port
from tests.uplink.servers import listens, wait_until


@pytest.fixture
def gateway(onceway, tmp_path):
    """Run a gateway whose spool has room for about 50 readings. Return its port and its
    configuration.
    """
    port = free_port()
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{tmp_path}/data"\ntrust_clock = true\n'
        f'[[listener]]\ntype = "tcp"\nbind = "127.0.0.1:{port}"\nanonymous = true\n'
        f'[spool]\ntopics = ["sensors/#"]\nmax_bytes = 5000\n'
        f'[uplink]\nlanding = "file://{tmp_path}/landing"\nbatch_count = 10\nbatch_age_s = 0.2\n'
    )
    onceway.start("gateway", "run", "--config", config)
    wait_until(lambda: listens(port), "the gateway")
    return port, config


async def publish(port: int, numbers) -> None:
    """Publish numbers at QoS 2, one after the other. If the spool is full, the gateway refuses
    them.
    """
    async with aiomqtt.Client(
        "127.0.0.1", port, identifier="tester", protocol=ProtocolVersion.V5, timeout=3
    ) as client:
        for number in numbers:
            with suppress(aiomqtt.MqttError):
                await client.publish("sensors/one", number.to_bytes(8, "big"), qos=2)


async def test_rows_that_waited_without_an_uplink_land_when_it_comes_back(
    gateway, onceway, tmp_path, landed
):
    port, config = gateway
    text = config.read_text()
    await publish(port, range(5))

    def restart(text: str) -> None:
        running[0].send_signal(signal.SIGTERM)
        assert running[0].wait(20) == 0
        config.write_text(text)
        running[:] = [onceway.start("gateway", "run", "--config", config)]
        wait_until(lambda: listens(port), "the gateway")

    running = list(onceway._started)
    restart(text[: text.index("[uplink]")])
    await publish(port, range(100, 300))  # more than fits into the spool
    restart(text)
    await publish(port, range(5, 10))
    done = onceway("uplink", "run", "--once", "--config", config)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "data" / "gateway.db") as db:
        (epoch,) = db.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    rows = landed(tmp_path / "landing", epoch=epoch)
    assert [int.from_bytes(row[5], "big") for row in rows] == list(range(10))


async def test_landing_makes_room_in_a_full_spool(gateway, onceway, tmp_path, landed):
    port, config = gateway
    db = sqlite3.connect(tmp_path / "data" / "gateway.db", timeout=30)

    def spooled() -> int:
        return db.execute("SELECT count(*) FROM spool").fetchone()[0]

    await publish(port, range(1000))
    full = spooled()
    assert 30 < full < 100
    await publish(port, range(1000, 1005))
    assert spooled() == full

    uplink = onceway.start("uplink", "run", "--config", config)
    wait_until(lambda: spooled() == 0, "the spool to drain")
    deadline = time.monotonic() + 30
    while (
        spooled() == 0
        and not db.execute("SELECT count(*) FROM batch WHERE last > ?", (full,)).fetchone()[0]
    ):
        assert time.monotonic() < deadline, "the gateway never noticed that there is room again"
        await publish(port, range(2000, 2020))
    wait_until(lambda: spooled() == 0, "the spool to drain again")
    uplink.send_signal(signal.SIGTERM)
    assert uplink.wait(20) == 0
    epoch = db.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()[0]
    db.close()
    rows = landed(tmp_path / "landing", epoch=epoch)
    numbers = [int.from_bytes(row[5], "big") for row in rows]
    assert numbers[:full] == list(range(full))
    assert numbers[full:]
    assert set(numbers[full:]) <= set(range(2000, 2020))
    assert len({row[:3] for row in rows}) == len(rows)
    assert all(row[0] == "@site-1" and row[3] == "tester" and row[6] is not None for row in rows)
