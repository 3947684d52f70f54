"""Sabotages: `python -m tests.sim.whole.sabotages [NAME …]`.

In: names of the rig's patches (`tests/hil/sabotages`), each of which breaks a promise of the
gateway or the firmware. Without a name: all patches that the simulation must notice. Out: a table
with the first seed that notices each patch, on a patched copy of the tree. The exit code is 1 if a
patch is not noticed within its seeds.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.hil.sabotage import PACKAGES, ROOT, catalogue, fit

MUST = {
    "a-sample-is-skipped": 100,
    "acknowledged-before-the-commit": 100,
    "acknowledged-with-one-disk": 400,
    "boot-compares-without-wrap": 400,
    "boot-numbers-go-down": 100,
    "connect-forgets-identifiers-of-others": 100,
    "every-board-has-one-incarnation": 100,
    "failed-commits-are-acknowledged": 100,
    "forged-completion": 100,
    "full-journal-loses-its-oldest": 100,
    "greets-as-the-next-start": 100,
    "identifier-zero-is-used": 100,
    "incarnation-is-forgotten": 100,
    "journal-slot-written-forwards": 400,
    "journal-without-check": 100,
    "marks-one-commit-late": 400,
    "moved-session-forgets-identifiers": 1000,
    "no-check-of-frames-at-the-gateway": 100,
    "no-check-of-frames-on-the-board": 100,
    "no-deduplication-in-the-broker": 100,
    "no-start-is-told": 100,
    "nonces-stand-still": 100,
    "one-mark-for-all-devices": 100,
    "pubcomp-before-its-commit": 1000,
    "readings-lag-by-one": 100,
    "received-identifiers-are-not-stored": 1000,
    "refused-counts-as-taken": 100,
    "refused-is-stored-too": 100,
    "repeated-frame-is-new-at-the-gateway": 100,
    "rows-of-one-commit-swap-payloads": 100,
    "sent-is-done": 100,
    "sequence-in-ram-only": 100,
    "sequence-wraps-at-16-bits": 100,
    "session-seed-constant": 100,
    "sessions-are-not-stored": 100,
    "silence-is-a-no": 100,
    "spool-numbers-start-again": 100,
    "stored-twice-at-qos-1": 100,
    "what-is-refused-is-marked": 100,
}
"""Sabotages that must be noticed, each with the number of seeds that are tried."""
QUICK = ("forged-completion", "identifier-zero-is-used")
"""Sabotages that `make test` tries, one in the gateway and one in the firmware."""
SEEDS = 500
"""Number of seeds for each sabotage that is not in MUST."""
_OURS = ("tests/sim/whole", "tests/broker", "tests/links")


def noticed(name: str, seeds: int) -> str:
    """Return the soak's output for a tree with this patch, or "" if no seed notices the patch."""
    with TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in (*PACKAGES, *_OURS):
            ignored = shutil.ignore_patterns("*.pyc.*")  # files that Python is about to rename
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
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names or list(MUST)
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tried = pool.map(lambda name: noticed(name, MUST.get(name, SEEDS)), names)
        for name, said in zip(names, tried, strict=True):
            found = re.match(r"seed (\d+): (.*)", said)
            missed += found is None
            seed, why = found.groups() if found else ("", "NOT NOTICED")
            of = f"{seed:>4} of {MUST.get(name, SEEDS)}"
            print(f"{name:40} {of:12} {why[:200]}", flush=True)
    print(f"{len(names) - missed} of {len(names)} were noticed")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
