"""The ingest reads landing places on real servers: OpenSSH's SFTP, and SeaweedFS as S3. A proxy
breaks connections to them.
"""

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore import auth

from gateway.ingest import busy
from gateway.ingest.clean import say
from gateway.ingest.jobs.source import BatchList, read_batches
from gateway.ingest.landing import keys
from gateway.ingest.landing import place as landing_module
from gateway.ingest.landing.keys import Keys
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import Landing
from gateway.ingest.sink.data_files import DataFiles
from tests.ingest.batches import EPOCH, land, row
from tests.uplink.s3_lax import LaxS3, lax_s3
from tests.uplink.servers import FaultProxy, S3Server, SftpServer, s3_server, sftp_server

FEEDS = {f"site/{EPOCH}": 3, f"twin/{EPOCH}": 1}
KINDS = ("parquet", "json")
SEQUENCES = [*range(10, 13), *range(20, 23), *range(30, 33), *range(40, 43)]


def fill(folder: Path) -> None:
    for number in (1, 2, 3):
        land(folder, "site", number, [row("dev", number * 10 + position) for position in range(3)])
    land(folder, "twin", 1, [row("dev", 40 + position) for position in range(3)])


def read_all(landing: Landing) -> list[int]:
    """Read all batches. Return the sequences, sorted."""
    feeds = Feeds(landing)
    offset = feeds.advance({}, 10**9)
    assert offset == FEEDS
    chunks = read_batches(landing, BatchList(0, feeds.between({}, offset)))
    return sorted(sequence for one in chunks for sequence in one["sequence"].to_pylist())


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing_module, "PAUSES", (0.05, 0.2, None))


@pytest.fixture(scope="module")
def sftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SftpServer]:
    with sftp_server(tmp_path_factory.mktemp("sshd")) as server:
        fill(server.root / "landing")
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("weed")) as server:
        folder = tmp_path_factory.mktemp("batches")
        fill(folder)
        fsspec.filesystem("s3", **server.options(), skip_instance_cache=True).put(
            f"{folder}/", server.url(), recursive=True
        )
        shutil.rmtree(folder)
        yield server


def as_environment(
    monkeypatch: pytest.MonkeyPatch, protocol: str, options: dict[str, object]
) -> None:
    """Set options of fsspec as a variable FSSPEC_… in the environment would."""
    monkeypatch.setitem(fsspec.config.conf, protocol, json.loads(json.dumps(options)))


