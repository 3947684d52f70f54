"""On chips that the library does not support, the build fails with an error that gives advice."""

import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "firmware" / "src"


def compile_for(chip: str, *defines: str) -> "subprocess.CompletedProcess[str]":
    command = ["avr-gcc", "-std=gnu11", f"-mmcu={chip}", "-DF_CPU=16000000UL", "-Os"]
    command += [f"-D{define}" for define in defines]
    command += ["-fsyntax-only", "-I", str(SOURCES), str(SOURCES / "ow_journal.c")]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("chip", "defines", "told"),
    [
        ("atmega168", ["OW_IDENTITY_PAGE=0x3D80"], "EEPROM is too small"),
        ("atmega168", ["OW_JOURNAL_SLOTS=28"], "OW_IDENTITY_PAGE"),
        ("atmega32u4", ["OW_IDENTITY_PAGE=0x6F80"], "Leonardo"),
        ("atmega1284p", [], "OW_IDENTITY_PAGE"),
    ],
)
def test_a_chip_without_room_or_a_known_page_is_refused(
    chip: str, defines: list[str], told: str
) -> None:
    done = compile_for(chip, *defines)
    assert done.returncode != 0
    assert told in done.stderr


@pytest.mark.parametrize(
    ("chip", "defines"),
    [
        ("atmega328p", []),
        ("atmega2560", []),
        ("atmega168", ["OW_IDENTITY_PAGE=0x3D80", "OW_JOURNAL_SLOTS=28"]),
    ],
)
def test_advice_of_the_message_is_enough(chip: str, defines: list[str]) -> None:
    done = compile_for(chip, *defines)
    assert done.returncode == 0, done.stderr
