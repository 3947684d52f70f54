"""SFTP servers that lack or break guarantees of other servers. In each case, a reading is in the
spool or at the landing place, and never there twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gateway.uplink.landing import Landing, Unreachable, open_landing
from tests.uplink.conftest import GatewayData
from tests.uplink.sftp_kinds import Kind, SftpOfKind, sftp_of_kind
from tests.uplink.twins import land, numbers, published, spooled

RENAMES = {
    "rename refuses": Kind(),
    "rename replaces": Kind("replaces"),
    "rename replaces, no links": Kind("replaces", hardlink=False),
    "no posix-rename": Kind(posix_rename=False),
    "no rename": Kind("never"),
    "no fsync": Kind(fsync=False),
    "no fsync, no links": Kind("replaces", hardlink=False, fsync=False),
}

IN_THE_GATE = ("rename refuses",)


@pytest.fixture(
    params=[
        pytest.param(kind, id=name, marks=[] if name in IN_THE_GATE else pytest.mark.soak)
        for name, kind in RENAMES.items()
    ]
)
def server(request, tmp_path) -> Iterator[SftpOfKind]:
    with sftp_of_kind(tmp_path / "server", replace(request.param)) as running:
        yield running


def connects(server: SftpOfKind) -> Callable[[], Landing]:
    return lambda: open_landing(server.url(), server.options)


def nothing_is_lost(data: GatewayData, connect: Callable[[], Landing]) -> None:
    there = numbers([row[5] for row in published(connect)])
    assert there | spooled(data) >= set(range(1, data.added + 1))
    assert len(published(connect)) == len(there), "a reading twice"


def test_batches_land(server, data):
    data.add(25)
    assert land(data, connects(server)) is None
    assert data.spool_ids() == []
    nothing_is_lost(data, connects(server))


@pytest.mark.soak
@pytest.mark.parametrize("room", [0, 1, 700, 1500, 2500])
def test_a_quota_that_is_full_in_the_middle_is_an_outage_that_heals(server, data, room):
    data.add(10)
    assert land(data, connects(server)) is None
    data.add(40)
    server.kind.quota = room
    for _ in range(3):
        error = land(data, connects(server))
        assert isinstance(error, Unreachable)
        assert "Disk quota exceeded" in str(error)
        server.kind.quota = 0
    hidden = [path for path in server.root.rglob(".incoming/*") if path.is_file()]
    assert len(hidden) <= 1, "each try left a file"
    server.kind.quota = None
    nothing_is_lost(data, connects(server))
    assert land(data, connects(server)) is None
    assert data.spool_ids() == []
    nothing_is_lost(data, connects(server))


@pytest.mark.parametrize(
    "size", [lambda n: n + 1, lambda n: max(0, n - 1), lambda n: 0], ids=["more", "less", "none"]
)
def test_a_server_that_lies_about_sizes_is_not_believed(server, data, size):
    data.add(10)
    server.kind.size = size
    error = land(data, connects(server))
    assert isinstance(error, Unreachable), error
    assert data.spool_ids(), "rows left the spool on a lie"
    server.kind.size = lambda n: n
    assert land(data, connects(server)) is None
    assert data.spool_ids() == []
    nothing_is_lost(data, connects(server))


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_closes_at_a_rename_is_an_outage_that_heals(server, data, when):
    closes = {"rename", "posix_rename", "link"}
    data.add(10)
    assert land(data, connects(server)) is None
    data.add(10)
    server.kind.at = lambda request, path: when if request in closes else None
    for _ in range(3):
        error = land(data, connects(server))
        nothing_is_lost(data, connects(server))
    server.kind.at = lambda request, path: None
    assert error is None or isinstance(error, Unreachable)
    assert land(data, connects(server)) is None
    assert data.spool_ids() == []
    nothing_is_lost(data, connects(server))


def test_account_without_read_permission_gets_an_error(tmp_path, data):
    with sftp_of_kind(tmp_path / "server", Kind()) as server:
        above = server.kind.at
        server.kind.denied = frozenset({"stat", "lstat"})
        data.add(10)
        error = land(data, connects(server))
        assert isinstance(error, Unreachable)
        assert "not allowed" in str(error)
        assert data.spool_ids()
        server.kind.at = above
