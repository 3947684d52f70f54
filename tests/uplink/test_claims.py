"""Two gateways put other bytes under one name, where a rename replaces: all interleavings in which
one of them is stopped at one step while the other does all of its own, or is cut on the way.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.uplink.landing import Claimed, Unreachable, Way
from gateway.uplink.landing.local import LocalLanding

NAME = "site-1/00c0ffee/000000000001.parquet"
STEPS = ("put", "move", "make_file", "make_folder", "remove", "remove_folder", "stands", "names")
MOST = 12
"""Above the number of steps of one `create`."""


class Cut(Exception):
    """The connection is gone: what was asked for may have been done, or not."""


class Stepped(LocalLanding):
    """step: called with the number of each step, before it and after it."""

    def __init__(self, folder: Path, way: Way) -> None:
        super().__init__(str(folder))
        self._way = way
        self.step: Callable[[int, str], None] = lambda number, when: None
        self._steps = 0

    def lacks(self, error: Exception) -> bool:
        return False


def _stepping(name: str) -> Callable:
    original = getattr(LocalLanding, name)

    def run(self, *args):
        self._steps += 1
        number = self._steps
        self.step(number, "before")
        done = original(self, *args)
        self.step(number, "after")
        return done

    return run


for name in STEPS:
    setattr(Stepped, name, _stepping(name))


class Table:
    """Gateways at one place. Fails when what stands under the name ever changes."""

    def __init__(self, folder: Path, way: Way) -> None:
        self._folder, self._way = folder, way
        self._stood: bytes | None = None
        self.won: set[bytes] = set()

    def watch(self) -> None:
        path = self._folder / NAME
        stands = path.read_bytes() if path.exists() else None
        assert self._stood in (None, stands), "a file was replaced"
        self._stood = stands

    def create(
        self, data: bytes, step: Callable[[int, str], None] = lambda number, when: None
    ) -> None:
        landing = Stepped(self._folder, self._way)

        def watched(number: int, when: str) -> None:
            step(number, when)
            self.watch()

        landing.step = watched
        with suppress(Claimed, Unreachable):
            if landing.create(NAME, data) or landing.read(NAME) == data:
                self.won.add(data)

    def tidy(self) -> None:
        LocalLanding(str(self._folder)).tidy(NAME.rpartition("/")[0])

    def end(self) -> None:
        """Let both try again, as after an outage. One of them has the name then."""
        for data in (b"ours", b"theirs", b"ours", b"theirs"):
            self.tidy()
            self.create(data)
        assert self.won == {self._stood}, "somebody took the name of another for its own"


def at(place: tuple[int, str], action: Callable[[], None]) -> Callable[[int, str], None]:
    """A step that does something at one place."""

    def step(number: int, when: str) -> None:
        if (number, when) == place:
            action()

    return step


def cut() -> None:
    raise Cut


PLACES = list(itertools.product(range(1, MOST), ("before", "after")))
NEVER = (0, "before")


@pytest.mark.parametrize("tidies", ["nobody tidies", "the other tidies"])
@pytest.mark.parametrize("way", [Way.CLAIM_FILE, Way.CLAIM_FOLDER])
@pytest.mark.parametrize("left", [NEVER, *PLACES[:12]], ids=str)
def test_a_name_has_one_winner(tmp_path, way, tidies, left):
    """left: where our gateway was cut before, so what it left is there."""
    for number, (stopped, theirs) in enumerate(
        itertools.product(PLACES, [NEVER, *PLACES[: 2 * 7]])
    ):
        table = Table(tmp_path / str(number), way)
        if left != NEVER:
            table.create(b"ours", at(left, cut))

        def other(table=table, theirs=theirs) -> None:
            if tidies == "the other tidies":
                table.tidy()
            table.create(b"theirs", at(theirs, cut))

        table.create(b"ours", at(stopped, other))
        table.end()
