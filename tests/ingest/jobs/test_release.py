"""Batches in quarantine that are read again while the stream runs, without Java."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from gateway.ingest.jobs import release as releasing
from gateway.ingest.landing.keys import Keys, save
from gateway.ingest.landing.place import Landing
from gateway.ingest.landing.trust import Trust
from tests.ingest.batches import EPOCH, land, row

FEED = f"site/{EPOCH}"
NOTHING: Any = None


class Quarantine:
    """A table of the batches 1 to 4 of a feed. has_unreadable: as in the real one. is_down: whether
    it cannot be read.
    """

    has_unreadable = True
    is_down = False

    def open(self, _: str = "") -> list[tuple[str, int]]:
        if self.is_down:
            raise TimeoutError
        return [(FEED, number) for number in range(1, 5)]


@pytest.fixture
def sink() -> Any:
    return SimpleNamespace(quarantine=Quarantine(), lock=nullcontext())


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    save(str(tmp_path / "trusted.json"), Keys(unsigned=True))
    return Trust(str(tmp_path / "trusted.json"), True)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    for number in range(1, 5):
        land(tmp_path / "landing", "site", number, [row("dev", number), row("dev", number + 10)])
    return tmp_path / "landing"


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, int]]]:
    """Return the batches of each release. Nothing is released."""
    found: list[list[tuple[str, int]]] = []

    def release(_: object, __: object, ___: object, ____: object, wanted: Any) -> int:
        found.append(wanted)
        return 0

    monkeypatch.setattr(releasing, "_release", release)
    return found


def test_only_whole_batches_are_taken_out_of_quarantine(
    sink: Any, trust: Trust, landing: Path, released: list[list[tuple[str, int]]]
) -> None:
    folder = landing / FEED
    (folder / f"{2:012d}.parquet").write_bytes(b"half copied")
    (folder / f"{3:012d}.json").unlink()
    (folder / f"{4:012d}.parquet").unlink()
    (folder / f"{4:012d}.parquet").mkdir()
    releasing.take_whole(NOTHING, sink, Landing(str(landing)), trust)
    assert released == [[(FEED, 1)]]
    (folder / f"{1:012d}.json").unlink()
    releasing.take_whole(NOTHING, sink, Landing(str(landing)), trust)
    assert len(released) == 1, "nothing is whole, and yet something was released"


def test_outage_during_a_retry_leaves_the_batches_for_the_next_retry(
    sink: Any, trust: Trust, landing: Path, released: list[list[tuple[str, int]]]
) -> None:
    def retry() -> None:
        releasing.try_again(NOTHING, sink, Landing(str(landing)), trust)

    sink.quarantine.is_down = True
    with pytest.raises(TimeoutError):
        retry()
    sink.quarantine.is_down = False
    assert sink.quarantine.has_unreadable
    retry()
    retry()
    assert len(released) == 1, "without an unreadable batch, the table is not asked"


def test_repaired_batches_are_read_in_portions_of_some_rows(
    trust: Trust, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releasing, "CHUNK_ROWS", 3)
    trust.refresh()
    wanted = [(FEED, number) for number in (1, 2, 3, 9)]
    portions = list(releasing._portions(Landing(str(landing)), trust, wanted))
    assert [[one.number for one in portion] for portion in portions] == [[1, 2], [3, 9]]
    assert portions[1][1].flaw == "the manifest is missing"
