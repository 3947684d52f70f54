"""The library as a ZIP file for the Arduino IDE."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRMWARE = ROOT / "firmware"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the library as the Arduino IDE does. Return its folder."""
    subprocess.run(["make", "-s", "-C", FIRMWARE, "dist"], check=True, stdout=subprocess.DEVNULL)
    version = json.loads((FIRMWARE / "library.json").read_text())["version"]
    folder = tmp_path_factory.mktemp("libraries")
    with zipfile.ZipFile(ROOT / "build" / "dist" / f"Onceway-{version}.zip") as archive:
        archive.extractall(folder)
    assert [path.name for path in folder.iterdir()] == ["Onceway"], "one folder, as the IDE wants"
    return folder / "Onceway"


def test_the_zip_is_an_arduino_library(library: Path) -> None:
    assert {path.name for path in library.iterdir()} == {
        "JOURNAL.md",
        "LICENSE",
        "PORTING.md",
        "README.md",
        "SENSORS.md",
        "examples",
        "keywords.txt",
        "library.json",
        "library.properties",
        "src",
    }
    assert (library / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    examples = {path.parent.name for path in library.glob("examples/*/*.ino")}
    assert examples == {path.name for path in (FIRMWARE / "examples").iterdir()}


def test_library_compiles_by_itself(library: Path, tmp_path: Path) -> None:
    flags = ["-mmcu=atmega328p", "-DF_CPU=16000000UL", "-Os", "-std=gnu11", "-Wall", "-Werror"]
    command = ["avr-gcc", *flags, "-c", *map(str, library.glob("src/*.c"))]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_both_descriptions_agree(library: Path) -> None:
    described = json.loads((library / "library.json").read_text())
    lines = (library / "library.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert (described["name"], described["version"]) == (properties["name"], properties["version"])
    assert described["headers"] == [properties["includes"]]
