"""A gateway with boards on pseudo-terminals and their readings, for tests of how they are
displayed.
"""

import time
from pathlib import Path

import cbor2

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Publish, Subscribe, Subscription, Version
from tests.benchmarks.load import connect_packet
from tests.links.board import Board, Pty, until


def configuration(folder: Path, lines: list[Pty], text: str = "", clock: bool = True) -> Path:
    """Write a configuration with a serial port for each line, which accepts boards without a key.
    Return the path of the file.
    """
    path = folder / "gateway.toml"
    ports = "".join(f'[[serial]]\nport = "{line.path}"\nopen = true\n' for line in lines)
    path.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{folder / "data"}"\n'
        f"trust_clock = {str(clock).lower()}\n"
        f'[[listener]]\nbind = "127.0.0.1:0"\n{ports}{text}'
    )
    return path


class Sensor:
    """A board in session with the gateway. At QoS 1, it uses the sequence as the packet
    identifier.
    """

    def __init__(self, line: Pty, name: str, key: bytes | None = None) -> None:
        self.name = name
        self._line = line
        self.board = Board(line, name, key=key)
        self._sequence = 0

    async def connect(self) -> None:
        await until(lambda: self.board.started)
        self.board.write(connect_packet(self.name, clean=True))
        await until(lambda: self.board.received)

    async def measure(self, value: float, name: str = "adc0", unit: str = "V") -> None:
        """Send a reading with the present time. Return when the gateway has acknowledged it."""
        record = {-2: f"{self.name}:", -3: int(time.time()), 0: name, 1: unit, 2: value}
        await self.publish(f"sensors/{self.name}/{name}", cbor2.dumps([record]))

    def unplug(self) -> None:
        """Switch the board off, and unplug its cable."""
        self.board.power_off()
        self._line.unplug()

    async def subscribe(self, topic_filter: str) -> None:
        before = len(self.board.received)
        packet = Subscribe(60_000, [Subscription(topic_filter, 2)])
        self.board.write(encode(packet, Version.V5))
        await until(lambda: len(self.board.received) > before)

    async def publish(self, topic: str, payload: bytes) -> None:
        self._sequence += 1
        before = len(self.board.received)
        packet = Publish(topic, payload, qos=1, packet_id=self._sequence)
        self.board.write(encode(packet, Version.V5))
        await until(lambda: len(self.board.received) > before)
