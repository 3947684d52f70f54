"""`make test`: all tests, in three groups, two at a time: Spark computes while boards, disks and
timeouts are waited for. Three at a time would wait for each other until they run out of time.

In: options of pytest; with any, one pytest runs as usual. Out: what the tests say, one group after
the other, and an exit code that is not 0 if one failed.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import IO

SPARK, RIG = ("tests/ingest",), ("tests/hil", "tests/provisioning")


def pytest(*options: str, said: IO[bytes] | None = None) -> int:
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, stdout=said, stderr=said, check=False).returncode


def main() -> int:
    if options := sys.argv[1:]:
        return pytest(*options)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        others = (f"--ignore={folder}" for folder in (*SPARK, *RIG))
        first = pool.submit(pytest, *others)
        aside = []
        for number, folders in enumerate((SPARK, RIG)):
            said = stack.enter_context(tempfile.TemporaryFile())
            cache = ("-o", f"cache_dir=build/pytest-{number}")
            aside.append((folders, said, pool.submit(pytest, *folders, *cache, said=said)))
        failed = first.result()
        for folders, said, group in aside:
            failed |= group.result()
            said.seek(0)
            print(f"{' '.join(folders)}:", said.read().decode(errors="replace"), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
