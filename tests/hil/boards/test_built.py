"""Firmware that is older than its sources is not run. Neither pytest nor the rig builds it."""

import os
import re
import shutil
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from hil.boards.built import ROOT, check_built

NEEDS_A_BUILD = re.compile(
    r"async with SimulatedBoard\(|BUILD(\.parents\[1\])? /|build/firmware/uno|RadioSite\("
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with copies of the sources and their build. The copies keep the times of the
    files.
    """
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "firmware", root / "firmware")
    ignored = shutil.ignore_patterns("tests", "size*")
    shutil.copytree(ROOT / "build/firmware", root / "build/firmware", ignore=ignored)
    return root


@pytest.mark.sim
@pytest.mark.parametrize(
    "changed",
    [
        "firmware/src/ow_memory.c",
        "firmware/src/ow_config.h",
        "firmware/examples/sensor/sensor.c",
        "firmware/boards/uno/board.c",
        "firmware/boards/host/radio.h",
        "firmware/tests/lora.c",
        "firmware/Makefile",
        "firmware/sim/twi.c",
        "firmware/sim/twi.h",
    ],
)
def test_source_newer_than_the_build_is_reported(tree: Path, changed: str) -> None:
    before = (tree / changed).stat()
    check_built.cache_clear()
    check_built(root=tree)
    check_built.cache_clear()
    (tree / changed).touch()
    folder = "firmware/sim" if changed.startswith("firmware/sim") else "firmware"
    with pytest.raises(OncewayError) as told:
        check_built(root=tree)
    os.utime(tree / changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert told.value.what == f"the build of {folder} is missing or older than its sources"
    assert told.value.hint == "Run `make firmware`"


@pytest.mark.sim
@pytest.mark.parametrize(
    "missing", ["uno/sensor-memory.hex", "mega2560/sensor.hex", "sim/simboard"]
)
def test_missing_build_is_reported(tree: Path, missing: str) -> None:
    check_built.cache_clear()
    file = tree / "build/firmware" / missing
    file.rename(file.with_suffix(".away"))
    with pytest.raises(OncewayError, match="is missing or older"):
        check_built(root=tree)
    file.with_suffix(".away").rename(file)


def test_without_sources_nothing_is_compared(tmp_path: Path) -> None:
    """An installed rig has no Makefile and no sources."""
    check_built.cache_clear()
    check_built(root=tmp_path)


def test_test_that_needs_a_build_is_marked() -> None:
    """Tests that use built firmware need `pytest.mark.sim`: the check of the build runs only before
    tests with this mark. A file that builds the firmware itself needs no mark.
    """
    files = {file: file.read_text() for file in (ROOT / "tests").rglob("test_*.py")}
    unmarked = [
        str(file.relative_to(ROOT))
        for file, text in files.items()
        if NEEDS_A_BUILD.search(text) and "mark.sim" not in text and '"make", "-s"' not in text
    ]
    assert unmarked == []
