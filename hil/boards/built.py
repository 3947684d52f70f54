"""Checks that the firmware and the simulated board were built from the present sources.

In: the repository, and targets of its `firmware/Makefile`. Out: nothing, or an error that says what
to do. `make -q` compares times only, so it takes 10 ms and needs no compiler.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

from gateway.errors import OncewayError

ROOT = Path(__file__).resolve().parents[2]
_OUT_OF_DATE = 1
"""Exit code of `make -q` if a target is out of date. Other codes are accepted: without make or a
Makefile, there are no sources to compare with the build.
"""
_OF_AN_OUTER_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"}


@cache
def check_built(*targets: str, root: Path = ROOT) -> None:
    """Raise OncewayError if one of these builds is missing or older than its sources.

    targets: files below `build/firmware`, such as `uno/sensor.hex`; if there are none, everything
    that `make firmware` builds. The simulated board is always checked.
    """
    paths = [f"../build/firmware/{target}" for target in targets]
    environment = {key: value for key, value in os.environ.items() if key not in _OF_AN_OUTER_MAKE}
    for folder, wanted in (("firmware", paths), ("firmware/sim", [])):
        command = ["make", "--question", "--silent", "--directory", str(root / folder), *wanted]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        if done.returncode == _OUT_OF_DATE:
            raise OncewayError(
                f"the build of {folder} is missing or older than its sources",
                str(root / "build" / "firmware"),
                "Run `make firmware`",
            )
