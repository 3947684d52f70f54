"""The firmware that a job without --hex uses: the sensor example for its board, built first if that
is possible.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from intelhex import IntelHex

from gateway.errors import OncewayError
from provisioning.boards import board, catalogue
from provisioning.firmware import ROOT, hex_for

ONCEWAY = Path(sys.executable).with_name("onceway")


def test_missing_firmware_is_built(tmp_path: Path) -> None:
    for name in ("boards", "examples", "src", "Makefile"):
        (tmp_path / "firmware").mkdir(exist_ok=True)
        (tmp_path / "firmware" / name).symlink_to(ROOT / "firmware" / name)
    uno = board("uno")
    built = hex_for(uno, tmp_path)
    assert built == tmp_path / uno.hex_file
    assert IntelHex(str(built)).tobinstr() == IntelHex(str(ROOT / uno.hex_file)).tobinstr()


def test_failed_build_names_its_cause(tmp_path: Path) -> None:
    (tmp_path / "firmware").mkdir()
    (tmp_path / "firmware" / "Makefile").write_text("%.hex:\n\t@echo no compiler >&2; false\n")
    with pytest.raises(
        OncewayError, match=r"firmware: the firmware cannot be built \(no compiler\)"
    ):
        hex_for(board("uno"), tmp_path)


def test_installed_onceway_uses_its_bundled_firmware(tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match="no firmware for Arduino Nano, old boot loader"):
        hex_for(board("nano-old"), tmp_path)
    (tmp_path / "provisioning/hex").mkdir(parents=True)
    (tmp_path / "provisioning/hex/nano-old.hex").touch()
    assert hex_for(board("nano-old"), tmp_path) == tmp_path / "provisioning/hex/nano-old.hex"


def test_boards_command_lists_the_catalogue() -> None:
    done = subprocess.run(
        [ONCEWAY, "board", "list", "--json"], capture_output=True, text=True, timeout=30, check=True
    )
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    kinds = {"uno", "uno-lora", "nano", "nano-old", "mega2560", "pro-mini", "pro-mini-5v"}
    assert set(rows) == set(catalogue()) == kinds
    nano = rows["nano-old"]
    assert (nano["chip"], nano["clock"], nano["programmer"], nano["baud"]) == (
        "m328p",
        16_000_000,
        "arduino",
        57_600,
    )
    assert all(row["usb"] for row in rows.values())


def test_the_guide_has_a_row_for_each_board_of_the_catalogue() -> None:
    guide = (ROOT / "provisioning/README.md").read_text()
    table = guide.partition("## Boards and firmware")[2]
    described = dict(re.findall(r"^\| `([\w-]+)` \| `([^`]+)` \|", table, re.MULTILINE))
    assert described.keys() == catalogue().keys()
    for name, told in described.items():
        known = catalogue()[name]
        assert told in (known.firmware, f"{known.firmware}/{known.example}.hex"), name
