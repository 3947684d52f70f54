"""Memory settings of the ingest, chosen for the machine.

In: the memory of the machine, and the limits of this process's control groups. Out: the heap of the
driver, and the largest number of rows of a micro-batch.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

MEGABYTE = 1024 * 1024
ENOUGH = 4096 * MEGABYTE
"""Smallest available memory, in bytes, with which a micro-batch may have ROWS rows."""

HEAP, LEAST_HEAP = 2048, 512
"""Bounds of the driver's heap, in MB. With less than LEAST_HEAP, Spark does not work."""

ROWS, LEAST_ROWS = 500_000, 50_000
"""Bounds of the row limit of a micro-batch. With less than ENOUGH memory, the limit is below ROWS.
Each micro-batch has a high fixed cost, so a backlog is read in large micro-batches.
"""


def total(root: Path = Path("/")) -> int:
    """Return the memory, in bytes, that this process and its children may use. root: another root
    folder, for tests.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _limit_files(root):
        with suppress(OSError, ValueError):  # "max", or no such file
            limits.append(int(file.read_text()))
    return min(limit for limit in limits if limit > 0)


def _limit_files(root: Path) -> Iterator[Path]:
    """Yield the files with the memory limits of this process's control groups and of their parents,
    for versions 1 and 2 of control groups.
    """
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                folder = root / "sys/fs/cgroup" / controllers
                name = "memory.limit_in_bytes" if controllers else "memory.max"
                group = PurePosixPath(path.lstrip("/"))
                for one in (group, *group.parents):
                    yield folder / one / name


def driver_heap(memory: int | None = None) -> str:
    """Return the heap of the driver in Spark's notation. memory: available bytes; by default those
    of this machine.
    """
    share = (total() if memory is None else memory) * 2 // 5 // MEGABYTE
    return f"{max(LEAST_HEAP, min(HEAP, share))}m"


def rows(memory: int | None = None) -> int:
    """Return the largest number of rows for a micro-batch. memory: available bytes; by default
    those of this machine.
    """
    share = min(1.0, (total() if memory is None else memory) / ENOUGH)
    return max(LEAST_ROWS, int(ROWS * share))
