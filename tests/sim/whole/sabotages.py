"""Sabotages: `python -m tests.sim.whole.sabotages NAME …`.

In: names of the rig's patches (`tests/hil/sabotages`), each of which breaks a promise of gateway or
firmware. Out: the first seed that notices it, on a copy of the tree that is patched. Exit 1 when
one is not noticed.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.hil.sabotage import PACKAGES, ROOT, catalogue, fit

SEEDS = 500
_OURS = ("tests/sim/whole", "tests/broker", "tests/links")


def noticed(name: str, seeds: int = SEEDS) -> str:
    """What the soak says of a tree with this patch; nothing if all seeds hold."""
    with TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in (*PACKAGES, *_OURS):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, tree / part, ignore=ignored)
        fit(catalogue()[name], tree)
        done = subprocess.run(
            [sys.executable, "-m", "tests.sim.whole.soak", "--seeds", str(seeds), "--first"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout if done.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    missed = 0
    for name in parser.parse_args().names:
        found = noticed(name)
        missed += not found
        print(f"{name}: {found.strip() or 'NOT NOTICED'}", flush=True)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
