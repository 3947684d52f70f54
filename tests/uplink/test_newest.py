"""The marker of a gateway, which names its newest batch, on real servers. Errors with markers are
ignored.
"""

import threading
from pathlib import Path

import fsspec
import pytest

from gateway.config import UplinkSection
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import Landing, Unreachable, open_landing
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool


def uplink(data, url: str, options: dict, connect=open_landing, count: int = 10) -> None:
    with Spool(data.path) as spool:
        settings = UplinkSection(landing=url, batch_count=count)
        Uplink(
            spool,
            Cutter(spool, data.path, settings),
            settings,
            lambda: connect(url, options),
            load_or_make(data.path),
        ).run(threading.Event(), once=True)


@pytest.fixture(params=["sftp", "s3", "memory"])
def server(request, tmp_path):
    """Yield URL and options of a landing place that only this test uses."""
    if request.param == "memory":
        yield f"memory://{tmp_path.name}", {}
        return
    found = request.getfixturevalue(request.param)
    yield (
        f"{found.url()}/{tmp_path.name}",
        (found.options if request.param == "sftp" else found.options()),
    )


def names(url: str, options: dict) -> list[str]:
    """Return the names of the markers."""
    fs, root = fsspec.core.url_to_fs(url, **options, skip_instance_cache=True)
    try:
        return sorted(str(path).rpartition("/")[2] for path in fs.ls(f"{root}/_newest", False))
    except FileNotFoundError:
        return []


class Counted:
    """Opens landing places, and records each call that moves a marker."""

    def __init__(self) -> None:
        self.moved: list[tuple[str | None, str]] = []

    def __call__(self, url: str, options: dict) -> Landing:
        landing = open_landing(url, options)
        real = landing.move_marker

        def move(old: str | None, new: str) -> bool:
            self.moved.append((old, new))
            return real(old, new)

        landing.move_marker = move  # type: ignore[method-assign]
        return landing


def test_one_marker_stands_there_and_says_the_last_batch(data, server) -> None:
    data.add(50)
    counted = Counted()
    uplink(data, *server, connect=counted)
    assert names(*server) == ["site-1.00c0ffee.000000000005"]
    assert len(counted.moved) == 2, "the first and the last of a backlog"
    data.add(10)
    uplink(data, *server)
    found = names(*server)
    assert found[-1] == "site-1.00c0ffee.000000000006"


def test_next_start_writes_a_missing_marker(data, server) -> None:
    """The first uplink cannot write its marker, as if it had crashed just before that."""
    data.add(10)

    def without(url: str, options: dict) -> Landing:
        landing = open_landing(url, options)
        landing.move_marker = lambda old, new: False  # type: ignore[method-assign]
        return landing

    uplink(data, *server, connect=without)
    assert names(*server) == []
    uplink(data, *server)
    assert names(*server) == ["site-1.00c0ffee.000000000001"]


def test_a_place_for_markers_that_is_closed_stops_nothing(data, server, caplog) -> None:
    data.add(30)

    def closed(url: str, options: dict) -> Landing:
        landing = open_landing(url, options)

        def refuse(old: str | None, new: str) -> bool:
            raise Unreachable("cannot write: no permission", url)

        landing.move_marker = refuse  # type: ignore[method-assign]
        return landing

    uplink(data, *server, connect=closed)
    assert data.spool_ids() == []
    assert caplog.text.count("the centre may find batches of this gateway late") == 1


def test_a_folder_needs_no_markers(data, drain, tmp_path: Path) -> None:
    data.add(10)
    drain(data, tmp_path / "landing")
    assert not (tmp_path / "landing" / "_newest").exists()
