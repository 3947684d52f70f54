"""The firmware folder as an Arduino library: its examples compile with Debian's Arduino core, and
what comes out works.
"""

import re
import subprocess
from pathlib import Path

import pytest

from gateway import senml
from hil.boards.exchange import Gateway, converse
from hil.boards.measure import measure
from hil.boards.simulator import SimulatedBoard
from hil.judge.senml import decode
from provisioning.boards import board, catalogue
from tests.firmware.bare import build, named, run
from tests.firmware.eeprom import with_interval

FIRMWARE = Path(__file__).parents[2] / "firmware"
CATEGORIES = {
    "Display",
    "Communication",
    "Signal Input/Output",
    "Sensors",
    "Device Control",
    "Timing",
    "Data Storage",
    "Data Processing",
    "Other",
}
SKETCHES = FIRMWARE.parent / "build" / "firmware" / "arduino"


@pytest.fixture(scope="module", autouse=True)
def sketches() -> None:
    for folder, target in ((FIRMWARE, "arduino"), (FIRMWARE / "sim", "all")):
        done = subprocess.run(
            ["make", "-s", "-j2", "-C", folder, target], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_example_is_built_for_every_board_of_the_core() -> None:
    """The core knows a Nano with an old boot loader by its upload speed only."""
    examples = {path.stem for path in FIRMWARE.glob("examples/*/*.ino")}
    assert examples == {path.name for path in (FIRMWARE / "examples").iterdir()}
    built = {(path.parent.name, path.stem) for path in SKETCHES.glob("*/*.hex")}
    assert built == {
        (board, example) for board in catalogue().keys() - {"nano-old"} for example in examples
    }


async def test_the_sensor_publishes_on_the_arduino_core() -> None:
    eeprom = with_interval(250)
    assert (await measure(SKETCHES / "uno" / "sensor.hex", 5, eeprom)).readings == 5


@pytest.mark.sim
@pytest.mark.parametrize(("millivolts", "degrees"), [(450, -5.1), (100, -40.3), (750, 24.7)])
async def test_the_thermometer_tells_degrees_below_zero(
    millivolts: int, degrees: float, tmp_path: Path
) -> None:
    """The simulated converter has 4.9 mV a step, as the real one has."""
    gateway = Gateway()
    firmware = named(SKETCHES / "uno" / "thermometer.hex", "uno", tmp_path)
    async with SimulatedBoard(tmp_path / "board", firmware=firmware, speed="step") as simulated:
        await simulated.adc(0, millivolts)
        await converse(simulated, gateway, completed=1)
    [reading] = decode(gateway.deliveries[0].payload) or ()
    assert reading.name == "roof-1:temperature"
    assert reading.value == pytest.approx(degrees, abs=0.5)
    assert round(reading.value, 1) == reading.value, "exact tenths"


@pytest.mark.sim
@pytest.mark.parametrize("sixteenths", [-80, -880, -1, 0, 2000, 85 * 16 + 1])
async def test_a_ds18b20_tells_degrees_below_zero(sixteenths: int, tmp_path: Path) -> None:
    """Its bus is simulated beside the chip, with the 85 degrees that it tells at first."""
    gateway = Gateway()
    firmware = named(SKETCHES / "uno" / "ds18b20.hex", "uno", tmp_path)
    async with SimulatedBoard(
        tmp_path / "board", firmware=firmware, speed="step", ds18b20=sixteenths
    ) as simulated:
        await converse(simulated, gateway, completed=1)
    [reading] = decode(gateway.deliveries[0].payload) or ()
    assert (reading.name, reading.value) == ("roof-1:temperature", sixteenths / 16)
    [taken] = senml.decode(gateway.deliveries[0].payload)
    assert (taken.value, taken.unit) == (sixteenths / 16, "Cel"), "as the table gets it"


@pytest.mark.sim
async def test_without_its_thermometer_it_sends_no_readings(tmp_path: Path) -> None:
    gateway = Gateway()
    firmware = named(SKETCHES / "uno" / "ds18b20.hex", "uno", tmp_path)
    async with SimulatedBoard(tmp_path / "board", firmware=firmware, speed="step") as simulated:
        await converse(simulated, gateway, completed=1, seconds=5)
    assert gateway.known
    assert gateway.deliveries == []


@pytest.mark.sim
@pytest.mark.parametrize(
    ("kind", "chip"),
    [("nano", "atmega328p"), ("pro-mini", "atmega328p"), ("mega2560", "atmega2560")],
)
def test_it_publishes_on_the_other_boards_under_its_name(
    kind: str, chip: str, tmp_path: Path
) -> None:
    gateway, hz = Gateway(), board(kind).clock
    command = [
        build(tmp_path),
        chip,
        str(hz),
        named(SKETCHES / kind / "sensor.hex", kind, tmp_path),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert any(gateway.completed >= 2 for _ in run(process, gateway, hz, 30))
    [first, *_] = decode(gateway.deliveries[0].payload) or ()
    assert first.name == "roof-1:boot"


def test_keywords_are_names_of_the_library() -> None:
    names = set(
        re.findall(r"\w+", "".join(path.read_text() for path in (FIRMWARE / "src").glob("*.h")))
    )
    for line in (FIRMWARE / "keywords.txt").read_text().splitlines():
        word, kind = line.split("\t")
        assert word in names
        assert kind in ("KEYWORD1", "KEYWORD2", "LITERAL1")


def test_the_library_says_what_it_is() -> None:
    properties = dict(
        line.split("=", 1) for line in (FIRMWARE / "library.properties").read_text().splitlines()
    )
    assert {
        "name",
        "version",
        "author",
        "maintainer",
        "sentence",
        "paragraph",
        "category",
        "url",
        "architectures",
    } <= properties.keys()
    assert (FIRMWARE / "src" / properties["includes"]).exists()
    assert all(properties.values())  # arduino-lint LP056 and its kin
    assert re.fullmatch(r"\d+\.\d+\.\d+", properties["version"])  # LP014
    assert re.fullmatch(r"https://[a-z.]+", properties["url"])  # LP041
    assert properties["sentence"] not in properties["paragraph"]  # LP036
    assert properties["category"] in CATEGORIES  # LP039
