"""Landing places keep their promises on real servers: a file is complete or absent, nothing is
overwritten, and existing content can be checked.
"""

import errno
import sys
import threading
from pathlib import Path

import pytest

from gateway.config import ConfigError, parse
from gateway.errors import OncewayError
from gateway.uplink.landing import Landing, Unreachable, local, open_landing
from gateway.uplink.landing.base import without_password
from tests.uplink.servers import FaultProxy, S3Server, SftpServer


@pytest.fixture(params=["file", "sftp", "s3", "generic"])
def place(request, tmp_path) -> Landing:
    name = request.node.name.replace("[", "-").replace("]", "")
    if request.param == "file":
        landing = open_landing(f"file://{tmp_path}/landing")
    elif request.param == "sftp":
        server: SftpServer = request.getfixturevalue("sftp")
        landing = open_landing(f"{server.url()}/{name}", server.options)
    elif request.param == "s3":
        bucket: S3Server = request.getfixturevalue("s3")
        landing = open_landing(f"{bucket.url()}/{name}", bucket.options())
    else:
        landing = open_landing(f"memory://{tmp_path}")
    yield landing
    landing.close()


def test_created_file_is_read_back(place):
    data = bytes(range(256)) * 500
    assert place.read("site-1/00c0ffee/000000000001.parquet") is None
    assert place.create("site-1/00c0ffee/000000000001.parquet", data)
    assert place.holds("site-1/00c0ffee/000000000001.parquet", data)
    assert place.read("site-1/00c0ffee/000000000001.parquet") == data


def test_create_never_overwrites(place):
    assert place.create("site-1/00c0ffee/1.json", b"first")
    assert not place.create("site-1/00c0ffee/1.json", b"second")
    assert place.read("site-1/00c0ffee/1.json") == b"first"


def test_replace_overwrites(place):
    place.replace("site-1/owner.json", b"first")
    place.replace("site-1/owner.json", b"second, longer")
    place.replace("site-1/owner.json", b"third")
    assert place.read("site-1/owner.json") == b"third"


def test_epochs_are_distinguished_from_other_names(place):
    assert place.epochs("site-1") == []
    for name in (
        "00c0ffee/1.json",
        "deadbeef/1.json",
        "owner.json",
        "notes/readme",
        "DEADBEEF/1.json",
    ):
        place.create(f"site-1/{name}", b"x")
    assert place.epochs("site-1") == ["00c0ffee", "deadbeef"]


def test_holds_tells_a_short_file_from_a_whole_one(place):
    place.replace("site-1/00c0ffee/1.parquet", b"x" * 1000)
    assert not place.holds("site-1/00c0ffee/1.parquet", b"x" * 1001)