def test_sftp(sftp: SftpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    as_environment(monkeypatch, "sftp", sftp.options)
    assert read_all(Landing(sftp.url())) == SEQUENCES


def test_an_unknown_server_is_refused(
    sftp: SftpServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True
    )
    (tmp_path / "known_hosts").write_text(
        f"[127.0.0.1]:{sftp.port} {(tmp_path / 'other.pub').read_text()}"
    )
    # a file with another key, and no file in ~/.ssh
    for known_hosts in (
        {"known_hosts": str(tmp_path / "known_hosts")},
        {},
    ):
        monkeypatch.setenv("HOME", str(tmp_path))
        as_environment(
            monkeypatch,
            "sftp",
            {
                **{key: sftp.options[key] for key in ("client_keys", "agent_path", "config")},
                **known_hosts,
            },
        )
        with pytest.raises(OSError, match=r"[Hh]ost key"):
            Landing(sftp.url())


def test_s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    as_environment(monkeypatch, "s3", s3.options())
    assert read_all(Landing(s3.url())) == SEQUENCES


@pytest.mark.parametrize("skew_s", [-600, 600])
def test_s3_by_a_clock_that_is_ten_minutes_off(
    skew_s: int, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = auth.get_current_datetime
    monkeypatch.setattr(
        auth, "get_current_datetime", lambda *args: right(*args) + timedelta(seconds=skew_s)
    )
    as_environment(monkeypatch, "s3", s3.options())
    assert read_all(Landing(s3.url())) == SEQUENCES


def test_a_bucket_that_keeps_versions_is_read_as_it_is_now(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A repaired batch has an old version. A cleaned batch has only a delete marker and old
    versions.
    """
    as_environment(monkeypatch, "s3", s3.options())
    fs = fsspec.filesystem("s3", **s3.options(), skip_instance_cache=True)
    settings = {"Status": "Enabled"}
    fs.call_s3("put_bucket_versioning", Bucket=s3.BUCKET, VersioningConfiguration=settings)
    try:
        root = f"{s3.BUCKET}/versions"
        for content in (b"damaged", None):
            for number in (1, 2):
                land(tmp_path, "site", number, [row("dev", number)])
            for path in (tmp_path / "site" / EPOCH).iterdir():
                fs.pipe_file(f"{root}/{path.relative_to(tmp_path)}", content or path.read_bytes())
        landing, feed = Landing(f"s3://{root}"), f"site/{EPOCH}"
        feeds = Feeds(landing)
        assert feeds.advance({}, 10**9) == {feed: 2}
        (one,) = read_batches(landing, BatchList(0, feeds.between({}, {feed: 2})))
        assert one["sequence"].to_pylist() == [1, 2]
        say(landing, feed, 1)
        assert landing.delete(feed, 1) == 1
        assert landing.after(feed, 0) == 2
        assert Feeds(landing).advance({}, 10**9) == {feed: 2}
    finally:
        settings["Status"] = "Suspended"
        fs.call_s3("put_bucket_versioning", Bucket=s3.BUCKET, VersioningConfiguration=settings)


def test_s3_with_a_wrong_secret_is_no_empty_place(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_environment(monkeypatch, "s3", {**s3.options(), "secret": "wrong"})
    with pytest.raises(OSError, match=r"."):
        Landing(s3.url()).gateways()


def test_data_files_go_into_tables_on_s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    as_environment(monkeypatch, "s3", s3.options())
    tables = {name: f"s3a://{s3.BUCKET}/lake/{name}" for name in ("publications", "readings")}
    landing = Landing(s3.url())
    (one,) = read_batches(landing, BatchList(0, Feeds(landing).between({}, {f"site/{EPOCH}": 1})))
    (written,) = DataFiles(**tables).put(one).to_pylist()
    fs = fsspec.filesystem("s3", **s3.options())
    for table in tables:
        file = written[table]
        data = fs.cat_file(f"{s3.BUCKET}/lake/{table}/{file['name']}")
        assert json.loads(file["action"])["add"]["size"] == len(data)
        assert pq.read_table(pa.BufferReader(data))["sequence"].to_pylist() == [10, 11, 12]


@pytest.mark.parametrize("kind", ["sftp", "s3"])
def test_batches_behind_a_gap_are_found_by_a_listing(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue(kind)
    as_environment(monkeypatch, kind, server.options if kind == "sftp" else server.options())
    monkeypatch.setattr(landing_module, "S3_PAGE", 2)
    landing = Landing(server.url())
    feed = f"gaps/{EPOCH}"
    for name in ("000000000001.json", *(f"{n:012d}.parquet" for n in range(1, 9)), "zzz.json"):
        landing._fs.makedirs(f"{landing._root}/{feed}", exist_ok=True)
        landing._fs.pipe_file(f"{landing._root}/{feed}/{name}", b"{}")
    assert landing.after(feed, 1) is None
    landing._fs.pipe_file(f"{landing._root}/{feed}/{8:012d}.json", b"{}")
    assert [landing.after(feed, number) for number in (0, 1, 7, 8)] == [1, 8, 8, None]
    assert (landing.after("nobody/00000000", 0), landing.cleaned(feed)) == (None, 0)
    say(landing, feed, 7)
    assert landing.cleaned(feed) == 7
    assert landing.delete(feed, 7) == 7
    assert landing.after(feed, 0) == 8
    landing._fs.rm(f"{landing._root}/gaps", recursive=True)


@pytest.mark.parametrize("kind", ["sftp", "s3"])
@pytest.mark.parametrize(
    "share", [0.6, *(pytest.param(one, marks=pytest.mark.soak) for one in (0.3, 0.9))]
)
def test_a_connection_that_is_cut_is_made_again(
    kind: str, share: float, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue(kind)
    proxy = FaultProxy(server.port)
    if kind == "sftp":
        server.write_known_hosts(server.port, proxy.port)
        as_environment(monkeypatch, "sftp", server.options)
        url = server.url(proxy.port)
    else:
        as_environment(monkeypatch, "s3", server.options(proxy.port))
        url = server.url()
    try:
        assert read_all(Landing(url)) == SEQUENCES
        whole, proxy.sent = proxy.sent, 0
        proxy.cut_after = int(whole * share)
        assert read_all(Landing(url)) == SEQUENCES
        assert proxy.cuts == 1
    finally:
        proxy.close()


def test_an_sftp_server_that_goes_away_and_comes_back(
    sftp: SftpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = FaultProxy(sftp.port)
    sftp.write_known_hosts(sftp.port, proxy.port)
    as_environment(monkeypatch, "sftp", sftp.options)
    landing = Landing(sftp.url(proxy.port))
    try:
        proxy.refuse = True
        proxy.drop()
        with pytest.raises(OSError, match=r"."):
            landing.gateways()
        proxy.refuse = False
        assert read_all(landing) == SEQUENCES
    finally:
        proxy.close()


@pytest.fixture
def busy_s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[LaxS3]:
    """Yield a proxy that forwards all requests. The ingest's pauses are a hundredth of the real
    ones.
    """
    monkeypatch.setattr(busy, "PAUSES_S", [one / 100 for one in busy.PAUSES_S])
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "answer",
    [(503, "SlowDown"), pytest.param((500, "InternalError"), marks=pytest.mark.soak)],
)
def test_a_store_that_refuses_four_in_ten_requests_holds_and_quarantines_nothing(
    s3: S3Server,
    busy_s3: LaxS3,
    answer: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    as_environment(monkeypatch, "s3", s3.options(busy_s3.port))
    monkeypatch.setattr(landing_module, "PAUSES", landing_module.IN_A_HURRY)
    drawn, refused = random.Random(4), []

    def busy_now() -> tuple[int, str] | None:
        refused.append(drawn.random() < 0.4)
        return answer if refused[-1] else None

    busy_s3.busy = busy_now
    assert read_all(Landing(s3.url())) == SEQUENCES
    assert sum(refused) > 4
    assert not caplog.records


def test_a_store_that_refuses_each_object_costs_no_pause_for_each(
    s3: S3Server, busy_s3: LaxS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_environment(monkeypatch, "s3", s3.options(busy_s3.port))
    monkeypatch.setattr(landing_module, "PAUSES", (None,))
    landing, asked = Landing(s3.url()), []

    def refuse() -> tuple[int, str]:
        asked.append(1)
        return (500, "InternalError")

    busy_s3.busy = refuse
    for number in range(30):
        with pytest.raises(OSError, match=r"."):
            landing.manifest(f"site/{EPOCH}", number)
    assert len(asked) == 30 + busy.RETRIES


def test_keys_that_are_replaced_in_their_file_are_taken_by_a_running_ingest(
    s3: S3Server, busy_s3: LaxS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The ingest uses the keys to read the landing place and the file of trusted keys, and to write
    data files.
    """
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    as_environment(monkeypatch, "s3", {"endpoint_url": f"http://127.0.0.1:{busy_s3.port}"})
    tables = {name: f"s3a://{s3.BUCKET}/rotated/{name}" for name in ("publications", "readings")}
    trusted = keys.keys_url(f"s3://{s3.BUCKET}/rotated/publications")

    def valid(name: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = s\n")
        busy_s3.valid = name

    valid("OLD")
    keys.save(trusted, Keys(unsigned=True))
    landing, files = Landing(s3.url()), DataFiles(**tables)
    feed = f"site/{EPOCH}"
    for name in ("OLD", "NEW", "NEWER"):
        valid(name)
        landing._renewed = -landing_module.RENEWED_S
        (one,) = read_batches(landing, BatchList(0, Feeds(landing).between({}, {feed: 1})))
        assert files.put(one).to_pylist()[0]["publications"]["rows"] == 3
        assert keys.load(trusted).unsigned is True


@pytest.mark.soak
def test_more_than_a_thousand_keys_of_a_prefix_hide_nothing(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The landing place has more than a thousand gateways, a feed with more than a thousand
    batches, and more than a thousand markers.
    """
    as_environment(monkeypatch, "s3", s3.options())
    many = 1005  # one answer of S3 has at most 1,000
    landing = Landing(f"s3://{s3.BUCKET}/many")
    feed = f"site/{EPOCH}"
    names = [f"{feed}/{number:012d}.{kind}" for number in range(1, many + 1) for kind in KINDS]
    names += [f"g{number:04d}/{EPOCH}/{1:012d}.json" for number in range(many)]
    names += [f"_newest/g{number:04d}.{EPOCH}.{1:012d}" for number in range(many)]
    landing._fs.pipe({f"{landing._root}/{name}": b"{}" for name in names})
    assert len(landing.gateways()) == many + 2
    assert len(landing.markers()) == many
    assert landing.newest(feed, 0) == many
    assert landing.after(feed, many - 1) == many
    assert landing.after(feed, many) is None
    assert len(Feeds(landing).advance({}, 10**9)) == many + 1
    assert landing.delete(feed, many - 1) == many - 1
    assert landing.after(feed, 0) == many
    landing._fs.rm(landing._root, recursive=True)


@pytest.mark.parametrize("name", ["with space, größe-λ", "100% a#b+c%20"])
def test_names_that_urls_write_otherwise_stand_as_they_are(
    name: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    as_environment(monkeypatch, "s3", s3.options())
    land(tmp_path, name, 1, [row("dev", 1)])
    root = f"{s3.BUCKET}/odd {name}"
    fs = fsspec.filesystem("s3", **s3.options(), skip_instance_cache=True)
    for path in (tmp_path / name).rglob("*"):
        if path.is_file():
            fs.pipe_file(f"{root}/{path.relative_to(tmp_path)}", path.read_bytes())
    landing = Landing(f"s3://{root}")
    feeds = Feeds(landing)
    assert feeds.advance({}, 10**9) == {f"{name}/{EPOCH}": 1}
    (one,) = read_batches(landing, BatchList(0, feeds.between({}, {f"{name}/{EPOCH}": 1})))
    assert one["sequence"].to_pylist() == [1]
