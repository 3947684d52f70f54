"""A bench on a board that the rig did not start: a simulated Uno in its own process. The rig knows
its serial port, and switches its power by the real labgrid. avrdude and Optiboot work as on a real
board.

In: the simulated board and labgrid (`make hil` puts it into build/labgrid). Out: runs that hold.
`python -m pytest tests/hil/real.py`.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hil.boards.simulator import SimulatedBoard
from hil.observe.history import read
from hil.programs.site import onceway

LABGRID = Path(__file__).parents[2] / "build" / "labgrid"
SWITCH = """\
import os, socket, sys
os.chdir(sys.argv[1])
control = socket.socket(socket.AF_UNIX)
control.connect("control")
control.send(f"power {sys.argv[2]}\\n".encode())
sys.exit(not control.recv(999).startswith(b'{"ok":true'))
"""
BENCH = """\
title = "A board that is nobody's"
until = "batch"
readings = 16

[[board]]
port = "{port}"
power = {{ labgrid = "{lab}" }}

[[fault]]
kind = "line-noise"
rate = 0.003

[[fault]]
kind = "line-cut"

[[fault]]
kind = "board-reset"

[[fault]]
kind = "board-switched-off"

[[fault]]
kind = "gateway-kill"
"""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Path]:
    """Write the bench file for a simulated board that has only its boot loader. Yield the path of
    the file.
    """
    (tmp_path / "switch.py").write_text(SWITCH)
    turn = f"{sys.executable} {tmp_path / 'switch.py'} {tmp_path / 'uno'}"
    driver = f'{{ExternalPowerDriver: {{cmd_on: "{turn} on", cmd_off: "{turn} off"}}}}'
    (tmp_path / "lab.yaml").write_text(f"targets: {{main: {{drivers: {driver}}}}}\n")
    async with SimulatedBoard(tmp_path / "uno") as board:
        (tmp_path / "bench.toml").write_text(
            BENCH.format(port=board.port, lab=tmp_path / "lab.yaml")
        )
        yield tmp_path / "bench.toml"


async def test_a_foreign_board_twice(bench: Path) -> None:
    """The second run finds the data of the first run in the EEPROM, and erases it."""
    for number in (1, 2):
        place = bench.parent / f"run-{number}"
        argv = [onceway(), "hil", "run", str(bench), "--keep", "--dir", str(place)]
        path = os.pathsep.join([str(LABGRID), os.environ.get("PYTHONPATH", "")])
        run = await asyncio.create_subprocess_exec(
            *argv, env={**os.environ, "PYTHONPATH": path}, stdout=PIPE, stderr=STDOUT
        )
        said, _ = await run.communicate()
        assert run.returncode == 0, said.decode()
        report = json.loads((place / "report.json").read_text())
        assert report["readings"]["produced"] >= 16
        assert report["faults"]["happened"] == {
            "line noise": 1,
            "line cut": 1,
            "reset by DTR": 1,
            "power switched off": 1,
            "kill -9 of the gateway": 1,
        }
        sequences = [
            event.data["sequence"]
            for event in read(place / "history.jsonl")
            if (event.hop, event.event) == ("board", "publication")
        ]
        assert sorted(sequences) == list(range(1, len(sequences) + 1))
