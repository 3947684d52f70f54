"""The ingest finds new batches by the markers of uplinks. The cost does not grow with the number of
gateways. It finds batches without a marker later.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ingest.landing import directory as directory_module
from gateway.ingest.landing import offsets as offsets_module
from gateway.ingest.landing import place as place_module
from gateway.ingest.landing.directory import ROUND_S, Directory
from gateway.ingest.landing.offsets import Feeds, Offset
from gateway.ingest.landing.place import Landing
from gateway.uplink.landing import open_landing
from gateway.uplink.manifest import Origin, marker_name
from tests.ingest.batches import EPOCH, land, row

URL = "memory://landing"
ALL = 10**9
GATEWAYS = [f"site-{number}" for number in range(20)]


class Clock:
    now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(directory_module, "time", found)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests to the landing place, by the name of the function."""
    found: Counter[str] = Counter()
    memory = type(fsspec.filesystem("memory"))
    for name in ("ls", "cat_file", "exists", "modified"):
        real = getattr(memory, name)

        def counting(self: Any, *a: Any, _name: str = name, _real: Any = real, **k: Any) -> Any:
            found[_name] += 1
            return _real(self, *a, **k)

        monkeypatch.setattr(memory, name, counting)
    return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator["Place"]:
    yield Place(tmp_path)
    fsspec.filesystem("memory").rm("/landing", recursive=True)


class Place:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fs = fsspec.filesystem("memory")

    def land(self, gateway: str, number: int, told: bool = True, epoch: str = EPOCH) -> None:
        """Land a batch. told: whether its marker is written, too."""
        manifest = land(self._folder, gateway, number, [row("dev", number)], epoch)
        for name in (manifest.data_name, manifest.name):
            self._fs.pipe_file(f"/landing/{name}", (self._folder / name).read_bytes())
        if told:
            old = marker_name(manifest.origin, number - 1) if number > 1 else None
            open_landing(URL).move_marker(old, marker_name(manifest.origin, number))

    def fill(self, told: bool = True) -> Offset:
        for gateway in GATEWAYS:
            self.land(gateway, 1, told)
        return {f"{gateway}/{EPOCH}": 1 for gateway in GATEWAYS}


def test_pass_without_new_batches_makes_two_requests_for_any_number_of_gateways(
    place: Place, clock: Clock, asked: Counter[str]
) -> None:
    offset = place.fill()
    feeds = Feeds(Landing(URL))
    assert feeds.advance({}, ALL) == offset
    asked.clear()
    assert feeds.advance(offset, ALL) == offset
    assert asked == {"ls": 2}


@pytest.mark.parametrize("down", ["ls", "cat_file"])
def test_an_outage_costs_no_gateway_its_turn(
    place: Place, clock: Clock, monkeypatch: pytest.MonkeyPatch, down: str
) -> None:
    """During the outage, a full pass over all gateways was due. The first pass after the outage is
    a full one, too, so it finds a batch without a marker.
    """
    monkeypatch.setattr(place_module, "PAUSES", (None,))
    monkeypatch.setattr(place_module, "ANSWERED_S", 0.0)
    offset = place.fill()
    feeds = Feeds(Landing(URL))
    assert feeds.advance({}, ALL) == offset
    place.land("site-3", 2, told=False)
    clock.now += ROUND_S

    def fail(*_: Any, **__: Any) -> None:
        raise TimeoutError("no answer in time")

    with monkeypatch.context() as patch:
        memory = type(fsspec.filesystem("memory"))
        patch.setattr(memory, down, fail)
        patch.setattr(Landing, "refuse_outage", fail)
        with pytest.raises(OSError, match="no answer"):
            feeds.advance(offset, ALL)
    clock.now += 1
    assert feeds.advance(offset, ALL) == offset | {f"site-3/{EPOCH}": 2}


def test_a_full_pass_costs_no_gateway_its_turn(place: Place, clock: Clock) -> None:
    offset = place.fill()
    feeds = Feeds(Landing(URL))
    assert feeds.advance({}, ALL) == offset
    for gateway in GATEWAYS:
        place.land(gateway, 2, told=False)
    clock.now += ROUND_S
    for taken in range(1, len(GATEWAYS) + 1):
        offset = feeds.advance(offset, 1)
        assert sum(offset.values()) == len(GATEWAYS) + taken
        clock.now += 1


def test_without_markers_it_asks_each_gateway_as_before(
    place: Place, clock: Clock, asked: Counter[str]
) -> None:
    offset = place.fill(told=False)
    feeds = Feeds(Landing(URL))
    feeds.advance({}, ALL)
    asked.clear()
    place.land("site-3", 2, told=False)
    assert feeds.advance(offset, ALL) == offset | {f"site-3/{EPOCH}": 2}
    assert asked["cat_file"] >= len(GATEWAYS)


