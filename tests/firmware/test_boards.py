"""Each board of the catalogue has a firmware that fits below its identity page, and those of the simulated chip find their name there."""

from pathlib import Path

import pytest
from intelhex import IntelHex

from hil.board.exchange import Gateway, converse
from hil.board.simulator import BUILD, SimulatedBoard
from hil.senml import decode
from provisioning.boards import board, catalogue
from provisioning.identity import Identity


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_the_build_ends_below_the_identity_page(name: str) -> None:
    end = IntelHex(str(BUILD.parents[1] / board(name).hex_file)).maxaddr()
    assert end is not None
    assert end < board(name).identity < board(name).application_end


@pytest.mark.sim
@pytest.mark.parametrize("name", ["uno", "nano", "nano-old"])
async def test_it_finds_its_name(name: str, tmp_path: Path) -> None:
    image = IntelHex(str(BUILD.parents[1] / board(name).hex_file))
    image.puts(board(name).identity, Identity.create("roof-1").to_bytes())
    image.write_hex_file(str(tmp_path / "patched.hex"))
    gateway = Gateway()
    async with SimulatedBoard(tmp_path / "board", firmware=tmp_path / "patched.hex", speed="step") as simulated:
        await converse(simulated, gateway, completed=1)
    [first, *_] = decode(gateway.deliveries[0].payload) or ()
    assert first.name == "roof-1:boot"
