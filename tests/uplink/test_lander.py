"""Landing of a batch, step by step, and of a batch whose file is lost on the gateway's disk."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import OncewayError
from gateway.uplink.lander import NumberLost, NumberTaken, land
from gateway.uplink.landing import Claimed, Unreachable
from gateway.uplink.manifest import Manifest, Origin, sha256

DATA, SIGNED = b"rows", b"signed"
OF = Manifest(Origin("site", "0123abcd"), 7, 1, len(DATA), sha256(DATA))


@pytest.mark.parametrize(
    ("there", "landed"),
    [
        ({OF.data_name: DATA, OF.name: SIGNED}, True),
        ({OF.data_name: b"others", OF.name: SIGNED}, False),
        ({OF.name: SIGNED}, False),
        ({OF.data_name: DATA, OF.name: b"another's"}, False),
        ({OF.data_name: DATA}, False),
        ({}, False),
    ],
)
def test_lost_batch_leaves_the_spool_only_if_it_has_landed(
    there: dict[str, bytes], landed: bool
) -> None:
    done: list[str] = []
    cut: Any = SimpleNamespace(number=7, rows=1, size=len(DATA), sha256=sha256(DATA))
    spool: Any = SimpleNamespace(origin=lambda: OF.origin, landed=lambda _: done.append("landed"))
    cutter: Any = SimpleNamespace(load=lambda _: None, forget=lambda _: done.append("forgotten"))
    signer: Any = SimpleNamespace(publish=lambda _: SIGNED)
    landing: Any = SimpleNamespace(read=there.get, read_synced=there.get)
    try:
        land(cut, spool, cutter, landing, signer)
    except NumberLost as error:
        done.append(error.what)
    lost = ["batch 7 is damaged on this disk and has not landed"]
    assert done == (["landed", "forgotten"] if landed else lost)


class Place:
    """A landing place that records calls. there: content of the files, by name. kept: number of
    bytes of each new file that it stores; None: all.
    """

    url = "there:"

    def __init__(self, there: dict[str, bytes], kept: int | None = None) -> None:
        self.there, self.kept, self.calls = there, kept, list[tuple[str, str]]()

    def create(self, name: str, data: bytes) -> bool:
        self.calls.append(("create", name))
        fresh = name not in self.there
        self.there.setdefault(name, data[: self.kept])
        return fresh

    def read(self, name: str) -> bytes | None:
        self.calls.append(("read", name))
        return self.there.get(name)

    def read_synced(self, name: str) -> bytes | None:
        self.calls.append(("read synced", name))
        return self.there.get(name)

    def holds(self, name: str, data: bytes) -> bool:
        self.calls.append(("holds", name))
        return self.there.get(name) == data


def landed(place: Any, **how: bool) -> list[tuple[str, str]]:
    """Land the batch. Return all calls, until the batch has left the spool and the disk."""
    cut: Any = SimpleNamespace(number=7, rows=1, size=len(DATA), sha256=sha256(DATA))

    def note(what: str) -> Any:
        return lambda of: place.calls.append((what, of.number))

    spool: Any = SimpleNamespace(origin=lambda: OF.origin, landed=note("landed"))
    cutter: Any = SimpleNamespace(load=lambda of: of is cut and DATA, forget=note("forgotten"))
    signer: Any = SimpleNamespace(publish=lambda manifest: manifest == OF and SIGNED)
    land(cut, spool, cutter, place, signer, **how)
    assert place.there == {OF.data_name: DATA, OF.name: SIGNED}
    return place.calls


END = [("landed", 7), ("forgotten", 7)]


@pytest.mark.parametrize("read_back", [False, True])
def test_batch_leaves_the_spool_after_both_files_were_seen_there(read_back: bool) -> None:
    assert landed(Place({}), **({"read_back": True} if read_back else {})) == [
        ("create", OF.data_name),
        ("read synced" if read_back else "holds", OF.data_name),
        ("create", OF.name),
        ("read synced", OF.name),
        *END,
    ]


def test_files_that_are_there_are_compared() -> None:
    assert landed(Place({OF.data_name: DATA})) == [
        ("create", OF.data_name),
        ("read synced", OF.data_name),
        ("create", OF.name),
        ("read synced", OF.name),
        *END,
    ]


class Vanishing(Place):
    """A landing place whose `create` says that the name exists, and which then loses its files."""

    def create(self, name: str, data: bytes) -> bool:
        super().create(name, data)
        self.there.clear()
        return False


class Held(Place):
    def create(self, name: str, data: bytes) -> bool:
        raise Claimed("another has it", "here")


@pytest.mark.parametrize(
    ("place", "kind", "what", "where"),
    [
        (
            Place({}, 3),
            Unreachable,
            f"{OF.data_name} was written, but reads back with other bytes",
            "there:",
        ),
        (
            Vanishing({}),
            Unreachable,
            f"the landing place refused {OF.data_name} because the name exists, but",
            "there:",
        ),
        (
            Place({OF.data_name: b""}),
            NumberTaken,
            f"a file {OF.data_name} with other bytes exists",
            "there:",
        ),
        (
            Place({OF.name: b"x"}),
            NumberTaken,
            f"a file {OF.name} with other bytes exists",
            "there:",
        ),
        (Held({}), NumberTaken, "another has it", "here"),
    ],
)
def test_batch_stays_in_the_spool_unless_both_files_are_right(
    place: Place, kind: type[OncewayError], what: str, where: str
) -> None:
    with pytest.raises(OncewayError) as caught:
        landed(place)
    assert type(caught.value) is kind
    assert caught.value.what.startswith(what)
    assert caught.value.where == where
    assert not {*END} & {*place.calls}