def test_news_cost_one_look_each(place: Place, clock: Clock, asked: Counter[str]) -> None:
    offset = place.fill()
    feeds = Feeds(Landing(URL))
    feeds.advance({}, ALL)
    for number in (2, 3, 4):
        place.land("site-3", number)
    place.land("new", 1)
    asked.clear()
    assert feeds.advance(offset, ALL) == offset | {f"site-3/{EPOCH}": 4, f"new/{EPOCH}": 1}
    # three manifests, and the new gateway, whose whole folder is listed
    assert asked["cat_file"] <= 3 + 2 + 1
    assert asked["ls"] == 2 + 1


def test_batch_without_a_marker_is_found_within_an_hour(place: Place, clock: Clock) -> None:
    """The gateway died after it had landed the manifest, before it landed the marker."""
    offset = place.fill()
    feeds = Feeds(Landing(URL))
    feeds.advance({}, ALL)
    place.land("site-3", 2, told=False)
    place.land("site-4", 1, told=False, epoch="ffffffff")
    assert feeds.advance(offset, ALL) == offset
    for _ in range(ROUND_S // 30):
        clock.now += 30
        offset = feeds.advance(offset, ALL)
    assert (offset[f"site-3/{EPOCH}"], offset["site-4/ffffffff"]) == (2, 1)


def test_the_first_pass_looks_at_everything(place: Place, clock: Clock) -> None:
    """The first pass also finds batches without a marker. So a single pass (`--available-now`)
    misses no batch.
    """
    place.fill()
    place.land("site-3", 2, told=False)
    feeds = Feeds(Landing(URL))
    assert feeds.advance({}, ALL)[f"site-3/{EPOCH}"] == 2
    assert feeds.advance({}, ALL, Feeds(Landing(URL)).newest({}))[f"site-3/{EPOCH}"] == 2


def test_marker_of_a_missing_batch_holds_only_its_feed(
    place: Place,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(offsets_module, "HOLE_CHECK_SECONDS", 0.0)
    offset = place.fill()
    feeds = Feeds(Landing(URL))
    feeds.advance({}, ALL)
    place.land("site-3", 400)  # batches 2 to 399 are missing
    place.land("site-4", 2)
    with caplog.at_level(logging.INFO):
        offset = feeds.advance(offset, ALL)
        assert offset[f"site-4/{EPOCH}"] == 2
        assert f"held: site-3/{EPOCH} waits for batch 2" in caplog.text
        for number in range(2, 400):
            place.land("site-3", number, told=False)
        assert feeds.advance(offset, ALL)[f"site-3/{EPOCH}"] == 400
        assert "continues" in caplog.text


def test_markers_of_strangers_lead_nowhere(place: Place, clock: Clock) -> None:
    offset = place.fill()
    fs = fsspec.filesystem("memory")
    for name in (f"site-3.{EPOCH}.999999999999", f"..{EPOCH}.000000000001", "x", "a.b.c", "é"):
        fs.pipe_file(f"/landing/_newest/{name}", b"")
    feeds = Feeds(Landing(URL))
    assert feeds.advance({}, ALL) == offset
    assert feeds.advance(offset, ALL) == offset


@given(st.lists(st.floats(0.1, 2 * ROUND_S), min_size=1, max_size=60))
def test_each_gateway_has_its_turn_in_each_hour(pauses: list[float]) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory_module, "time", clock)
        directory = Directory(Landing("memory://none"), lambda function, items: [])
        assert directory._turn(GATEWAYS) == set(GATEWAYS)
        last = dict.fromkeys(GATEWAYS, clock.now)
        for pause in pauses:
            clock.now += pause
            for gateway in directory._turn(GATEWAYS):
                last[gateway] = clock.now
            for gateway in GATEWAYS:
                assert clock.now - last[gateway] <= ROUND_S + max(pauses)


def test_markers_that_were_left_behind_are_tidied_up(place: Place) -> None:
    place.fill()
    place.land("site-3", 3)  # the marker of batch 1 stays, as after a crash
    assert Landing(URL).tidy_markers() == 1
    assert Landing(URL).tidy_markers() == 0
    assert Landing(URL).markers()[f"site-3/{EPOCH}"] == 3


def test_names_of_markers_read_back() -> None:
    from gateway.uplink.manifest import parse_marker

    origin = Origin("a.b c.é", EPOCH)
    name = marker_name(origin, 42).rpartition("/")[2]
    assert parse_marker(name) == (origin, 42)
    assert parse_marker("a.0a1b2c3d.42") is None
