"""MQTT clients that people use, while the gateway temporarily refuses messages. Each message that a
client reports as published is in the spool. Many such clients do not overload the gateway by
reconnecting.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import aiomqtt
import pytest

from gateway.mqtt.packets import Connect, Disconnect, Puback, Publish
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from tests.service.paho_fleet import TOPIC, Report, qos_of
from tests.service.process import GatewayProcess, gateway
from tests.service.wire import wire
from tests.web.test_web import address, metrics, value

ROW = 64 + len(TOPIC)
MOST_OF_A_WORKER = 200
LISTENER = '[[listener]]\nbind = "127.0.0.1:0"\n'
V5, V311 = aiomqtt.ProtocolVersion.V5, aiomqtt.ProtocolVersion.V311
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def configured(folder: Path, spool_bytes: int, more: str = LISTENER) -> tuple[Path, str, str]:
    """Return the data directory and arguments of a gateway whose spool takes `spool_bytes` from one
    address. A fifth of the spool is left for other addresses.
    """
    path = folder / "gateway.toml"
    path.write_text(
        f'[gateway]\ndata = "{folder / "data"}"\n{more}[web]\nbind = "127.0.0.1:0"\n'
        f'[uplink]\nlanding = "file:///landing"\n[spool]\ndevices_share = 0.0\n'
        f"max_bytes = {spool_bytes * 5 // 4}\n"
    )
    return folder, "--config", str(path)


def make_room(running: GatewayProcess, folder: Path) -> None:
    path = folder / "gateway.toml"
    head, _, _ = path.read_text().rpartition("=")
    path.write_text(f"{head}= 100_000_000\n")
    running.process.send_signal(signal.SIGHUP)


def spooled(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "data" / "gateway.db")) as database:
        return [
            bytes(payload).decode() for (payload,) in database.execute("SELECT payload FROM spool")
        ]


def cpu_s(running: GatewayProcess) -> float:
    fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


async def worker(port: int, first: int, count: int, seconds: float) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.service.paho_fleet"),
        *map(str, (port, first, count, seconds)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )


async def told(workers: list[asyncio.subprocess.Process]) -> Report:
    """Return the sum of the next reports of all processes."""
    whole: Report = {"reconnections": 0, "said": [], "published": []}
    for process in workers:
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line, "a worker has ended: see its standard error"
        part: Report = json.loads(line)
        whole["reconnections"] += part["reconnections"]
        whole["said"] += part["said"]
        whole["published"] += part["published"]
    return whole


async def fleet(folder: Path, clients: int, seconds: float) -> float:
    """Let clients fill the spool and be refused. Then make room, and check that no message is
    missing. Return the mean number of reconnections of a client while the spool was full.
    """
    async with gateway(*configured(folder, 2 * clients * (ROW + 8))) as running:
        url = await address(running)
        each = min(clients, MOST_OF_A_WORKER)
        cpu = cpu_s(running)
        workers = [
            await worker(running.port, first, each, seconds) for first in range(0, clients, each)
        ]
        try:
            found = await told(workers)
            each_one = found["reconnections"] / clients
            print(
                f"{clients} clients, {seconds:.0f} s: {each_one:.2f} reconnections each,"
                f" {cpu_s(running) - cpu:.1f} s CPU"
            )
            assert 0 < len(found["published"]) < len(found["said"])
            missing = set(found["published"]) - set(spooled(folder))
            assert not missing, "clients call published what is not there"
            shown = await metrics(url)
            assert value(shown, "publishers_paused", bound="spool") > clients // 2
            assert value(shown, "turned_away_total", bound="spool") >= clients
            make_room(running, folder)
            for process in workers:
                assert process.stdin is not None
                process.stdin.write(b"\n")
            found = await told(workers)
            kept = Counter(spooled(folder))
            assert set(found["published"]) == set(found["said"]) == set(kept)
            twice = [payload for payload, count in kept.items() if count > 1]
            assert not [item for item in twice if qos_of(item.partition(":")[0]) == 2]
        finally:
            for process in workers:
                if process.returncode is None:
                    process.kill()
                await process.wait()
        refusals = [line for line in running.log if "PUBLISH refused" in line]
        assert 0 < len(refusals) <= min(clients, 30 + 2 * seconds)
        return each_one


async def test_a_fleet_of_paho_clients_loses_nothing_and_does_not_storm(tmp_path: Path) -> None:
    """With pauses of 1, 2, 4 and 8 s, a client reconnects four times in 15 s."""
    assert 1 < await fleet(tmp_path, 50, 14) <= 4


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_thousand_paho_clients_lose_nothing_and_do_not_storm(tmp_path: Path) -> None:
    """In a minute, a client reconnects at most once every 10 s on average."""
    assert 3 < await fleet(tmp_path, 1000, 60) <= 6


@pytest.mark.parametrize(
    ("qos", "version", "identifier"),
    [
        (1, V5, "c"),
        (2, V5, None),
        (1, V311, None),
        (2, V311, "c"),
        *(
            pytest.param(*one, marks=pytest.mark.soak)
            for one in ((1, V5, None), (2, V5, "c"), (1, V311, "c"), (2, V311, None))
        ),
    ],
)
async def test_aiomqtt_hears_that_a_message_was_refused(
    tmp_path: Path, version: aiomqtt.ProtocolVersion, qos: int, identifier: str | None
) -> None:
    """aiomqtt reports the end of the connection to a publisher only by its own timeout."""
    async with gateway(*configured(tmp_path, ROW + 20)) as running:

        async def publish(payload: str) -> None:
            async with aiomqtt.Client(
                "127.0.0.1", running.port, identifier=identifier, protocol=version, timeout=3
            ) as client:
                await client.publish("t", payload, qos)

        await publish("taken")
        for _ in range(2):
            with pytest.raises(aiomqtt.MqttError):
                await publish("refused")
        assert spooled(tmp_path) == ["taken"]
        make_room(running, tmp_path)
        async with asyncio.timeout(30):
            while len(spooled(tmp_path)) < 2:
                try:
                    await publish("taken, too")
                except aiomqtt.MqttError:
                    await asyncio.sleep(0.1)
        assert set(spooled(tmp_path)) == {"taken", "taken, too"}


async def test_a_listener_or_a_client_may_ask_for_reason_codes(tmp_path: Path) -> None:
    listener = f'{LISTENER}refuse = "reason code"\n'
    reads = {PropertyId.USER_PROPERTY: [("onceway-reads-reason-codes", "1")]}
    for place, more, properties in (("a", listener, None), ("b", LISTENER, reads)):
        folder = tmp_path / place
        folder.mkdir()
        connect = Connect("c", properties=properties)
        async with (
            gateway(*configured(folder, ROW + 10, more)) as running,
            wire(running.port, connect) as client,
        ):
            client.send(Publish("t", bytes(10), 1, 1), Publish("t", bytes(10), 1, 2))
            assert await client.take(Puback) == Puback(1)
            assert await client.take(Puback) == Puback(2, R.QUOTA_EXCEEDED)


async def test_a_client_that_sends_on_and_on_reads_every_acknowledgement_before_the_end(
    tmp_path: Path,
) -> None:
    """Before the gateway closes the connection, it reads and discards the client's further bytes.
    Otherwise TCP would reset the connection, and acknowledgements on their way could be lost.
    """
    async with (
        gateway(*configured(tmp_path, 200 * (ROW + 1000))) as running,
        wire(running.port, Connect("c")) as client,
    ):
        for number in range(1, 2001):
            client.send(Publish("t", bytes(1000), 1, number))
        taken = []
        while True:
            packet = await client.take(object)  # type: ignore[type-var]
            if isinstance(packet, Disconnect):
                break
            assert isinstance(packet, Puback)
            taken.append(packet.packet_id)
        assert packet.reason == R.QUOTA_EXCEEDED
        assert taken == list(range(1, 201))
        assert len(spooled(tmp_path)) == 200
