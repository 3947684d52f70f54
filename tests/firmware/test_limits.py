"""Limits that the library keeps for chips with 2 KiB of RAM: no heap, and no direct or indirect
recursion. For readers, calls between its files go in one direction only.

Calls through function pointers lead to the application's callbacks, and are not examined here.
`make size` measures their stack.
"""

import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

FIRMWARE = Path(__file__).parents[2] / "firmware"
HEAP = {"malloc", "calloc", "realloc", "free", "alloca", "strdup"}

Calls = dict[str, set[str]]


@pytest.fixture(scope="module", params=[0, 1], ids=["serial", "radio"])
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library and the sensor example, with a log. Return the folder with an object file
    and a call graph (-fcallgraph-info) for each source file.
    """
    folder = tmp_path_factory.mktemp("objects")
    sources = [*FIRMWARE.glob("src/*.c"), *FIRMWARE.glob("examples/sensor/*.c")]
    parts = [f"-DOW_LORA={request.param}", "-DOW_LOG_SIZE=256"]
    flags = ["-std=gnu11", "-O0", "-fshort-enums", "-fcallgraph-info", "-I", FIRMWARE / "src"]
    subprocess.run(["gcc", *flags, *parts, "-c", *sources], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def calls(objects: Path) -> Calls:
    """Return the functions that each function calls."""
    found: Calls = {}
    for graph in objects.glob("*.ci"):
        for caller, called in re.findall(
            r'^edge: { sourcename: "(.*?)" targetname: "(.*?)"', graph.read_text(), re.MULTILINE
        ):
            found.setdefault(caller, set()).add(called)
    return found


def test_no_function_calls_itself(calls: Calls) -> None:
    assert "ow_mqtt_publish" in calls
    TopologicalSorter(
        {caller: called - {"__indirect_call"} for caller, called in calls.items()}
    ).prepare()


def test_library_uses_no_heap(calls: Calls) -> None:
    assert not HEAP & set().union(*calls.values())


def test_files_call_one_way(objects: Path) -> None:
    where: dict[str, str] = {}
    wanted: dict[str, list[str]] = {}
    for file in objects.glob("*.o"):
        shown = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
        symbols = [line.split()[-2:] for line in shown.splitlines()]
        where |= {name: file.stem for kind, name in symbols if kind in "BDRT"}
        wanted[file.stem] = [name for kind, name in symbols if kind == "U"]
    assert where["ow_log_number"] == "ow_log"
    TopologicalSorter(
        {file: {where[name] for name in names if name in where} for file, names in wanted.items()}
    ).prepare()
