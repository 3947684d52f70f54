"""A Nano as it was sold for years: another boot loader, another address of the identity page, another build of the firmware."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from intelhex import IntelHex

from hil.board.simulator import BUILD, SimulatedBoard
from provisioning.boards import board
from provisioning.identity import SIZE, Identity

ATMEGABOOT = Path("/usr/share/arduino/hardware/arduino/avr/bootloaders/atmega/ATmegaBOOT_168_atmega328.hex")
"""Of Debian's package arduino-core-avr: the boot loader as it is on those boards."""
NANO = board("nano-old")
HEX = BUILD / NANO.firmware / "sensor.hex"


@pytest.mark.sim
async def test_from_a_bare_old_nano_to_its_first_greeting(tmp_path: Path) -> None:
    first = min(IntelHex(str(ATMEGABOOT)).addresses())
    assert first == NANO.application_end
    async with SimulatedBoard(tmp_path, bootloader=ATMEGABOOT) as nano:
        command = ["device", "add", "roof-1", "--board", "nano-old", "--port", str(nano.port), "--hex", str(HEX), "--json"]
        done = subprocess.run(  # noqa: ASYNC221  # the board is a process of its own
            [Path(sys.executable).with_name("onceway"), *command],
            env=os.environ | {"ONCEWAY_REGISTRY": str(tmp_path / "registry.db")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["name"], said["board"], said["status"]) == ("roof-1", "nano-old", "ready")
        page = nano.flash_image.read_bytes()[NANO.identity : NANO.identity + SIZE]
        identity = Identity.from_bytes(page)
        assert identity is not None
        assert identity.name == "roof-1"
