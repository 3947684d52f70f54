"""The C parser under AddressSanitizer and UndefinedBehaviorSanitizer, with random operations; `make soak` does the same with libFuzzer."""

import subprocess
from pathlib import Path

import pytest

from tests.links.twin import BUFFERS, SOURCES

HERE = Path(__file__).parent


@pytest.mark.parametrize("buffers", BUFFERS)
def test_the_c_link_survives_random_operations(buffers: tuple[int, int, int], tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    files = [HERE / "fuzz_link.c", HERE / "fuzz_main.c", *(SOURCES / f"ow_{name}.c" for name in ("link", "frame", "crc", "bytes"))]
    sizes = [f"-D{name}={size}" for name, size in zip(("OW_LINK_RX_MTU", "OW_LINK_WINDOW", "OW_LINK_TX_SIZE"), buffers, strict=True)]
    checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", "-std=c11", "-O1", "-g", *checks, *sizes, f"-I{SOURCES}", "-o", program, *files], check=True)
    ran = subprocess.run([program, "1", "20000"], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
