"""Run `make test`: first `make lint`, then all tests except the soak tests, in groups, six groups
at a time. All groups are in one queue, the longest first. When a group ends, the next one starts,
so cores are idle only at the end.

In: options of pytest. If there are any, one pytest runs with them, without groups and without lint.
Out: the output of each group at its end, with its duration and its processor time in seconds. The
exit code is not 0 if a group failed.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
PYTEST = [sys.executable, "-m", "pytest"]
LINT = ["make", "--no-print-directory", "-s", "lint"]
AT_A_TIME = 6

LONG = [
    [
        f"ingest/jobs/test_{name}.py"
        for name in ("moved_table", "summarise", "public", "checkpoint", "upkeep")
    ],
    ["ingest"],
    ["bridge", "service/test_refused_publishers.py"],
    ["service"],
    ["site"],
    ["access", "backup", "boards", "broker"],
    ["firmware", "links"],
    ["publisher", "runtime", "sim", "store"],
    [f"uplink/test_{name}.py" for name in ("exclusive", "owner", "bad_links", "proof", "busy_s3")],
    ["uplink"],
    ["web"],
    ["provisioning/test_device.py"],
    ["hil/air"],
    ["provisioning"],
    ["hil"],
    ["hil/test_sabotage.py", "hil/test_plugin.py"],
]
"""The groups that take longest, as files and folders of tests; they start first. A folder in a
group does not include files that another group names. The two groups with Spark start a JVM each.
"""
PARTS = 5
"""Number of groups that share the tests that `LONG` does not name. These groups are short, so that
no core is idle for long at the end.
"""


def parts(taken: set[str]) -> list[list[str]]:
    """Return the names of all test files and folders that are not in `taken`, as `PARTS` lists.
    Each list has names that follow each other in the alphabet. The end of the alphabet comes first,
    because its tests take longest.
    """
    tests = {path for path in HERE.iterdir() if path.is_dir() or path.match("test_*.py")}
    others = sorted(path.name for path in tests if any(path.rglob("test_*.py")) or path.is_file())
    others = [name for name in others if name not in taken]
    ends = [len(others) * part // PARTS for part in range(PARTS + 1)]
    return [others[start:end] for start, end in pairwise(ends)][::-1]


def groups() -> list[list[str]]:
    """Return the arguments of pytest for each group, in the order in which they begin."""
    named = {*chain(*LONG)}
    return [_paths(one, named) for one in [*LONG, *parts(named)]]


def _paths(group: list[str], named: set[str]) -> list[str]:
    elsewhere = {name for name in named for folder in group if name.startswith(f"{folder}/")}
    return [f"tests/{name}" for name in group] + [
        f"--ignore=tests/{it}" for it in sorted(elsewhere)
    ]


def run(command: list[str], output: IO[bytes]) -> tuple[int, str]:
    """Run a command. Return its exit code, and a text with its duration and its processor time."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=output, stderr=output)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    processor = used.ru_utime + used.ru_stime
    return process.returncode, f"{time.monotonic() - begin:.0f} s, {processor:.0f} s of processor"


def pytest(paths: list[str]) -> list[str]:
    return [*PYTEST, "-o", f"cache_dir=build/pytest/{paths[0].replace('/', '-')}", *paths]


def main() -> int:
    if options := sys.argv[1:]:
        return subprocess.run([*PYTEST, *options], check=False).returncode
    with ExitStack() as stack:
        queue = stack.enter_context(ThreadPoolExecutor(AT_A_TIME))
        begun = {}
        commands = list(map(pytest, groups()))
        commands.insert(len(LONG), LINT)
        for command in commands:
            output = stack.enter_context(tempfile.TemporaryFile())
            begun[queue.submit(run, command, output)] = command, output
        failed = 0
        for group in as_completed(begun):
            command, output = begun[group]
            code, times = group.result()
            failed |= code
            output.seek(0)
            print(
                f"{' '.join(command)} ({times}):",
                output.read().decode(errors="replace"),
                flush=True,
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
