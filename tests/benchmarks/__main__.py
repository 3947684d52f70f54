"""`python -m tests.benchmarks [--keep] [NAME ...]`: run the named benchmarks one after the other;
without a name, all (`site-moves` is bench_site_moves.py).

Each benchmark is a process of its own, so none inherits another one's memory, and prints a table.
The table and build/bench.json show a missed goal, but no run fails because of it. The exit code is
1 if a benchmark ended without figures. `--keep` runs no benchmark: it copies the figures of
build/bench.json to `last.json`, from which `make docs` writes the guides.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.report import RESULTS, keep

FOLDER = Path(__file__).parent
_ALONE = ("ingest",)
"""Benchmarks that run only if they are named. Each takes longer than all benchmarks that are not
listed here.
"""


def names() -> list[str]:
    stems = (path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    return sorted(stem.replace("_", "-") for stem in stems)


def changed() -> int:
    """Return the time of the last write to the results, in ns; 0: no results."""
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
