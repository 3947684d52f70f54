"""A store that is busy, or whose answers get lost: batches land by themselves, each once."""

import random

import pytest

from gateway.uplink.landing import Unreachable, open_landing
from gateway.uplink.landing import s3 as landing_s3
from tests.uplink.s3_lax import LaxS3, lax_s3
from tests.uplink.twins import land, published


@pytest.fixture
def proxy(s3, monkeypatch):
    """A proxy that passes everything on, and an uplink that waits a tenth as long."""
    monkeypatch.setattr(landing_s3, "_PAUSES_S", [one / 10 for one in landing_s3._PAUSES_S])
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as found:
        found.heeds = True
        yield found


def connect_to(s3, proxy: LaxS3, folder: str):
    return lambda: open_landing(f"{s3.url()}/{folder}", s3.options(proxy.port))


@pytest.mark.parametrize(
    "answer",
    [
        (503, "SlowDown"),
        *(
            pytest.param((status, code), marks=pytest.mark.soak)
            for status, code in [
                (500, "InternalError"),
                (429, "Throttling"),
                (409, "OperationAborted"),
            ]
        ),
    ],
)
def test_batches_land_while_a_store_refuses_four_in_ten_requests(s3, proxy, data, answer):
    drawn = random.Random(4)
    proxy.busy = lambda: answer if drawn.random() < 0.4 else None
    connect = connect_to(s3, proxy, f"busy-{answer[0]}")
    data.add(50)
    assert land(data, connect) is None
    proxy.busy = lambda: None
    assert len(published(connect)) == 50
    assert data.spool_ids() == []


def test_an_answer_that_is_final_is_not_asked_for_again(s3, proxy):
    asked = []

    def refused():
        asked.append(1)
        return (501, "NotImplemented")

    proxy.busy = refused
    with pytest.raises(Unreachable, match="NotImplemented"):
        connect_to(s3, proxy, "final")().replace("site-1/x", b"1")
    assert len(asked) == 1


def test_a_put_whose_answer_is_lost_lands_once(s3, proxy, data):
    lost = []

    def losing(method, path):
        if method != "PUT" or path in lost or "/.claims/" in path:
            return False
        lost.append(path)
        return True

    proxy.losing = losing
    connect = connect_to(s3, proxy, "lost")
    data.add(20)
    while (error := land(data, connect)) is not None:
        assert isinstance(error, Unreachable)
    assert [path for path in lost if path.endswith((".parquet", ".json"))]
    proxy.losing = lambda method, path: False
    assert len(published(connect)) == 20
    assert data.meta("epoch") == "00c0ffee", "no number was given up"


@pytest.mark.parametrize("name", ["with space", "a#b", "100%", "a+b", "größe-λ", "a&b=c", "q?x"])
def test_names_that_urls_write_otherwise_stand_as_they_are(s3, name):
    landing = open_landing(f"{s3.url()}/odd", s3.options())
    path = f"{name}/0a1b2c3d/000000000001.json"
    assert landing.create(path, b"one") is True
    assert landing.create(path, b"two") is False
    assert landing.read(path) == b"one"
    assert landing.holds(path, b"one")
    assert landing.epochs(name) == ["0a1b2c3d"]
    landing.close()


@pytest.mark.soak
def test_more_than_a_thousand_objects_hide_no_epoch(s3):
    landing = open_landing(f"{s3.url()}/many", s3.options())
    for number in range(1, 1006):
        landing.replace(f"site-1/{number:08x}/x", b"")
    assert len(landing.epochs("site-1")) == 1005
    landing.close()
