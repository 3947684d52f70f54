"""Standard streams that take no output: a pipe without a reader, a full disk, or a closed
stream.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ONCEWAY = Path(sys.executable).with_name("onceway")
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
PLAIN, TABLE, LARGE = ["--version"], ["board", "list"], ["board", "list", "--json"]


@contextmanager
def no_reader() -> Iterator[int]:
    """Yield the writing end of a pipe without a reader, as after `| head -1` has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def run(words: list[str], out: int | None, *without: str) -> tuple[int, str]:
    """Run a command. Return its exit code and its standard error. out: file descriptor for its
    standard output; None: that of the test. without: streams that are closed before the start:
    "in", "out" or "err".
    """
    close = " ".join({"in": "<&-", "out": ">&-", "err": "2>&-"}[one] for one in without)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {close}', "sh", ONCEWAY, *words],
        stdout=out,
        stderr=subprocess.PIPE,
        env=BUFFERED,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [PLAIN, TABLE, LARGE])
def test_a_command_ends_quietly_if_its_reader_has_ended(words: list[str]) -> None:
    with no_reader() as pipe:
        assert run(words, pipe) == (1, "")


@pytest.mark.parametrize("words", [PLAIN, LARGE])
def test_a_full_disk_behind_the_output_is_an_error_of_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        code, told = run(words, full.fileno())
        assert (code, told.count("\n")) == (1, 1)
        assert "No space left on device" in told


def test_command_runs_with_closed_standard_streams() -> None:
    assert run(TABLE, None, "in", "out") == (0, "")
    assert run(["nonsense"], None, "in", "out", "err") == (2, "")
