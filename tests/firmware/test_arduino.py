"""The firmware folder as an Arduino library: its examples compile with Debian's Arduino core, and what comes out works."""

import re
import subprocess
from pathlib import Path

import pytest

from hil.board.measure import measure

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
        done = subprocess.run(["make", "-s", "-C", folder, target], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_example_is_built() -> None:
    examples = {path.stem for path in FIRMWARE.glob("examples/*/*.ino")}
    assert examples == {path.name for path in (FIRMWARE / "examples").iterdir()}
    assert examples == {path.stem for path in SKETCHES.glob("*.hex")}


async def test_the_sensor_publishes_on_the_arduino_core() -> None:
    assert (await measure(SKETCHES / "sensor.hex", 5)).readings == 5


def test_keywords_are_names_of_the_library() -> None:
    names = set(re.findall(r"\w+", "".join(path.read_text() for path in (FIRMWARE / "src").glob("*.h"))))
    for line in (FIRMWARE / "keywords.txt").read_text().splitlines():
        word, kind = line.split("\t")
        assert word in names
        assert kind in ("KEYWORD1", "KEYWORD2", "LITERAL1")


def test_the_library_says_what_it_is() -> None:
    properties = dict(line.split("=", 1) for line in (FIRMWARE / "library.properties").read_text().splitlines())
    assert {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures"} <= properties.keys()
    assert (FIRMWARE / "src" / properties["includes"]).exists()
    assert all(properties.values())  # arduino-lint LP056 and its kin
    assert re.fullmatch(r"\d+\.\d+\.\d+", properties["version"])  # LP014
    assert re.fullmatch(r"https://[a-z.]+", properties["url"])  # LP041
    assert properties["sentence"] not in properties["paragraph"]  # LP036
    assert properties["category"] in CATEGORIES  # LP039
