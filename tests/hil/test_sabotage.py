"""The benches notice a product that breaks a promise (tests/hil/sabotage.py). Quick sabotages run
here; `python -m tests.hil.sabotages` runs all, on three seeds (`make soak`).
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from hil.bench.files import BESIDE, own_benches
from tests.hil.sabotage import CLASSES, ROOT, Judged, catalogue, copy_tree, fit, judge, try_out

CATALOGUE = catalogue()
GATE = [name for name, sabotage in CATALOGUE.items() if sabotage.gate]
REFUSED = "one-board-is-refused-for-ever"


def test_catalogue_holds_the_promised_number_of_sabotages() -> None:
    assert len(CATALOGUE) >= 155
    assert GATE


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_names_benches_that_ship(name: str) -> None:
    assert CATALOGUE[name].benches
    assert set(CATALOGUE[name].benches) <= own_benches().keys()


def test_core_of_the_rig_has_a_bench_for_each_claim() -> None:
    assert own_benches().keys() >= BESIDE
    lacks = {name for name, one in CATALOGUE.items() if not set(one.benches) - BESIDE}
    assert not lacks


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_fits_the_tree_as_it_is(name: str) -> None:
    fit(CATALOGUE[name], ROOT, dry=True)


DEGENERATE = [
    name
    for name, one in CATALOGUE.items()
    if one.blind == "degenerate" and one.package in ("gateway/payload", "gateway/ingest")
]
"""Names of the sabotages of the decoder."""


@pytest.fixture(scope="module")
def values() -> dict[str, str]:
    """Return what `tests.hil.values` prints about each patched decoder, by the name of the
    sabotage. `-` is the decoder without a sabotage.
    """
    argv = [sys.executable, "-m", "tests.hil.values", "-", *DEGENERATE]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_values_of_the_decoder_as_it_is_hold(values: dict[str, str]) -> None:
    assert values["-"] == "all as it must be"


@pytest.mark.parametrize("name", DEGENERATE)
def test_unusual_values_that_are_harmed_are_noticed(name: str, values: dict[str, str]) -> None:
    """`tests.hil.values` calls the judge without a bench, because a bench starts Spark, which takes
    long.
    """
    assert values[name].startswith("message "), values[name]


@pytest.mark.soak  # in the gate, a copy with one patched line is only unknown
@pytest.mark.sim
@pytest.mark.timeout(900)
def test_the_copy_itself_holds(tmp_path: Path) -> None:
    copy_tree(tmp_path / "tree")
    judged = judge(tmp_path / "tree", "gateway-kills", 1, tmp_path / "run", 20)
    assert judged.verdict == "holds", judged.said


SILENT = """
title = "Two boards, and little patience"
until = "batch"
readings = 8
stall_s = 12
"""


@pytest.fixture(scope="module")
def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Judged]]]:
    """Start the sabotages of this session, three at a time, because a bench waits more than it
    computes. Yield their judgements by name.
    """
    folder = tmp_path_factory.mktemp("trials")
    silent = folder / "silent.toml"
    silent.write_text(SILENT)
    asked = {
        item.callspec.params["name"]
        for item in request.session.items
        if getattr(item, "originalname", None) == "test_is_noticed"
    }
    benches = {name: CATALOGUE[name].benches[0] for name in asked} | {REFUSED: str(silent)}
    with ThreadPoolExecutor(3) as pool:
        yield {
            name: pool.submit(try_out, CATALOGUE[name], bench, 1, folder / name)
            for name, bench in benches.items()
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.sim
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", GATE)
def test_is_noticed(name: str, trials: dict[str, Future[Judged]]) -> None:
    judged = trials[name].result()
    assert judged.verdict == CATALOGUE[name].verdict, judged.said


@pytest.mark.sim
@pytest.mark.timeout(1800)
def test_a_run_in_which_one_device_never_gets_through_is_unknown(
    trials: dict[str, Future[Judged]],
) -> None:
    """Half of the readings arrived unaltered; the fate of the others is unknown."""
    judged = trials[REFUSED].result()
    assert judged.verdict == "unknown", judged.said
    assert "still under way when the run gave up waiting" in judged.said
    assert "nothing moved any more" in judged.said


def test_the_table_of_results_counts_the_catalogue() -> None:
    """hil/RESULTS.md has a row for each blind spot, in the order of CLASSES."""
    table = (ROOT / "hil/RESULTS.md").read_text().partition("### By blind spot")[2]
    rows = [int(count) for count in re.findall(r"^\| [^|]+ \| (\d+) \|", table, re.MULTILINE)]
    blind = Counter(sabotage.blind for sabotage in CATALOGUE.values())
    assert rows == [blind[one] for one in list(CLASSES)[1:]]
    assert f"\n{sum(rows)} sabotages try a blind spot" in table
