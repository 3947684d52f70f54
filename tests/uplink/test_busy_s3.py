"""An S3 store that is busy, or whose responses get lost. Batches still land, each once."""

import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from botocore import auth

from gateway.uplink.landing import Unreachable, open_landing
from gateway.uplink.landing import s3 as landing_s3
from tests.uplink.s3_lax import LaxS3, lax_s3
from tests.uplink.servers import wait_until
from tests.uplink.twins import land, published


@pytest.fixture
def proxy(s3, monkeypatch):
    """Yield a proxy that forwards all requests. The uplink's pauses are a tenth of the real
    ones.
    """
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


@pytest.mark.soak
@pytest.mark.parametrize("skew_s", [-600, 600])
def test_a_clock_that_is_ten_minutes_off_is_no_outage(s3, data, skew_s, monkeypatch):
    right = auth.get_current_datetime

    def wrong(remove_tzinfo: bool = True) -> datetime:
        return right(remove_tzinfo) + timedelta(seconds=skew_s)

    monkeypatch.setattr(auth, "get_current_datetime", wrong)
    connect = lambda: open_landing(f"{s3.url()}/skew{skew_s}", s3.options())  # noqa: E731
    data.add(5)
    assert land(data, connect) is None
    assert len(published(connect)) == 5


@pytest.mark.soak
def test_a_bucket_that_keeps_versions_has_each_batch_once(s3, data):
    landing = open_landing(f"{s3.url()}/versions", s3.options())
    settings = {"Status": "Enabled"}
    landing._fs.call_s3("put_bucket_versioning", Bucket=s3.BUCKET, VersioningConfiguration=settings)
    connect = lambda: open_landing(f"{s3.url()}/versions", s3.options())  # noqa: E731
    try:
        for _ in range(3):
            data.add(5)
            assert land(data, connect) is None
        assert len(published(connect)) == 15
        assert landing.create("site-1/00c0ffee/000000000001.json", b"other") is False
        found = landing._fs.call_s3(
            "list_object_versions", Bucket=s3.BUCKET, Prefix="gateways/versions/site-1/00c0ffee/"
        )
        kept = [one["Key"] for one in found["Versions"]]
        assert len(kept) == len(set(kept)), "a batch was put over another"
    finally:
        settings["Status"] = "Suspended"
        landing._fs.call_s3(
            "put_bucket_versioning", Bucket=s3.BUCKET, VersioningConfiguration=settings
        )
        landing.close()


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


def write_keys(file: Path, key: str) -> None:
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = s\n")


def test_keys_that_are_replaced_in_their_file_count_at_the_next_connection(
    s3, proxy, data, tmp_path, monkeypatch
):
    keys = tmp_path / "keys"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    options = {"endpoint_url": f"http://127.0.0.1:{proxy.port}"}

    def connect():
        return open_landing(f"{s3.url()}/rotated", options)

    write_keys(keys, "OLD")
    proxy.valid = "OLD"
    data.add(5)
    assert land(data, connect) is None
    proxy.valid = "NEW"
    data.add(5)
    error = land(data, connect)
    assert isinstance(error, Unreachable)
    assert "Look at the key" in str(error)
    write_keys(keys, "NEW")
    assert land(data, connect) is None
    proxy.valid = None
    assert len(published(connect)) == 10


def test_keys_that_are_replaced_under_a_running_uplink_are_taken_by_itself(
    s3, proxy, data, onceway, tmp_path
):
    """Without systemd, the uplink reads the keys from uplink.env next to the configuration."""
    config, env = tmp_path / "gateway.toml", tmp_path / "uplink.env"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n'
        f'[uplink]\nlanding = "{s3.url()}/running"\nbatch_age_s = 0.1\nretry_s = 1\n'
        f'[uplink.options]\nendpoint_url = "http://127.0.0.1:{proxy.port}"\n'
    )

    def keys(name: str) -> None:
        env.write_text(f"AWS_ACCESS_KEY_ID={name}\nAWS_SECRET_ACCESS_KEY=s\n")
        proxy.valid = name

    keys("OLD")
    process = onceway.start("uplink", "run", "--config", config)
    try:
        for name in ("NEW", "NEWER"):
            data.add(5)
            wait_until(lambda: not data.spool_ids(), "the batch to land")
            keys(name)
        data.add(5)
        wait_until(lambda: not data.spool_ids(), "the batch to land with the new key")
    finally:
        process.terminate()
        assert process.wait(20) == 0
