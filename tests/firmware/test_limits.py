"""What the library promises to a chip with 2 KiB of RAM: its code takes no heap, and no function
calls itself, be it by way of others.

Calls through pointers are the application's callbacks and are not followed; what comes of those is
measured as stack (`make size`).
"""

import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

FIRMWARE = Path(__file__).parents[2] / "firmware"
HEAP = {"malloc", "calloc", "realloc", "free", "alloca", "strdup"}

Calls = dict[str, set[str]]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """Functions by who calls them, of the library and the sensor, as gcc has them
    (-fcallgraph-info).
    """
    folder = tmp_path_factory.mktemp("calls")
    sources = [*FIRMWARE.glob("src/*.c"), *FIRMWARE.glob("examples/sensor/*.c")]
    flags = ["-std=gnu11", "-O0", "-fcallgraph-info", "-I", FIRMWARE / "src"]
    subprocess.run(["gcc", *flags, "-c", *sources], cwd=folder, check=True)
    found: Calls = {}
    for graph in folder.glob("*.ci"):
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


def test_nothing_takes_heap(calls: Calls) -> None:
    assert not HEAP & set().union(*calls.values())
