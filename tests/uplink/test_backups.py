"""Backups at each kind of landing place, on real servers: they are complete or in pieces, and the
oldest ones are removed.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.backup import landing as at_landing
from gateway.backup.landing import Pieces, put, remove_old
from gateway.uplink.landing import Landing
from tests.uplink.test_places import place

__all__ = ["place"]
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    file = tmp_path / "whole"
    file.write_bytes(bytes(range(256)) * 10)
    return file


def stored(place: Landing) -> list[str]:
    return sorted(name for name in place.names_in("site-7/backups") if not name.startswith("."))


def make(place: Landing, file: Path, *times: datetime, keep: int) -> None:
    for now in times:
        put(place, "site-7", "00c0ffee", file, now)
        remove_old(place, "site-7", keep, now)


def test_the_newest_stay_and_are_whole(place: Landing, whole: Path) -> None:
    make(place, whole, *(NOON + index * DAY for index in range(5)), keep=3)
    names = stored(place)
    assert names == [f"2026060{day}T120000Z-00c0ffee.owback" for day in (3, 4, 5)]
    assert place.read(f"site-7/backups/{names[0]}") == whole.read_bytes()


def test_a_large_one_goes_in_pieces_and_is_read_as_one(
    place: Landing, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_landing, "PIECE", 1000)
    make(place, whole, NOON, NOON + DAY, keep=1)
    names = stored(place)
    first = "20260602T120000Z-00c0ffee.owback"
    assert names == [first, f"{first}.001", f"{first}.002"]
    for name in names:
        (tmp_path / name).write_bytes(place.read(f"site-7/backups/{name}") or b"")
    assert Pieces(tmp_path / first).readall() == whole.read_bytes()
    place.discard(f"site-7/backups/{first}")
    make(place, whole, NOON + 2 * DAY, keep=1)
    assert [name[:8] for name in stored(place)] == ["20260603"] * 3, "pieces without a first one go"
