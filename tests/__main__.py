"""`make test`: all tests, in three groups that run beside each other: Spark computes while boards,
disks and timeouts are waited for. The two aside have a lower priority: the others measure times.

In: options of pytest; with any, one pytest runs as usual. Out: what the tests say, one group after
the other, and an exit code that is not 0 if one failed.
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack

ASIDE = (("tests/ingest",), ("tests/hil", "tests/provisioning"))


def pytest(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", *options]


def main() -> int:
    if options := sys.argv[1:]:
        return subprocess.run(pytest(*options), check=False).returncode
    with ExitStack() as stack:
        aside = []
        for number, folders in enumerate(ASIDE):
            said = stack.enter_context(tempfile.TemporaryFile())
            command = pytest(*folders, "-o", f"cache_dir=build/pytest-{number}")
            process = subprocess.Popen(["nice", *command], stdout=said, stderr=said)
            stack.callback(process.wait)
            stack.callback(process.terminate)  # does nothing to one that has ended
            aside.append((folders, said, process))
        ignored = (f"--ignore={folder}" for folders in ASIDE for folder in folders)
        failed = subprocess.run(pytest(*ignored), check=False).returncode
        for folders, said, process in aside:
            failed |= process.wait()
            said.seek(0)
            print(f"{' '.join(folders)}:", said.read().decode(errors="replace"), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