def test_one_of_the_concurrent_creators_of_a_name_wins(request, sftp, s3, tmp_path):
    """The test leaves out the generic place, which cannot promise a single winner."""
    places = {
        "file": lambda: open_landing(f"file://{tmp_path}/landing"),
        "sftp": lambda: open_landing(sftp.url() + "/race", sftp.options),
        "s3": lambda: open_landing(s3.url() + "/race", s3.options()),
    }
    for connect in places.values():
        landings = [connect() for _ in range(4)]
        won: list[bytes] = []
        start = threading.Barrier(len(landings))

        def write(landing: Landing, data: bytes, start=start, won=won) -> None:
            start.wait()
            try:
                if landing.create("site-1/00c0ffee/race.json", data):
                    won.append(data)
            except Unreachable:
                # S3 answers 409 to the slower of two simultaneous writes: neither yes nor no.
                # The uplink tries again.
                pass

        threads = [
            threading.Thread(target=write, args=(landing, b"writer %d" % n))
            for n, landing in enumerate(landings)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert landings[0].read("site-1/00c0ffee/race.json") == won[0]
        for landing in landings:
            landing.close()


def test_leftovers_of_a_killed_upload_are_tidied(sftp, tmp_path):
    for root, landing in [
        (tmp_path / "landing", open_landing(str(tmp_path / "landing"))),
        (sftp.root / "landing" / "tidy", open_landing(sftp.url() + "/tidy", sftp.options)),
    ]:
        landing.tidy("site-1/00c0ffee")
        landing.create("site-1/00c0ffee/1.json", b"first")
        incoming: Path = root / "site-1" / "00c0ffee" / ".incoming"
        (incoming / "000000000002.parquet-12345678").write_bytes(b"half")
        landing.tidy("site-1/00c0ffee")
        assert list(incoming.iterdir()) == []
        assert landing.read("site-1/00c0ffee/1.json") == b"first"
        landing.close()


def test_an_unknown_ssh_server_is_refused(sftp, tmp_path):
    (tmp_path / "known_hosts").write_text("")
    with pytest.raises(
        Unreachable,
        match=(
            r"Host key is not trusted for host 127.0.0.1. If it is the right server, .* known_hosts"
        ),
    ):
        open_landing(sftp.url(), {**sftp.options, "known_hosts": str(tmp_path / "known_hosts")})


def test_key_unknown_to_the_ssh_server_is_reported_as_an_outage(sftp):
    with pytest.raises(
        Unreachable,
        match=r"Permission denied for user .* Does the server know the key that client_keys",
    ):
        open_landing(sftp.url(), {**sftp.options, "client_keys": [str(sftp.folder / "host")]})


def test_unknown_option_is_not_an_outage(sftp):
    with pytest.raises(
        OncewayError,
        match=r"\[uplink.options\] has an unknown option: .*'clientkeys'",
    ) as caught:
        open_landing(sftp.url(), {**sftp.options, "clientkeys": ["x"]})
    assert not isinstance(caught.value, Unreachable)


def test_wrong_s3_secret_is_reported_as_an_outage(s3):
    landing = open_landing(s3.url(), {**s3.options(), "secret": "wrong"})
    with pytest.raises(Unreachable, match=r"signature.* Look at the key, its secret"):
        landing.create("site-1/x", b"data")
    landing.close()


def test_passwords_in_a_url_reach_no_message():
    assert without_password("sftp://me:s3cr@host:22/x") == "sftp://me@host:22/x"
    assert without_password("sftp://me@host/a:b@c") == "sftp://me@host/a:b@c"
    assert without_password("sftp://me:s3@cr@host/a@b") == "sftp://me@host/a@b"
    assert without_password("sftp://me:s3/cr@host/x") == "sftp://me@host/x"
    assert without_password("sftp://[::1]:22/a@b") == "sftp://[::1]:22/a@b"
    assert without_password("sftp://host:22/a@b") == "sftp://host:22/a@b"
    assert without_password("/srv/a:b@c") == "/srv/a:b@c"
    with pytest.raises(OncewayError) as caught:
        open_landing("sftp://me:verysecret@127.0.0.1:1/x")
    assert "verysecret" not in str(caught.value)


def test_bytes_altered_on_the_way_to_s3_are_refused_by_the_store(s3):
    """A proxy changes a byte of the body. The store checks the signature and the SHA-256."""
    proxy = FaultProxy(s3.port)
    original = proxy._pump

    class Altering:
        def __init__(self, sock):
            self._sock = sock

        def __getattr__(self, name):
            return getattr(self._sock, name)

        def sendall(self, data):
            self._sock.sendall(data.replace(b"payload-payload", b"payload-pAyload"))

    proxy._pump = lambda source, sink, way: original(
        source, Altering(sink) if way == "sent" else sink, way
    )
    landing = open_landing(s3.url(), s3.options(proxy.port))
    try:
        with pytest.raises(Unreachable):
            landing.create("site-1/00c0ffee/altered.parquet", b"payload-payload" * 100)
        assert landing.read("site-1/00c0ffee/altered.parquet") is None
    finally:
        landing.close()
        proxy.close()


def test_a_folder_that_may_not_be_written_says_what_to_look_at(tmp_path, monkeypatch):
    def read_only(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(local.os, "link", read_only)
    with pytest.raises(
        Unreachable,
        match=r"Read-only file system. May this account write there\? .*ReadWritePaths=",
    ):
        open_landing(str(tmp_path)).create("site-1/00c0ffee/1.json", b"data")


@pytest.mark.parametrize(
    ("section", "key", "value", "reason"),
    [
        ("gateway", "name", "a\\b", "usable as a folder name"),
        ("gateway", "name", "a?versionId=1", "usable as a folder name"),
        ("uplink", "landing", "file://srv/landing", "three slashes"),
        ("uplink", "landing", "sftp:///srv/landing", "names no server"),
    ],
)
def test_names_and_urls_that_can_never_work_are_refused_with_the_configuration(
    section, key, value, reason
):
    with pytest.raises(ConfigError, match=reason):
        parse({section: {key: value}}, "gateway.toml")


def test_a_folder_on_a_file_system_without_links_works_too(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(local.os, "link", no_links)
    landing = open_landing(str(tmp_path))
    assert landing.create("site-1/00c0ffee/1.json", b"first")
    assert not landing.create("site-1/00c0ffee/1.json", b"second")
    assert landing.read("site-1/00c0ffee/1.json") == b"first"
    assert list((tmp_path / "site-1" / "00c0ffee" / ".incoming").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "module", "hint"),
    [
        ("sftp://me@host/x", "gateway.uplink.landing.sftp", "[sftp]"),
        ("s3a://bucket/x", "gateway.uplink.landing.s3", "[s3]"),
        ("ftp://host/x", "gateway.uplink.landing.generic", None),
    ],
)
def test_place_whose_package_is_missing_says_how_to_get_it(monkeypatch, url, module, hint):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(OncewayError, match="this landing URL needs a Python package") as caught:
        open_landing(url)
    assert not isinstance(caught.value, Unreachable), "no later try would help"
    assert (hint in str(caught.value.hint)) if hint else caught.value.hint is None


def test_url_of_an_unknown_kind_is_refused_without_its_password():
    with pytest.raises(OncewayError, match="this landing URL cannot be used") as caught:
        open_landing("carrier-pigeon://me:verysecret@loft/x")
    assert not isinstance(caught.value, Unreachable)
    assert caught.value.where == "carrier-pigeon://me@loft/x"


def test_checksum_that_an_s3_store_does_not_keep_is_replaced_by_reading(s3, monkeypatch):
    landing = open_landing(f"{s3.url()}/forgets", s3.options())
    call, asked = landing._call, []

    def forgets(operation, name, **arguments):
        asked.append(operation)
        found = call(operation, name, **arguments)
        if operation == "head_object":
            found.pop("ChecksumSHA256", None)
        return found

    monkeypatch.setattr(landing, "_call", forgets)
    assert landing.create("site-1/x", b"data")
    assert landing.holds("site-1/x", b"data")
    assert not landing.holds("site-1/x", b"dat@")
    assert "head_object" in asked
    landing.close()


def test_folder_that_an_sftp_server_refuses_is_reported(tmp_path, sftp):
    (sftp.root / "taken").write_text("a file where a folder should be")
    landing = open_landing(f"{sftp.url()}/../taken", sftp.options)
    with pytest.raises(Unreachable, match="cannot find out") as caught:
        landing.create("site-1/00c0ffee/1.json", b"data")
    assert "/taken" in str(caught.value)
    landing.close()
