"""Every benchmark of the broker, with small parameters: it measures something, and counts
correctly. The figures are not judged here. Benchmarks that start many gateways run in `make soak`.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks import (
    bench_delivery,
    bench_devices,
    bench_fan,
    bench_filters,
    bench_idle,
    bench_kept,
    bench_latency,
    bench_memory,
    bench_site_moves,
    bench_start,
    bench_throughput,
    bench_writes,
    brokers,
)
from tests.benchmarks import report as report_module
from tests.benchmarks.brokers import onceway
from tests.benchmarks.load import Peer, Publisher, Stalled, Subscriber, drive, new_topics
from tests.benchmarks.report import Figure, keep, report
from tests.benchmarks.side import Ratio, ratio

SMALL = {
    bench_delivery: {"one_way_s": 0.05, "messages": 1},
    bench_devices: {"seconds": 0.1, "rounds": 1, "counts": {5: (0.6, 45.0)}, "messages": 20},
    bench_fan: {"seconds": 0.1, "rounds": 1, "many": 5},
    bench_filters: {"few": 10, "many": 100, "messages": 200, "rounds": 1},
    bench_idle: {"seconds": 0.5},
    bench_kept: {"batches": 50, "rows": 2000, "seconds": 0.5, "turns": 1, "asks": 1},
    bench_latency: {"messages": 20, "seconds": 0.5, "per_second": 100},
    bench_memory: {"clients": 20, "messages": 3},
    bench_site_moves: {
        "moves": 3,
        "queued": 20,
        "clients": 20,
        "seconds": 0.1,
        "rounds": 1,
        "pairs": 2,
    },
    bench_start: {"sessions": 2, "each": 50, "starts": 2},
    bench_throughput: {"seconds": 0.05, "rounds": 1},
    bench_writes: {"seconds": 0.1},
}

LONG = {bench_kept, bench_memory, bench_site_moves, bench_writes}


@pytest.mark.parametrize(
    "bench",
    [
        pytest.param(
            bench,
            id=bench.__name__.rpartition("_")[2],
            marks=pytest.mark.soak if bench in LONG else (),
        )
        for bench in SMALL
    ],
)
def test_a_benchmark_measures(bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "has_peer", lambda: False)
    figures = bench.measure(tmp_path, **SMALL[bench])
    assert figures
    own = bench is bench_kept  # its peer is another gateway of Onceway
    assert all(figure.value >= 0 and (own or figure.peer is None) for figure in figures)


def test_the_load_generator_does_not_end_before_everything_has_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.benchmarks.load.STALLED_S", 1)
    topics = new_topics()
    with onceway(tmp_path) as broker:
        reader, writer = (
            Subscriber(broker.port, topics, 1, True),
            Publisher(broker.port, topics, 1, True),
        )
        Peer(broker.port).subscribe(topics, 1)
        result = drive([writer], [reader], 0.1, 10, 100)
        assert reader.received == writer.sent == writer.complete == result.messages
        with pytest.raises(Stalled):  # the second reader gets no messages
            drive([writer], [reader, Subscriber(broker.port, new_topics(), 1, True)], 0.1, 10, 100)


def test_figures_are_judged_beside_the_peer_and_merged(tmp_path: Path) -> None:
    results = tmp_path / "bench.json"
    assert report(
        [
            Figure("a", 3.0, "msg/s", "≥ 2.4 × peer", 1.0),
            Figure("b", 1.0, "s", "≤ 3"),
            Figure("c", 1.0, "s"),
        ],
        results,
    )
    assert not report([Figure("a", 2.3, "msg/s", "≥ 2.4 × peer", 1.0)], results)
    report([Figure("d", 2.3, "msg/s", "≥ 2.4 × peer")], results)
    kept = json.loads(results.read_text())
    assert {name: figure["met"] for name, figure in kept.items()} == {
        "a": False,
        "b": True,
        "c": None,
        "d": None,
    }
    assert kept["b"] == {"value": 1.0, "unit": "s", "peer": None, "goal": "≤ 3", "met": True}


def test_a_name_that_is_no_benchmark_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "speed"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "throughput" in done.stderr
    assert "site-moves" in done.stderr


def test_the_interval_of_a_ratio_leaves_out_what_lies_far_away() -> None:
    pairs = [(float(one), 1.0) for one in (*range(100, 118), 1, 900)]
    assert ratio(pairs) == Ratio(108.5, 104.0, 113.0)
    assert ratio(pairs[:4]) == Ratio(101.5, 100.0, 103.0)


def test_kept_figures_of_other_benchmarks_stay(tmp_path: Path) -> None:
    results, kept = tmp_path / "bench.json", tmp_path / "last.json"
    report([Figure("a", 1.5, "ms", "≤ 2"), Figure("b", 3, "", None, 4)], results)
    keep(results, kept)
    report([Figure("a", 2.5, "ms")], results := tmp_path / "another.json")
    keep(results, kept)
    assert kept.read_text().count("\n") == 4, "a line for each"
    assert json.loads(kept.read_text()) == {
        "a": {"value": 2.5, "unit": "ms"},
        "b": {"value": 3, "unit": "", "peer": 4},
    }


def templates() -> Iterator[str]:
    """Yield patterns for the texts in the benchmarks. A field of an f-string matches any text."""
    for file in Path(report_module.__file__).parent.glob("[bi]*_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.escape(node.value)
            elif isinstance(node, ast.JoinedStr):
                texts = [getattr(part, "value", None) for part in node.values]
                parts = [re.escape(one) if isinstance(one, str) else ".+" for one in texts]
                if sum(len(one) for one in texts if isinstance(one, str)) >= 5:
                    yield "".join(parts)


def test_each_kept_figure_is_one_of_a_benchmark() -> None:
    """No benchmark would ever update a stored figure that no benchmark measures."""
    kept = json.loads(report_module.KEPT.read_text())
    known = re.compile("|".join(f"(?:{one})" for one in set(templates())))
    gone = [name for name in kept if not known.fullmatch(name)]
    assert gone == []
    assert not known.fullmatch("memory at noon")
