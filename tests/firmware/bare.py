"""Build bare.c, a program that simulates a chip with only its UART, and run firmware in it against
a gateway.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from intelhex import IntelHex

from gateway.links.keys import NO_KEY
from hil.boards.exchange import Gateway
from hil.boards.simulator import BUILD
from provisioning.boards import board
from provisioning.identity import Identity

STEP_S = 0.001
SIM = BUILD.parents[1] / "firmware" / "sim"


def build(folder: Path) -> Path:
    flags, libraries = (
        subprocess.run(
            ["pkg-config", option, "simavr"], capture_output=True, text=True, check=True
        ).stdout.split()
        for option in ("--cflags", "--libs")
    )
    options = [
        "-std=c11",
        "-D_GNU_SOURCE",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        *(flag.replace("-I", "-isystem") for flag in flags),
    ]
    sources = [Path(__file__).with_suffix(".c"), SIM / "port.c"]
    program = folder / "bare"
    subprocess.run(["gcc", *options, "-I", SIM, "-o", program, *sources, *libraries], check=True)
    return program


def named(firmware: Path, kind: str, folder: Path) -> Path:
    """Write a copy of the firmware with the name `roof-1` in the identity page of this kind of
    board. Return its path.
    """
    image = IntelHex(str(firmware))
    image.puts(board(kind).identity, Identity("roof-1", NO_KEY).to_bytes())
    image.write_hex_file(str(folder / "patched.hex"))
    return folder / "patched.hex"


def run(
    chip: "subprocess.Popen[str]", gateway: Gateway, hz: int, seconds: float
) -> Iterator[float]:
    """Let the chip and the gateway exchange bytes, one millisecond of the chip's time after the
    other. Yield the time in seconds after each. hz: clock of the chip.
    """
    assert chip.stdin is not None
    assert chip.stdout is not None
    answer = b""
    for step in range(1, int(seconds / STEP_S)):
        chip.stdin.write(f"{int(hz * STEP_S)} {answer.hex() or '-'}\n")
        chip.stdin.flush()
        sent = chip.stdout.readline().strip()
        assert sent, "the chip has crashed"
        answer = gateway.receive(bytes.fromhex(sent.strip("-")), step * STEP_S)
        yield step * STEP_S
