"""PORTING.md is right: its command line works, it names each function, and its figures are those
that the size check measures.
"""

import re
import subprocess
from pathlib import Path

FIRMWARE = Path(__file__).parents[2] / "firmware"
PAGE = (FIRMWARE / "PORTING.md").read_text()


def test_the_line_that_the_page_gives_builds_a_board(tmp_path: Path) -> None:
    [line] = re.findall(r"^    (cc .*)$", PAGE, re.MULTILINE)
    program = tmp_path / "sensor"
    line = line.replace("-o sensor ", f"-Werror -Wall -o {program} ")
    subprocess.run(["sh", "-c", line], cwd=FIRMWARE, check=True)
    started = subprocess.run(
        [program, "--eeprom", tmp_path / "eeprom.bin"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert started.returncode == 0, "the line has ended, and so does the board"
    assert len((tmp_path / "eeprom.bin").read_bytes()) == 1024


def test_the_page_names_what_a_board_must_define_and_nothing_else() -> None:
    header = (FIRMWARE / "src" / "ow_hal.h").read_text()
    declared = set(re.findall(r"^[a-z].*?\b(ow_hal_\w+)\(", header, re.MULTILINE))
    rows = "".join(line for line in PAGE.splitlines() if line.startswith("| `ow_hal"))
    assert set(re.findall(r"`(ow_hal_\w+)`", rows)) == declared


def test_the_budgets_in_the_guides_are_those_that_the_size_check_holds() -> None:
    check = (FIRMWARE / "size.sh").read_text()
    [stack] = re.findall(r'"\$4" (\d+)$', check, re.MULTILINE)
    held = {
        build: f"{int(flash):,} / {ram} / {stack}"
        for build, flash, ram in re.findall(r"^judge (\S+) \S+ (\d+) (\d+)", check, re.MULTILINE)
    }
    table = (FIRMWARE / "README.md").read_text()
    for build, budget in held.items():
        [told] = re.findall(rf"^\| `{build}`.*? \| ([^|]*?) \|", table, re.MULTILINE)
        assert told == budget
    flash, ram, stack = held["serial"].split(" / ")
    needs = f"{flash} bytes of program memory, {ram} bytes of RAM and {stack} bytes of stack"
    assert needs in " ".join(PAGE.split())
