"""The C parsers under AddressSanitizer and UndefinedBehaviorSanitizer, with random inputs. `make
soak` does the same with libFuzzer.
"""

import subprocess
from pathlib import Path

import pytest

from tests.links.fuzz import HERE, TARGETS, Target
from tests.links.twin import SOURCES


@pytest.mark.few(3)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_c_side_survives_random_inputs(target: Target, tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    checks = [
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]
    files = [HERE / "fuzz_main.c", *target.files]
    subprocess.run(
        [
            "gcc",
            "-std=c11",
            "-O1",
            "-g",
            *checks,
            *target.sizes,
            f"-I{SOURCES}",
            "-o",
            program,
            *files,
        ],
        check=True,
    )
    ran = subprocess.run(
        [program, "1", "20000"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
