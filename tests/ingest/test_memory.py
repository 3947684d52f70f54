"""Java's heap and the size of micro-batches depend on the memory of the machine, and on the limits
of the control groups around the process.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.ingest import memory
from gateway.ingest.cli import app
from gateway.ingest.memory import MEGABYTE, driver_heap, rows, total

MACHINE = total(Path("/nowhere"))


def limited(root: Path, group: str, files: dict[str, str]) -> int:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return total(root)


@pytest.mark.parametrize(
    ("group", "files", "bytes_"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n"}, MACHINE),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1000000\n"}, 1_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "900000", "memory.max": "1000000"}, 900_000),
        ("0::/../..\n", {"memory.max": "1000000"}, 1_000_000),  # as in a container
        ("5:memory:/a\n1:cpu:/b\n", {"memory/a/memory.limit_in_bytes": "800000"}, 800_000),
        ("5:memory:/a\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, MACHINE),
        ("5:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "-1\n"}, MACHINE),
        ("nonsense", {}, MACHINE),
    ],
)
def test_the_lowest_limit_counts(
    tmp_path: Path, group: str, files: dict[str, str], bytes_: int
) -> None:
    assert limited(tmp_path, group, files) == bytes_


@pytest.mark.parametrize(
    ("megabytes", "heap", "most"),
    [
        (24_000, "2048m", 500_000),
        (5_120, "2048m", 500_000),
        (2_048, "819m", 250_000),
        (1_536, "614m", 187_500),
        (512, "512m", 62_500),
    ],
)
def test_heap_and_rows_follow_the_memory(megabytes: int, heap: str, most: int) -> None:
    assert driver_heap(megabytes * MEGABYTE) == heap
    assert rows(megabytes * MEGABYTE) == most


def test_the_command_has_them_unless_it_is_ordered_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(memory, "total", lambda: 1_536 * MEGABYTE)
    where = ["command", "--landing", "/l", "--table", "/t", "--checkpoint", "/c"]
    told = CliRunner().invoke(app, where).stdout
    assert "--driver-memory 614m" in told
    assert "--rows" not in told
    told = CliRunner().invoke(app, [*where, "--memory", "1g", "--rows", "7"]).stdout
    assert "--driver-memory 1g" in told
    assert "--rows 7" in told
