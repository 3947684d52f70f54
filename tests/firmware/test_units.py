"""The C tests of the firmware, built with the address and undefined-behaviour sanitizers."""

import subprocess
from pathlib import Path

import pytest

FIRMWARE = Path(__file__).parents[2] / "firmware"
NAMES = (
    "vectors lora packet link journal clock log client flights aside aside-flights forgotten"
    " forgotten-flights session refusals volatile sensor memory client-memory forgotten-memory"
    " aside-memory"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_unit(name: str) -> None:
    done = subprocess.run(
        ["make", "-s", "-C", FIRMWARE, f"test-{name}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
