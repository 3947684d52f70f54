"""Landing places that behave like mounted NFS and SMB folders. Each name is landed once. The centre
reads correctly, although its client caches old answers.
"""

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gateway.ingest.jobs.source import BatchList, read_batches
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import Landing
from gateway.uplink.landing import Way, open_landing
from tests.uplink.mounted import KEPT_S, Mounted, Nfs, Smb
from tests.uplink.twins import clone, land, nothing_is_lost_or_doubled, spooled

ALL = 10**9


@pytest.fixture(params=[Nfs, Smb], ids=lambda kind: kind.protocol)
def kind(request) -> type[Mounted]:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    Mounted.now_s = 0.0
    yield request.param
    MemoryFileSystem.store.clear()


def test_the_way_is_proven_and_a_taken_name_is_refused(kind):
    landing = open_landing(f"{kind.protocol}://place")
    assert landing.prove("site-1") is (Way.RENAME if kind is Smb else Way.CLAIM_FILE)
    assert landing.create("site-1/00c0ffee/1.json", b"first")
    assert not landing.create("site-1/00c0ffee/1.json", b"second")
    for text in (b"1", b"2", b"3"):
        landing.replace("site-1/owner.json", text)
    assert landing.read("site-1/owner.json") == b"3"
    assert landing.read("site-1/00c0ffee/1.json") == b"first"


def test_each_reading_lands_once_and_the_centre_takes_it_when_its_client_sees_it(kind, data):
    url = f"{kind.protocol}://place"
    MemoryFileSystem().makedirs("place")
    feeds = Feeds(Landing(url))
    offset, taken = {}, []
    for _ in range(4):
        data.add(5)
        assert land(data, lambda: open_landing(url)) is None
        before, offset = offset, feeds.advance(offset, ALL)
        Mounted.now_s += KEPT_S
        offset = feeds.advance(offset, ALL)
        for chunk in read_batches(Landing(url), BatchList(0, feeds.between(before, offset))):
            assert chunk["flaw"].null_count == len(chunk)
            taken += chunk["sequence"].to_pylist()
    assert sorted(taken) == list(range(1, 21))
    assert data.spool_ids() == []


def test_a_cloned_card_replaces_nothing(kind, data, tmp_path):
    connect = lambda: open_landing(f"{kind.protocol}://place")  # noqa: E731
    data.add(10)
    assert land(data, connect) is None
    twin = clone(data, tmp_path / "twin")
    data.add(10)
    twin.add(10)
    readings = set(range(1, 21)) | set(range(10_011, 10_021))
    for one in (data, twin, data, twin):
        land(one, connect)
        nothing_is_lost_or_doubled(connect, readings, data, twin)
    assert spooled(data) == set() or spooled(twin) == set()


def test_a_name_that_a_client_remembers_as_free_is_not_replaced(kind):
    """The client's cache still says that the name is free. A read asks the server, so no file is
    replaced.
    """
    one, other = (open_landing(f"{kind.protocol}://place") for _ in range(2))
    name = "site-1/00c0ffee/1.json"
    for landing in (one, other):
        landing.prove("site-1")
    assert not other.stands(name)
    assert one.create(name, b"first")
    assert not other.stands(name)
    assert not other.create(name, b"second")
    assert one.read(name) == b"first"
