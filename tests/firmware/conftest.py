"""Builds the host board once."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sensor() -> Path:
    """The sensor example as a program of this machine."""
    subprocess.run(["make", "-s", "-C", ROOT / "firmware", "../build/firmware/host/sensor"], check=True)
    return ROOT / "build/firmware/host/sensor"
