"""A subscriber that never reads harms only itself: the gateway serves all other clients, and its
memory stays within its limits.
"""

from pathlib import Path

import pytest

from gateway.mqtt.packets import Connect, Puback, Publish, Suback, Subscribe, Subscription
from gateway.mqtt.properties import PropertyId
from tests.service.process import GatewayProcess, gateway
from tests.service.wire import wire

MESSAGES = 3000
PAYLOAD = bytes(10_000)
FOREVER = {PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}
LIMITS = "[limits]\nqueue_bytes = 2_000_000\noutgoing_bytes = 1_000_000\n"


def resident(running: GatewayProcess) -> int:
    """Return the bytes of memory that the gateway has in use."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.parametrize("kept", [True, False], ids=["kept session", "clean session"])
@pytest.mark.parametrize("qos", [0, 1])
async def test_a_subscriber_that_never_reads_costs_itself_alone(
    tmp_path: Path, qos: int, kept: bool
) -> None:
    config = tmp_path / "gateway.toml"
    data = f'[gateway]\ndata = "{tmp_path / "data"}"\n[spool]\ntopics = ["spool/#"]\n'
    data += '[uplink]\nlanding = "file:///landing"\n'
    config.write_text(f'{data}{LIMITS}[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n')
    properties = FOREVER if kept else None
    async with (
        gateway(tmp_path, "--config", str(config)) as running,
        wire(running.port, Connect("never reads", properties=properties)) as deaf,
        wire(running.port, Connect("reads", properties=FOREVER)) as reader,
        wire(running.port, Connect("publisher")) as publisher,
    ):
        for client in (deaf, reader):
            client.send(Subscribe(1, [Subscription("t", qos)]))
            await client.take(Suback)
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = resident(running)
        for first in range(0, MESSAGES, 100):
            publisher.send(
                *(
                    Publish("t", b"%06d" % number + PAYLOAD, 1, number % 100 + 1)
                    for number in range(first, first + 100)
                )
            )
            for number in range(first, first + 100):
                packet = await reader.take(Publish)
                assert int(packet.payload[:6]) == number
                if packet.qos == 1:
                    reader.send(Puback(packet.packet_id))
                await publisher.take(Puback)
        assert resident(running) - before < 16_000_000, (
            f"{MESSAGES * len(PAYLOAD)} bytes were published"
        )
        assert await running.end() == 0
