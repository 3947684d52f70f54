"""Clients that people use, against a gateway that refuses for now: what they call published is
there, and a fleet of them does not storm.
"""

import asyncio
import os
import resource
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.mqtt.packets import Connect, Disconnect, Puback, Publish
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from tests.service.process import GatewayProcess, gateway
from tests.service.wire import wire
from tests.slowness import slowness
from tests.web.test_web import address, metrics, value

ROW = 64 + len("t")
LISTENER = '[[listener]]\nbind = "127.0.0.1:0"\n'
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def configured(folder: Path, spool_bytes: int, more: str = LISTENER) -> tuple[Path, str, str]:
    path = folder / "gateway.toml"
    path.write_text(
        f'[gateway]\ndata = "{folder / "data"}"\n{more}[web]\nbind = "127.0.0.1:0"\n'
        f"[spool]\nmax_bytes = {spool_bytes}\n"
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


class Sensor:
    """A paho client that publishes now and then, and has never heard of reason codes."""

    def __init__(self, number: int, port: int) -> None:
        self.name = f"s{number}"
        self.qos = 1 + number % 2
        version = (paho.MQTTv5, paho.MQTTv311)[number // 2 % 2]
        self.connections = 0
        self.said: dict[str, paho.MQTTMessageInfo] = {}
        more: dict[str, Any] = {} if version == paho.MQTTv5 else {"clean_session": False}
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=self.name, protocol=version, **more
        )
        self.client.on_connect = self._on_connect
        if version == paho.MQTTv5:
            session = Properties(PacketTypes.CONNECT)
            session.SessionExpiryInterval = 1000
            self.client.connect_async("127.0.0.1", port, clean_start=False, properties=session)
        else:
            self.client.connect_async("127.0.0.1", port)
        self.client.loop_start()

    def _on_connect(self, *_: Any) -> None:
        self.connections += 1

    def publish(self) -> None:
        payload = f"{self.name}:{len(self.said)}"
        self.said[payload] = self.client.publish("t", payload, self.qos)

    @property
    def published(self) -> set[str]:
        """What it calls published."""
        return {payload for payload, info in self.said.items() if info.is_published()}

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


async def fleet(folder: Path, clients: int, seconds: float, settle_s: float) -> float:
    """Let so many clients run into a full spool, make room, and see that nothing is missing.
    Returns the reconnections of a client.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8 * clients)), hard))
    room = 2 * clients * (ROW + 8)
    async with gateway(*configured(folder, room)) as running:
        url = await address(running)
        sensors = [Sensor(number, running.port) for number in range(clients)]
        try:
            begun, cpu = time.monotonic(), cpu_s(running)
            while (passed := time.monotonic() - begun) < seconds:
                for sensor in sensors:
                    if len(sensor.said) < 3 or passed > 5 * len(sensor.said):
                        sensor.publish()
                await asyncio.sleep(0.2)
            used = cpu_s(running) - cpu
            reconnections = sum(max(0, sensor.connections - 1) for sensor in sensors) / clients
            print(
                f"{clients} clients, {seconds:.0f} s: {reconnections:.2f} reconnections each,"
                f" {used:.1f} s CPU"
            )
            called = set[str]().union(*(sensor.published for sensor in sensors))
            kept = spooled(folder)
            assert 0 < len(called) < sum(len(sensor.said) for sensor in sensors)
            assert called <= set(kept), "a client calls published what is not there"
            found = await metrics(url)
            assert value(found, "publishers_paused", bound="spool") > 0
            assert value(found, "turned_away_total", bound="spool") > 0
            make_room(running, folder)
            async with asyncio.timeout(settle_s * slowness()):
                while any(len(one.published) < len(one.said) for one in sensors):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            kept = spooled(folder)
            said = set[str]().union(*(sensor.said for sensor in sensors))
            assert set(kept) == said
            twice = (
                {payload for payload in kept if kept.count(payload) > 1} if clients < 100 else ()
            )
            exact = {sensor.name for sensor in sensors if sensor.qos == 2}
            assert not [payload for payload in twice if payload.partition(":")[0] in exact]
        finally:
            await asyncio.gather(*(asyncio.to_thread(sensor.close) for sensor in sensors))
        refusals = [line for line in running.log if "PUBLISH refused" in line]
        assert 0 < len(refusals) <= min(clients, 30 + seconds)
        return reconnections


async def test_a_fleet_of_paho_clients_loses_nothing_and_does_not_storm(tmp_path: Path) -> None:
    """Pauses of 1, 2, 4 and 8 s in a quarter of a minute: four reconnections."""
    assert await fleet(tmp_path, 50, 15, 40) <= 4.5


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_thousand_paho_clients_lose_nothing_and_do_not_storm(tmp_path: Path) -> None:
    threading.stack_size(256 * 1024)
    try:
        assert await fleet(tmp_path, 1000, 60, 120) <= 6
    finally:
        threading.stack_size(0)


@pytest.mark.parametrize("identifier", ["c", None])
@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V5, aiomqtt.ProtocolVersion.V311])
@pytest.mark.parametrize("qos", [1, 2])
async def test_aiomqtt_hears_that_a_message_was_refused(
    tmp_path: Path, version: aiomqtt.ProtocolVersion, qos: int, identifier: str | None
) -> None:
    """When its own time is over: it does not tell a publisher that the connection has ended."""
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
    """A connection that is closed while bytes are on their way is reset, and a reset may take what
    was sent last with it.
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
