"""Two gateways write different bytes under one name, at a place where a rename replaces files. The
test tries all interleavings. One writer pauses after a step. During the pause, the other writer
does all its steps, or is cut off after one of them.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.uplink.landing import Claimed, Unreachable, Way
from gateway.uplink.landing.local import LocalLanding

NAME = "site-1/00c0ffee/000000000001.parquet"
STEPS = ("put", "move", "make_file", "make_folder", "remove", "remove_folder", "stands", "names")
MOST = 10
"""A number above the number of steps of one `create`."""


class Cut(Exception):
    """An exception for a lost connection. The server may have done the last request, or not."""


class Stepped(LocalLanding):
    """A landing place that calls `step` after each step, with the number of the step."""

    def __init__(self, folder: Path, way: Way) -> None:
        super().__init__(str(folder))
        self._way = way
        self.step: Callable[[int], None] = lambda number: None
        self._steps = 0


def _stepping(name: str) -> Callable:
    original = getattr(LocalLanding, name)

    def run(self, *args):
        self._steps += 1
        number = self._steps
        try:
            done = original(self, *args)
        except FileExistsError:
            self.step(number)
            raise
        self.step(number)
        return done

    return run


for name in STEPS:
    setattr(Stepped, name, _stepping(name))


class Table:
    """A landing place for two gateways with one name. `watch` fails if the content of the file NAME
    has changed.
    """

    def __init__(self, folder: Path, way: Way) -> None:
        self._folder, self._way = folder, way
        self._stood: bytes | None = None
        self.won: set[bytes] = set()

    def watch(self) -> None:
        path = self._folder / NAME
        stands = path.read_bytes() if path.exists() else None
        assert self._stood in (None, stands), "a file was replaced"
        self._stood = stands

    def create(self, data: bytes, step: Callable[[int], None] = lambda number: None) -> None:
        landing = Stepped(self._folder, self._way)

        def watched(number: int) -> None:
            step(number)
            self.watch()

        landing.step = watched
        with suppress(Claimed, Unreachable):
            if landing.create(NAME, data) or landing.read(NAME) == data:
                self.won.add(data)

    def tidy(self) -> None:
        LocalLanding(str(self._folder)).tidy(NAME.rpartition("/")[0])

    def end(self) -> None:
        """Let both gateways try again without faults. Check that exactly one of them has
        the name.
        """
        for data in (b"ours", b"theirs", b"ours", b"theirs"):
            self.tidy()
            self.create(data)
        assert self.won == {self._stood}, "somebody took the name of another for its own"


def at(step: int, action: Callable[[], None]) -> Callable[[int], None]:
    """Return a function for `step` that calls `action` after the step with this number."""

    def run(number: int) -> None:
        if number == step:
            action()

    return run


def cut() -> None:
    raise Cut


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder in memory. On a disk, thousands of syncs would take long."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.mark.parametrize("tidies", ["nobody tidies", "the other tidies"])
@pytest.mark.parametrize("way", [Way.CLAIM_FILE, Way.CLAIM_FOLDER])
@pytest.mark.parametrize("left", range(MOST))
def test_a_name_has_one_winner(folder, way, tidies, left):
    """left: step of an earlier try after which the first gateway was cut off. 0: there was no
    earlier try. The other gateway starts after each step of the first gateway's next try, and is
    cut off after each of its own steps.
    """
    for number, (stopped, theirs) in enumerate(itertools.product(range(1, MOST), range(MOST))):
        table = Table(folder / str(number), way)
        if left:
            table.create(b"ours", at(left, cut))

        def other(table=table, theirs=theirs) -> None:
            if tidies == "the other tidies":
                table.tidy()
            table.create(b"theirs", at(theirs, cut))

        table.create(b"ours", at(stopped, other))
        table.end()
