"""Each board of the catalogue has a firmware that ends below its identity page and finds its name
there. The Uno and similar boards run in the simulated board. Other chips and clocks run in a
simulator of only the chip (bare.c).
"""

import subprocess
from pathlib import Path

import pytest
from intelhex import IntelHex

from hil.boards.exchange import Gateway, converse
from hil.boards.simulator import BUILD, SimulatedBoard
from hil.judge.senml import decode
from provisioning.boards import board, catalogue
from tests.firmware.bare import build, named, run


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_the_build_ends_below_the_identity_page(name: str) -> None:
    end = IntelHex(str(BUILD.parents[1] / board(name).hex_file)).maxaddr()
    assert end is not None
    assert end < board(name).identity < board(name).application_end


@pytest.mark.sim
@pytest.mark.parametrize("name", ["uno", "nano", "nano-old"])
async def test_board_finds_its_name(name: str, tmp_path: Path) -> None:
    gateway = Gateway()
    async with SimulatedBoard(
        tmp_path / "board",
        firmware=named(BUILD.parents[1] / board(name).hex_file, name, tmp_path),
        speed="step",
    ) as simulated:
        await converse(simulated, gateway, completed=1)
    [first, *_] = decode(gateway.deliveries[0].payload) or ()
    assert first.name == "roof-1:boot"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("bare"))


@pytest.mark.sim
@pytest.mark.parametrize(("name", "chip"), [("mega2560", "atmega2560"), ("pro-mini", "atmega328p")])
def test_another_chip_or_clock_publishes_and_obeys(
    bare: Path, name: str, chip: str, tmp_path: Path
) -> None:
    """The board uses its own name, publishes at QoS 2, keeps an interval in its EEPROM, and
    executes a reboot command once.
    """
    gateway = Gateway(commands=(b"interval 300 force", b"reboot"))
    hz = board(name).clock
    command: list[str | Path] = [
        bare,
        chip,
        str(hz),
        named(BUILD.parents[1] / board(name).hex_file, name, tmp_path),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        end = next(
            time
            for time in run(process, gateway, hz, 30)
            if gateway.obeyed == 2 and gateway.completed >= 12
        )
    records = [
        record for delivery in gateway.deliveries for record in decode(delivery.payload) or ()
    ]
    assert [delivery.sequence for delivery in gateway.deliveries] == list(
        range(1, len(gateway.deliveries) + 1)
    )
    boots = [record.value for record in records if record.name == "roof-1:boot"]
    assert list(dict.fromkeys(boots)) == [1, 2], "the command for the interval is answered, too"
    assert sum(record.name == "roof-1:adc0" for record in records) >= 8
    assert end < 10, "the interval was set"
