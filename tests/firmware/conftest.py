"""Builds the host boards once."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sensor() -> Path:
    """Return the sensor example as a program of this machine."""
    programs = ["../build/firmware/host/sensor", "../build/firmware/host/sensor-packs"]
    subprocess.run(["make", "-s", "-C", ROOT / "firmware", *programs], check=True)
    return ROOT / "build/firmware/host/sensor"
