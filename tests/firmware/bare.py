"""bare.c, built. In: a folder. Out: the program: a chip with nothing around it but its UART."""

import subprocess
from pathlib import Path

from hil.board.simulator import BUILD

SIM = BUILD.parents[1] / "firmware" / "sim"


def build(folder: Path) -> Path:
    flags, libraries = (
        subprocess.run(["pkg-config", option, "simavr"], capture_output=True, text=True, check=True).stdout.split()
        for option in ("--cflags", "--libs")
    )
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", *(flag.replace("-I", "-isystem") for flag in flags)]
    sources = [Path(__file__).with_suffix(".c"), SIM / "port.c"]
    program = folder / "bare"
    subprocess.run(["gcc", *options, "-I", SIM, "-o", program, *sources, *libraries], check=True)
    return program
