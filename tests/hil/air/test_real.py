"""A bench with a board and a modem that the rig did not start: a simulated Uno with a radio and a
KISS modem, in an ether of their own. The rig knows only the two ports.
"""

import asyncio
import json
import os
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from hil.boards.simulator import Air, SimulatedBoard
from hil.observe.history import read
from hil.programs.site import onceway
from tests.hil.air.radio_site import RadioSite

pytestmark = pytest.mark.sim

BENCH = """\
title = "A radio board that is nobody's"
until = "batch"
boards = 0
readings = 8
interval_ms = 2000

[air]
modem = "{modem}"

[[board]]
port = "{port}"
kind = "uno-lora"
link = "lora"

[[fault]]
kind = "gateway-kill"
between = [0.3, 0.5]
"""


@pytest.mark.soak
async def test_a_foreign_board_by_a_foreign_modem(tmp_path: Path) -> None:
    site = RadioSite(tmp_path)
    await site.begin()
    place = tmp_path / "uno"
    place.mkdir()
    try:
        air = Air(tmp_path / "air.socket", "somebody", (100.0, 0.0))
        async with SimulatedBoard(place, air=air) as board:
            bench = tmp_path / "bench.toml"
            bench.write_text(BENCH.format(modem=tmp_path / "modem", port=board.port))
            argv = [onceway(), "hil", "run", str(bench), "--keep", "--dir", str(tmp_path / "run")]
            run = await asyncio.create_subprocess_exec(
                *argv, env=dict(os.environ), stdout=PIPE, stderr=STDOUT
            )
            out, _ = await asyncio.wait_for(run.communicate(), 420)
    finally:
        code, report = await site.end()
    assert run.returncode == 0, out.decode()
    assert code == 0, report["breaches"]
    events = read(tmp_path / "run" / "history.jsonl")
    radios = {one.data["line"]: one.data for one in events if one.event == "radio"}
    assert radios["real-1"]["sent"] > 8
    assert radios["gateway"]["airtime"] > 0
    told = json.loads((tmp_path / "run" / "report.json").read_text())
    assert told["verdict"] == "holds"
