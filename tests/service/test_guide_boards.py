"""The lines of provisioning's guide that read and write a board run as they are written. The
guide's simulated board is at /tmp/uno and at /dev/ttyUSB0, in place of an Uno.

The test takes 40 s, because it writes the board as slowly as the boot loader does.
"""

import asyncio
import re
from pathlib import Path

import pytest

from tests.service.guide_lines import ROOT, lines
from tests.service.guide_machine import Machine
from tests.service.test_guide_commands import allowed

GUIDE = "provisioning/README.md"
ORDER = (
    ("build/firmware/sim/simboard", ""),
    (".venv/bin/onceway board probe", "uno: Arduino Uno R3"),
    (".venv/bin/onceway device add roof-1 --port", "roof-1 provisioned on /tmp/uno; it greets"),
    (".venv/bin/onceway device list", "ready"),
    (".venv/bin/onceway device update", "roof-1: has this firmware"),
    ("mosquitto_pub -p 1883 -t commands/roof-1", ""),
    (".venv/bin/onceway device log", "start, cause"),
)
"""Beginnings of the guides' lines, in the order in which a reader without a board runs them, each
with words of the line's output. The gateway runs from the line with the update on, and lends its
port to later commands.
"""

PORT = """
mkdir /run/dev /run/dev.work
mount --rbind /dev/pts /mnt
mount -t overlay none -o lowerdir=/dev,upperdir=/run/dev,workdir=/run/dev.work /dev
mount --move /mnt /dev/pts
mount -t tmpfs none /tmp
ln -s /tmp/uno /dev/ttyUSB0
sed -i 's|/dev/serial/by-id/[*]|/tmp/uno|' /etc/onceway/gateway.toml
"""
"""Give the machine its own /tmp, and a link as the board's port, like udev does."""


@pytest.mark.soak
@pytest.mark.sim
async def test_a_simulated_board_is_written_and_serves_by_the_lines_of_the_guide(
    tmp_path: Path,
) -> None:
    if not allowed():
        pytest.skip("needs the right to mount: run it as root")
    every = [one.text for one in lines(GUIDE, (ROOT / GUIDE).read_text())]
    machine = Machine(tmp_path / "machine")
    try:
        machine.root(PORT)
        for words, told in ORDER:
            (text,) = (one for one in every if one.startswith(words))
            if "update" in words:
                machine.root("chmod 666 $(readlink -f /tmp/uno)")
                await machine.start()
            if "device log" in words:
                assert machine.gateway is not None
                await machine.gateway.logged("roof-1 greets")
            code, said = await asyncio.to_thread(machine.line, text)
            assert (code, "Traceback" in said) == (0, False), f"{text}: {said[-600:]}"
            assert told in re.sub(r"\s+", " ", said), f"{text}: {said[-600:]}"
    finally:
        await machine.end()
