"""The library has one header for programs. The header documents each function."""

import re
import subprocess
from pathlib import Path

import pytest

FIRMWARE = Path(__file__).parents[2] / "firmware"
PUBLIC = "Onceway.h"
SHOWN = ("Onceway.h", "ow_bytes.h", "ow_hal.h", "ow_sensor.h")
"""Onceway.h and the headers for programs that it includes. The client's state is not in them."""
APART = {"ow_sketch.h", "ow_crc.h"}
"""Headers that examples may include as well: `setup` and `loop` without an Arduino core, and the
CRC for the sensor's own EEPROM cells.
"""


@pytest.mark.parametrize("example", sorted(path.name for path in (FIRMWARE / "examples").iterdir()))
def test_an_example_includes_no_other_header_of_the_library(example: str) -> None:
    folder = FIRMWARE / "examples" / example
    named = {
        name
        for path in folder.iterdir()
        for name in re.findall(r'#include [<"]([^>"]+)', path.read_text())
    }
    ours = {path.name for path in (FIRMWARE / "src").glob("*.h")}
    assert PUBLIC in named
    assert named & ours - APART == {PUBLIC}


def test_an_example_touches_no_state_of_the_client() -> None:
    for path in (FIRMWARE / "examples").glob("*/*"):
        assert not re.search(r"\bclient\.", path.read_text()), path


def test_each_function_has_a_comment_of_its_own() -> None:
    declared = []
    for header in SHOWN:
        text = re.sub(
            r"#else /\* the calls.*?#endif\n",
            "",
            (FIRMWARE / "src" / header).read_text(),
            flags=re.S,
        )
        for comment, name in re.findall(
            r"(/\*\*(?:(?!\*/).)*\*/\n)?^(?:[a-z][\w ]*[ *])(ow_\w+)\((?!\))[^;{]*[;{]?",
            text,
            re.M | re.S,
        ):
            declared.append(name)
            assert comment, f"{header}: {name}"
    assert {"ow_mqtt_begin", "ow_mqtt_publish", "ow_log", "ow_senml_record", "ow_hal_idle"} <= {
        *declared
    }


def test_each_function_that_takes_a_client_is_tried_in_an_interrupt() -> None:
    text = (FIRMWARE / "src" / PUBLIC).read_text()
    taking = re.findall(r"^[a-z][\w ]*[ *](ow_\w+)\([^;{)]*struct ow_mqtt \*", text, re.M | re.S)
    tried = (FIRMWARE / "tests" / "test_calls.c").read_text()
    assert len(set(taking)) == 20
    assert [name for name in taking if f" {name}(" not in tried] == []


@pytest.mark.parametrize(
    "defines",
    [[], ["-DOW_LORA=1"], ["-DOW_LOG_SIZE=64"], ["-DOW_DEBUG=1"], ["-DOW_SEVERAL_BOARDS=1"]],
)
@pytest.mark.parametrize(
    "command", ["gcc -xc -std=gnu11", "g++ -xc++ -std=gnu++11 -Wno-variadic-macros"]
)
def test_header_compiles_alone(command: str, defines: list[str]) -> None:
    program = f'#include "{PUBLIC}"\nint main(void) {{ return sizeof(struct ow_mqtt) == 0; }}\n'
    subprocess.run(
        [
            *command.split(),
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            *defines,
            "-I",
            FIRMWARE / "src",
            "-",
        ],
        input=program,
        text=True,
        check=True,
    )
