"""`python -m tests.benchmarks [--keep] [NAME ...]`: run the benchmarks, or those named
(`site-moves` is bench_site_moves.py), one after the other.

Each is a process of its own, so that none inherits the memory of another, and prints its table. The
table and build/bench.json name a missed goal; no benchmark fails because of it. Exit code 1: a
benchmark ended without figures. `--keep` runs none: it keeps the figures of build/bench.json for
the guides (`last.json`; then `make docs`).
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.report import RESULTS, keep

FOLDER = Path(__file__).parent
_ALONE = ("ingest",)
"""Benchmarks that run only when named: each takes longer than all others together."""


def names() -> list[str]:
    stems = (path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    return sorted(stem.replace("_", "-") for stem in stems)


def changed() -> int:
    """Return the time at which the results were last written, 0 for never."""
    return RESULTS.stat().st_mtime_ns if RESULTS.exists() else 0


def main(wanted: list[str]) -> int:
    if wanted == ["--keep"]:
        keep()
        return 0
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        print(
            f"error: there is no benchmark {unknown[0]!r}; there are: {' '.join(names())}",
            file=sys.stderr,
        )
        return 2
    empty = []
    for name in wanted or [name for name in names() if name not in _ALONE]:
        print(f"\n{name}", flush=True)
        before = changed()
        environment = os.environ | {"PYTHONPATH": str(FOLDER.parents[1])}
        script = FOLDER / f"bench_{name.replace('-', '_')}.py"
        subprocess.run([sys.executable, script], env=environment, check=False)
        if changed() == before:
            empty.append(name)
    if empty:
        print(f"error: these benchmarks ended without figures: {' '.join(empty)}", file=sys.stderr)
    return bool(empty)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
