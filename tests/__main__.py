"""`make test`: all tests but those for the soak, in four groups. Three of them compute, so two of
these run at a time: three would wait for each other until they run out of time. The fourth waits
for boards that are being flashed, beside them.

In: options of pytest; with any, one pytest runs as usual. Out: what the tests say, one group after
the other, and an exit code that is not 0 if one failed.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO

SPARK, RIG, BOARDS = "tests/ingest", "tests/hil", "tests/provisioning"


def pytest(*options: str, said: IO[bytes] | None = None) -> int:
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, stdout=said, stderr=said, check=False).returncode


def main() -> int:
    if options := sys.argv[1:]:
        return pytest(*options)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        waits = stack.enter_context(ThreadPoolExecutor(1))
        first = pool.submit(pytest, *(f"--ignore={folder}" for folder in (SPARK, RIG, BOARDS)))
        aside = []
        for folder, runs in ((SPARK, pool), (RIG, pool), (BOARDS, waits)):
            said = stack.enter_context(tempfile.TemporaryFile())
            cache = ("-o", f"cache_dir=build/pytest/{Path(folder).name}")
            aside.append((folder, said, runs.submit(pytest, folder, *cache, said=said)))
        failed = first.result()
        for folder, said, group in aside:
            failed |= group.result()
            said.seek(0)
            print(f"{folder}:", said.read().decode(errors="replace"), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
