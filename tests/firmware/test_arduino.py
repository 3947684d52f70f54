"""The firmware folder as an Arduino library: its examples compile with Debian's Arduino core, and
the compiled examples work.
"""

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.links.greeter import Greeter
from gateway.links.roles import GatewayLink
from gateway.payload import senml
from hil.boards.exchange import INCARNATION, Gateway, converse
from hil.boards.measure import measure
from hil.boards.simulator import HZ, SimulatedBoard
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


BOARDS = ["mega2560", *(pytest.param(one, marks=pytest.mark.soak) for one in ("nano", "pro-mini"))]
"""The boards of the core beside the Uno. `make test` builds for the one with another chip."""


def make(folder: Path, *targets: str) -> None:
    command = ["make", "-s", "-j2", "-C", folder, *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def sketches() -> None:
    make(FIRMWARE, "arduino", "ARDUINO_BOARDS=uno")
    make(FIRMWARE / "sim", "all")


@pytest.mark.parametrize("kind", ["uno", *BOARDS])
def test_every_example_is_built_for_every_board_of_the_core(kind: str) -> None:
    examples = {path.stem for path in FIRMWARE.glob("examples/*/*.ino")}
    assert examples == {path.name for path in (FIRMWARE / "examples").iterdir()}
    make(FIRMWARE, "arduino", f"ARDUINO_BOARDS={kind}")
    assert {path.stem for path in (SKETCHES / kind).glob("*.hex")} == examples


def test_boards_without_a_build_of_their_own_are_three() -> None:
    """`nano-old` differs from `nano` only in its upload speed, `pro-mini-5v` has the pins of
    `nano`, and `uno-lora` is not a board of the core.
    """
    makefile = (FIRMWARE / "Makefile").read_text()
    (boards,) = re.findall(r"^ARDUINO_BOARDS := (.*)", makefile, re.MULTILINE)
    assert {*boards.split()} == catalogue().keys() - {"nano-old", "pro-mini-5v", "uno-lora"}


async def test_the_sensor_publishes_on_the_arduino_core() -> None:
    eeprom = with_interval(250)
    assert (await measure(SKETCHES / "uno" / "sensor.hex", 5, eeprom)).readings == 5


@pytest.mark.sim
@pytest.mark.parametrize(("millivolts", "degrees"), [(450, -5.1), (100, -40.3), (750, 24.7)])
async def test_the_thermometer_tells_degrees_below_zero(
    millivolts: int, degrees: float, tmp_path: Path
) -> None:
    """The simulated ADC has steps of 4.9 mV, like the real one."""
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
@pytest.mark.parametrize("sixteenths", [-80, -880, -1, 0, 2000, 85 * 16, 85 * 16 + 1])
async def test_a_ds18b20_tells_degrees_below_zero(sixteenths: int, tmp_path: Path) -> None:
    """Like a real DS18B20, the simulated one reports 85 degrees after power-on until its first
    measurement.
    """
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
@pytest.mark.parametrize(("sketch", "degrees"), [("ds18b20", -5.0), ("dht22", -5.3)])
async def test_two_thermometers_beside_each_other_do_not_disturb(
    sketch: str, degrees: float, tmp_path: Path
) -> None:
    gateway = Gateway()
    firmware = named(SKETCHES / "uno" / f"{sketch}.hex", "uno", tmp_path)
    async with SimulatedBoard(
        tmp_path / "board", firmware=firmware, speed="step", ds18b20=-80, dht22=(-53, 402)
    ) as simulated:
        await converse(simulated, gateway, completed=1)
    [temperature, *_] = senml.decode(gateway.deliveries[0].payload)
    assert temperature.value == degrees


@pytest.mark.sim
@pytest.mark.parametrize(("degrees", "percent"), [(-5.3, 40.2), (-40.0, 0.0), (0.0, 99.9), (80, 7)])
async def test_a_dht22_tells_two_values_in_one_reading(
    degrees: float, percent: float, tmp_path: Path
) -> None:
    """The sensor sends its bits while the serial link is busy. The UART's interrupt must not make
    the library misread these bits.
    """
    gateway = Gateway()
    firmware = named(SKETCHES / "uno" / "dht22.hex", "uno", tmp_path)
    both = round(degrees * 10), round(percent * 10)
    async with SimulatedBoard(
        tmp_path / "board", firmware=firmware, speed="step", dht22=both
    ) as simulated:
        await converse(simulated, gateway, completed=1)
    taken = senml.decode(gateway.deliveries[0].payload)
    assert [(one.name, one.value, one.unit) for one in taken] == [
        ("roof-1:temperature", degrees, "Cel"),
        ("roof-1:humidity", percent, "%RH"),
    ]


UTC = 1_767_225_600
EVERY_S_HURRIED = 3


def hurried(sketch: str, folder: Path) -> Path:
    """Build an example that measures every three seconds, and return its HEX file. With the normal
    interval, the simulation would take minutes to fill the journal.
    """
    built = folder / "build" / "arduino" / "uno"
    built.mkdir(parents=True)
    shutil.copy2(SKETCHES / "uno" / "core.a", built)
    hurry = f"DEFINES=-DEVERY_MS={EVERY_S_HURRIED}000UL"
    make(FIRMWARE, f"BUILD={folder}/build", hurry, f"{built}/{sketch}.hex")
    return named(built / f"{sketch}.hex", "uno", folder)


@pytest.mark.sim
@pytest.mark.parametrize(
    "sketch",
    ["thermometer", *(pytest.param(one, marks=pytest.mark.soak) for one in ("ds18b20", "dht22"))],
)
async def test_a_full_journal_is_no_burst_and_the_gap_is_reported(
    sketch: str, tmp_path: Path
) -> None:
    """The gateway is away for 80 readings. The journal has 60 slots."""
    gateway = Gateway()
    async with SimulatedBoard(
        tmp_path / "board",
        firmware=hurried(sketch, tmp_path),
        speed="step",
        ds18b20=80 if sketch == "ds18b20" else None,
        dht22=(50, 400) if sketch == "dht22" else None,
    ) as simulated:
        greeter = Greeter(
            1, incarnation=lambda: INCARNATION, utc=lambda: UTC + simulated.cycle / HZ
        )
        gateway.link = GatewayLink(greeter, 115_200)
        await simulated.adc(0, 750)
        await converse(simulated, gateway, completed=3)
        for _ in range(80):
            await simulated.run(EVERY_S_HURRIED * HZ)
        await converse(simulated, gateway, completed=70, seconds=60)
    records = [decode(delivery.payload) or () for delivery in gateway.deliveries]
    assert len(records) == 70
    times = [first.time for first, *_ in records[2:]]
    steps = [after - before for before, after in itertools.pairwise(times)]
    assert min(steps) >= EVERY_S_HURRIED - 1, "no burst"
    [gap] = [step for step in steps if step > EVERY_S_HURRIED + 1]
    told = [record.value for each in records for record in each if record.name.endswith("missed")]
    assert gap > 10 * EVERY_S_HURRIED
    if sketch == "dht22":
        assert told == []
    else:
        [missed] = told
        assert missed == pytest.approx(gap / EVERY_S_HURRIED - 1, abs=1)
    assert all(3 <= first.error <= 5 for first, *_ in records[2:])


SLEEP_S, EVERY_S = 8.192, 600


def told_once(board: SimulatedBoard) -> Callable[[], float]:
    """Return a clock for the gateway that knows the time only in the first seconds. The board must
    then keep the time by itself.
    """
    told: list[float] = []

    def utc() -> float:
        told.append(board.cycle / HZ)
        return UTC + told[0] if told[-1] - told[0] < 5 else 0

    return utc


@pytest.mark.sim
async def test_a_battery_node_sleeps_in_power_down_and_knows_the_time_when_it_wakes(
    tmp_path: Path,
) -> None:
    """The board's millisecond clock stops during sleep, so the sketch tells the library how long it
    slept.
    """
    gateway = Gateway()
    firmware = named(SKETCHES / "uno" / "battery.hex", "uno", tmp_path)
    async with SimulatedBoard(tmp_path / "board", firmware=firmware, speed="step") as simulated:
        gateway.link = GatewayLink(
            Greeter(1, incarnation=lambda: INCARNATION, utc=told_once(simulated)), 115_200
        )
        arrived = []
        for count in range(1, 5):
            await converse(simulated, gateway, completed=count, seconds=EVERY_S + 2 * SLEEP_S)
            arrived.append(UTC + simulated.cycle / HZ)
        await simulated.run(10 * HZ)
        assert (await simulated.stats()).asleep
    readings = [senml.decode(delivery.payload)[0] for delivery in gateway.deliveries]
    records = [(decode(delivery.payload) or ())[0] for delivery in gateway.deliveries]
    assert [reading.unit for reading in readings] == ["V"] * 4
    for number, (record, moment) in enumerate(zip(records, arrived, strict=True)):
        assert record.time is not None
        assert record.time == pytest.approx(moment, abs=3)
        # a tenth of the sleep, plus what every board reports: 3 s, and half a percent of the time
        assert record.error == pytest.approx(number * EVERY_S * 0.105 + 3, abs=7)


@pytest.mark.sim
async def test_a_battery_node_does_not_wait_for_a_gateway_that_is_away(tmp_path: Path) -> None:
    firmware = named(SKETCHES / "uno" / "battery.hex", "uno", tmp_path)
    async with SimulatedBoard(tmp_path / "board", firmware=firmware, speed="step") as simulated:
        await simulated.run(int(4.5 * HZ))
        awake = (await simulated.stats()).tx
        await simulated.run(20 * HZ)
        tired = (await simulated.stats()).tx
        assert awake > 0
        await simulated.run(500 * HZ)
        stats = await simulated.stats()
        assert (stats.asleep, stats.tx) == (True, tired), "it does not greet in its sleep"
        gateway = Gateway()
        await converse(simulated, gateway, completed=2, seconds=EVERY_S)
    assert gateway.completed == 2, "the first one waited in the journal"


@pytest.mark.sim
@pytest.mark.parametrize("kind", BOARDS)
def test_sketch_publishes_on_other_boards_under_its_name(kind: str, tmp_path: Path) -> None:
    make(FIRMWARE, "arduino", f"ARDUINO_BOARDS={kind}")
    gateway, hz = Gateway(), board(kind).clock
    command = [
        build(tmp_path),
        "atmega2560" if kind == "mega2560" else "atmega328p",
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


def test_library_properties_are_complete() -> None:
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


@pytest.mark.sim
@pytest.mark.soak
async def test_count_of_missed_samples_ends_at_255(tmp_path: Path) -> None:
    """The gateway is away for 400 readings, and the count has one byte."""
    gateway = Gateway()
    async with SimulatedBoard(
        tmp_path / "board", firmware=hurried("thermometer", tmp_path), speed="step"
    ) as simulated:
        gateway.link = GatewayLink(Greeter(1, incarnation=lambda: INCARNATION), 115_200)
        await simulated.adc(0, 750)
        await converse(simulated, gateway, completed=3)
        for _ in range(400):
            await simulated.run(EVERY_S_HURRIED * HZ)
        await converse(simulated, gateway, completed=70, seconds=60)
    records = [record for one in gateway.deliveries for record in decode(one.payload) or ()]
    assert [one.value for one in records if one.name.endswith("missed")] == [255]
