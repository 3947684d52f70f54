"""A record that becomes suspect, and the members that it names as older."""

from typing import Any

import pytest

from gateway.site.rules.holder import Held
from gateway.site.rules.messages import MAX_EPOCH
from gateway.site.rules.suspect import doubt


class Disk:
    """A stand-in for the session holder. Each call is recorded, and calls `done` at once."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def mark_suspect(self, client: str, done: Any) -> None:
        self.calls.append(("mark_suspect", client))
        done()

    def stand(self, client: str, epoch: int, older: frozenset[str], done: Any) -> None:
        self.calls.append(("stand", client, epoch, older))
        done()


@pytest.mark.parametrize(
    ("held", "epoch"),
    [
        (Held(3, older=frozenset("bc")), 3),
        (Held(3, given_to="d", older=frozenset("b")), 3),
        (Held(MAX_EPOCH - 1, older=frozenset("b")), MAX_EPOCH - 1),
    ],
    ids=["it names them", "it was given away", "no epoch is left"],
)
def test_doubt_about_known_members_leaves_the_record(held: Held, epoch: int) -> None:
    disk, epochs = Disk(), list[int]()
    doubt(disk, "client", held, frozenset("c"), epochs.append)  # type: ignore[arg-type]
    assert disk.calls == [("mark_suspect", "client")]
    assert epochs == [epoch]


def test_record_that_names_more_is_another_record() -> None:
    disk, epochs = Disk(), list[int]()
    held = Held(3, older=frozenset("b"))
    doubt(disk, "client", held, frozenset("c"), epochs.append)  # type: ignore[arg-type]
    assert disk.calls == [("mark_suspect", "client"), ("stand", "client", 4, frozenset("bc"))]
    assert epochs == [4]
