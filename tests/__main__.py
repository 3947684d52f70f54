"""`make test`: all tests but those for the soak, in groups. Most compute, so two groups run at a
time: three would wait for each other until they run out of time. Boards that are flashed or under
test mostly wait, so their groups run beside the others, one after the other.

In: options of pytest; with any, one pytest runs as usual. Out: what each group says when it has
ended, and an exit code that is not 0 if one failed.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
SPARK, RIG, BOARDS = "ingest", "hil", "provisioning"
PARTS = 6
"""Of all other tests: short ones, so that no core is idle for long at the end."""


def pytest(*options: str, said: IO[bytes] | None = None) -> int:
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, stdout=said, stderr=said, check=False).returncode


def parts() -> list[list[str]]:
    """Every other folder and file of tests, in `PARTS` lists of neighbours."""
    tests = {path for path in HERE.iterdir() if path.is_dir() or path.match("test_*.py")}
    others = sorted(path.name for path in tests if any(path.rglob("test_*.py")) or path.is_file())
    others = [name for name in others if name not in (SPARK, RIG, BOARDS)]
    ends = [len(others) * part // PARTS for part in range(PARTS + 1)]
    return [others[start:end] for start, end in pairwise(ends)]


def main() -> int:
    if options := sys.argv[1:]:
        return pytest(*options)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        waits = stack.enter_context(ThreadPoolExecutor(1))
        groups = [(pool, names) for names in ([SPARK], *parts())]  # the longest comes first
        groups += [(waits, [BOARDS]), (waits, [RIG])]
        begun = {}
        for runs, names in groups:
            said = stack.enter_context(tempfile.TemporaryFile())
            cache = ("-o", f"cache_dir=build/pytest/{names[0]}")
            paths = [f"tests/{name}" for name in names]
            begun[runs.submit(pytest, *paths, *cache, said=said)] = paths, said
        failed = 0
        for group in as_completed(begun):
            paths, said = begun[group]
            failed |= group.result()
            said.seek(0)
            print(f"{' '.join(paths)}:", said.read().decode(errors="replace"), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
