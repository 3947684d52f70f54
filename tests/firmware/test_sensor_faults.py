"""If a sensor is absent, broken or of another type, the examples send no value and report the
fault.
"""

import re
import subprocess
from pathlib import Path

import pytest

from gateway.payload import senml
from hil.boards.exchange import Gateway, converse
from hil.boards.simulator import SimulatedBoard
from tests.firmware.bare import named

pytestmark = pytest.mark.sim

FIRMWARE = Path(__file__).parents[2] / "firmware"
SKETCHES = FIRMWARE.parent / "build" / "firmware" / "arduino" / "uno"
NAMES = ("thermometer", "battery", "ds18b20", "dht22", "own_payload")
ABSENT, SHORTED, GARBLED, RANGE, _UNSTEADY, OTHER, SEVERAL, UNMEASURED = range(1, 9)
QUANTITIES = {
    "thermometer": ["temperature"],
    "battery": ["voltage"],
    "ds18b20": ["temperature"],
    "dht22": ["temperature", "humidity"],
    "own_payload": ["contact"],
}
SECONDS = 40
DEGREES, PERCENT = 20, 40

BUS = [
    ("ds18b20", "open", ABSENT),
    ("ds18b20", "shorted", SHORTED),
    ("ds18b20", "swapped", OTHER),
    ("ds18b20", "contention", SEVERAL),
    ("ds18b20", "weak", RANGE),
    ("ds18b20", "restarts", UNMEASURED),
    ("dht22", "open", ABSENT),
    ("dht22", "shorted", SHORTED),
    ("dht22", "swapped", OTHER),
    ("dht22", "zeros", GARBLED),
    ("dht22", "soaked", RANGE),
    ("dht22", "garbled", GARBLED),
]


@pytest.fixture(scope="module", autouse=True)
def sketches() -> None:
    programs = [SKETCHES / f"{name}.hex" for name in NAMES]
    for folder, targets in ((FIRMWARE, programs), (FIRMWARE / "sim", [Path("all")])):
        relative = [path.relative_to(FIRMWARE.parent) for path in targets if path.is_absolute()]
        names = [f"../{path}" for path in relative] or ["all"]
        subprocess.run(["make", "-s", "-C", folder, *names], check=True)


def board(sketch: str, folder: Path) -> SimulatedBoard:
    return SimulatedBoard(
        folder / "board",
        firmware=named(SKETCHES / f"{sketch}.hex", "uno", folder),
        speed="step",
        ds18b20=DEGREES * 16 if sketch == "ds18b20" else None,
        dht22=(DEGREES * 10, PERCENT * 10) if sketch == "dht22" else None,
    )


def told(gateway: Gateway) -> list[list[tuple[str, float | None]]]:
    """Return the records of each publication: names without the board's name, and values."""
    return [
        [
            (record.name.removeprefix("roof-1:"), record.value)
            for record in senml.decode(item.payload)
        ]
        for item in gateway.deliveries
    ]


def fault(sketch: str, number: int) -> list[tuple[str, float | None]]:
    return [(f"{name}.fault", number) for name in QUANTITIES[sketch]]


@pytest.mark.few(5)
@pytest.mark.parametrize(("sketch", "name", "number"), BUS)
async def test_a_faulty_sensor_is_reported_once_and_sends_no_value_until_it_is_well(
    sketch: str, name: str, number: int, tmp_path: Path
) -> None:
    gateway = Gateway()
    async with board(sketch, tmp_path) as simulated:
        await simulated.sensor("dht22" if sketch == "dht22" else "ds18b20", name)
        await converse(simulated, gateway, completed=1, seconds=SECONDS)
        await converse(simulated, gateway, completed=2, seconds=SECONDS)
        assert told(gateway) == [fault(sketch, number)]
        await simulated.sensor("dht22" if sketch == "dht22" else "ds18b20", "well")
        await converse(simulated, gateway, completed=3, seconds=2 * SECONDS)
    _, well, values = told(gateway)
    assert well == fault(sketch, 0)
    assert [name for name, _ in values] == QUANTITIES[sketch]
    assert values[0][1] == DEGREES


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("sketch", "millivolts", "number"),
    [
        *(("thermometer", volts, RANGE) for volts in (0, 85, 1765, 2600, 3300, 5000)),
        ("battery", 5000, RANGE),
        ("own_payload", 0, SHORTED),
        ("own_payload", 5000, ABSENT),
    ],
)
async def test_impossible_voltage_is_reported(
    sketch: str, millivolts: int, number: int, tmp_path: Path
) -> None:
    gateway = Gateway()
    async with board(sketch, tmp_path) as simulated:
        await simulated.adc(0, millivolts)
        await converse(simulated, gateway, completed=2, seconds=SECONDS / 2)
    assert told(gateway) == [fault(sketch, number)]


async def test_a_sensor_that_breaks_later_is_reported_and_the_last_value_is_not_repeated(
    tmp_path: Path,
) -> None:
    gateway = Gateway()
    async with board("ds18b20", tmp_path) as simulated:
        await converse(simulated, gateway, completed=1)
        await simulated.sensor("ds18b20", "contention")
        await converse(simulated, gateway, completed=3, seconds=3 * 60)
    assert told(gateway) == [[("temperature", DEGREES)], fault("ds18b20", SEVERAL)]


@pytest.mark.parametrize("tenths", [-1, -53, -400])
async def test_a_clone_of_a_dht22_is_read_below_zero(tenths: int, tmp_path: Path) -> None:
    gateway = Gateway()
    firmware = named(SKETCHES / "dht22.hex", "uno", tmp_path)
    async with SimulatedBoard(
        tmp_path / "board", firmware=firmware, speed="step", dht22=(tenths, 402)
    ) as simulated:
        await simulated.sensor("dht22", "clone")
        await converse(simulated, gateway, completed=1)
    assert told(gateway) == [[("temperature", tenths / 10), ("humidity", 40.2)]]


def test_each_example_judges_its_sensor() -> None:
    for folder in (FIRMWARE / "examples").iterdir():
        text = "".join(path.read_text() for path in folder.iterdir())
        assert "ow_sensor_judge(" in text, folder.name
        assert "ow_sensor_told(" in text, folder.name


def test_the_numbers_of_faults_are_those_of_the_guide() -> None:
    header = (FIRMWARE / "src" / "ow_sensor.h").read_text()
    names = re.findall(r"    OW_SENSOR_([A-Z]+),", header[: header.index("OW_SENSOR_FAULTS")])
    guide = (FIRMWARE / "SENSORS.md").read_text()
    assert re.findall(r"^\| (\d) `([A-Z]+)` \|", guide, re.M) == [
        (str(number), name) for number, name in enumerate(names)
    ]
