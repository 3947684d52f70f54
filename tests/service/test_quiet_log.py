"""The gateway writes log lines for each connection, but none for each reading."""

from pathlib import Path

from tests.links.board import Pty
from tests.service.boards import Sensor, configuration
from tests.service.process import gateway


async def test_connection_of_a_board_writes_two_lines_and_a_reading_none(tmp_path: Path) -> None:
    port = Pty()
    config = configuration(tmp_path, [port])
    async with gateway(tmp_path / "data", "--config", str(config)) as running:
        sensor = Sensor(port, "roof-1")
        await sensor.connect()
        await running.logged("roof-1")
        for number in range(20):
            await sensor.measure(number)
        sensor.unplug()
        await running.logged("connection lost")
        told = [line.partition(f"{port.path}: ")[2] for line in running.log if port.path in line]
    kinds = "greets", "connection lost", "gone (the port", "opened at"
    found = [next(kind for kind in kinds if kind in words) for words in told if words.strip()]
    assert sorted(found) == ["connection lost", "gone (the port", "greets", "opened at"], told
