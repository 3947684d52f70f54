"""Fixture with the sensor example as a program for this machine."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sensor() -> Path:
    """Build the sensor example for this machine. Return the program."""
    programs = ["../build/firmware/host/sensor", "../build/firmware/host/sensor-packs"]
    subprocess.run(["make", "-s", "-C", ROOT / "firmware", *programs], check=True)
    return ROOT / "build/firmware/host/sensor"
