"""Folders, links, devices and the like in the place of a file. The ingest names them. They neither
block a reader nor stop another feed.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from typer.testing import CliRunner

from gateway.ingest.clean import say
from gateway.ingest.cli import app
from gateway.ingest.jobs.source import BatchList, read_batches
from gateway.ingest.landing.keys import Keys, keys_url, save
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import UNREADABLE, Landing
from gateway.ingest.report import report
from gateway.uplink.manifest import cleaned_json, cleaned_name, set_aside_name
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.landing.closed_places import S3Place
from tests.uplink.servers import SftpServer, s3_server, sftp_server

pytestmark = pytest.mark.timeout(120)

BAD, GOOD = f"bad/{EPOCH}", f"good/{EPOCH}"
ALL = 10**9


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_fifo(path: Path) -> None:
    fifo(path.parent.parent.parent / "fifo")
    path.symlink_to(path.parent.parent.parent / "fifo")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        before = os.getcwd()
        os.chdir(path.parent)  # the path of a socket has at most 107 bytes
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)


def endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def terminal(path: Path) -> None:
    path.symlink_to("/dev/ptmx")


def folder(path: Path) -> None:
    path.mkdir()


def link_to_folder(path: Path) -> None:
    path.symlink_to(path.parent)


def circle(path: Path) -> None:
    path.symlink_to(path.name)


KINDS: list[Callable[[Path], None]] = [
    fifo,
    link_to_fifo,
    a_socket,
    endless_device,
    terminal,
    folder,
    link_to_folder,
    circle,
]
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def folder_of_two(tmp_path: Path) -> Path:
    for gateway in ("bad", "good"):
        for number in (1, 2):
            land(tmp_path / "landing", gateway, number, [row(gateway, number)])
    return tmp_path / "landing"


def put(kind: Callable[[Path], None], path: Path) -> None:
    path.unlink(missing_ok=True)
    kind(path)


def flaws(landing: Landing, feeds: Feeds, end: dict[str, int]) -> dict[str, str | None]:
    """Return the flaw of a batch of each gateway, or None if all are good."""
    found: dict[str, str | None] = {}
    for chunk in read_batches(landing, BatchList(0, feeds.between({}, end))):
        for one in chunk.to_pylist():
            found[one["gateway"]] = found.get(one["gateway"]) or one["flaw"]
    return found


@kinds
@pytest.mark.parametrize("what", ["json", "parquet"])
def test_no_file_in_place_of_a_manifest_or_of_data_is_a_damaged_batch(
    folder_of_two: Path, kind: Callable[[Path], None], what: str
) -> None:
    put(kind, folder_of_two / BAD / f"000000000001.{what}")
    landing = Landing(str(folder_of_two))
    for feeds in (Feeds(landing), Feeds(landing, wait=True)):
        end = feeds.advance({}, ALL)
        assert end[GOOD] == 2
    feeds = Feeds(landing)
    end = feeds.advance({}, ALL, feeds.newest({}))
    assert end == {BAD: 2, GOOD: 2}
    found = flaws(landing, feeds, end)
    assert found["good"] is None
    assert found["bad"]
    assert not found["bad"].startswith(UNREADABLE)  # damage, which does not end by itself


@kinds
def test_no_file_in_place_of_what_was_cleaned_holds_its_feed_alone(
    folder_of_two: Path, kind: Callable[[Path], None]
) -> None:
    for ending in ("json", "parquet"):
        first = folder_of_two / BAD / f"000000000001.{ending}"
        first.rename(first.with_name(f"000000000007.{ending}"))
        (folder_of_two / BAD / f"000000000002.{ending}").unlink()
    put(kind, folder_of_two / "bad" / "cleaned.json")
    feeds = Feeds(Landing(str(folder_of_two)))
    assert feeds.advance({}, ALL) == {GOOD: 2}
    assert BAD in feeds.unreadable
    assert "cleaned.json" in str(feeds.unreadable[BAD])


def table(tmp_path: Path, bad: int = 2) -> str:
    path = str(tmp_path / "lake")
    feeds = {BAD: bad, GOOD: 2}
    note = {"onceway": {"micro_batch": 0, "feeds": feeds, "all": True}}
    rows = {"gateway": ["bad", "good"], "epoch": [EPOCH] * 2, "batch": [bad, 2]}
    write_deltalake(
        path,
        pa.table(rows),
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps(note)}),
    )
    save(keys_url(path), Keys(unsigned=True))
    return path


@kinds
@pytest.mark.parametrize("name", ["refused.json", "cleaned.json", f"{EPOCH}/000000000003.json"])
def test_no_file_hangs_no_command(
    folder_of_two: Path, tmp_path: Path, kind: Callable[[Path], None], name: str
) -> None:
    put(kind, folder_of_two / "bad" / name)
    where = ["--landing", str(folder_of_two), "--table", table(tmp_path)]
    for command in (["report", *where], ["clean", *where, "--older-than", "1s"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code in (0, 1, 5)
        assert done.exit_code == 0 or "bad" in f"{done.output}{done.exception}"


@pytest.fixture(scope="module")
def sftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SftpServer]:
    with sftp_server(tmp_path_factory.mktemp("sftp")) as server:
        yield server


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not circle])
@pytest.mark.parametrize("what", ["000000000001.json", "000000000001.parquet", "../cleaned.json"])
def test_no_file_behind_sftp_blocks_no_reader_and_stops_no_other_feed(
    folder_of_two: Path,
    sftp: SftpServer,
    kind: Callable[[Path], None],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An SFTP server that opens a FIFO waits until another process opens it for writing, and the
    whole connection waits with it.
    """
    if "cleaned" in what:  # the note is read only if a batch is missing
        for ending in ("json", "parquet"):
            first = folder_of_two / BAD / f"000000000001.{ending}"
            first.rename(first.with_name(f"000000000007.{ending}"))
    put(kind, folder_of_two / BAD / what)
    monkeypatch.setitem(fsspec.config.conf, "sftp", sftp.options)
    url = sftp.url().removesuffix(f"{sftp.root}/landing")
    landing = Landing(f"{url}{folder_of_two}")
    feeds = Feeds(landing)
    end = feeds.advance({}, ALL)
    assert end[GOOD] == 2
    found = flaws(landing, feeds, end)
    assert found["good"] is None
    assert found.get("bad") or "cleaned.json" in str(feeds.unreadable.get(BAD))


def test_a_note_that_a_cut_has_set_aside_is_read(
    folder_of_two: Path, sftp: SftpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a rename cannot replace a file, the old note first gets a hidden name. If the connection
    ends after that, only the hidden name exists.
    """
    aside = folder_of_two / set_aside_name(cleaned_name("bad"))
    aside.parent.mkdir(exist_ok=True)
    aside.write_bytes(cleaned_json("bad", {"ffffffff": 9}))
    monkeypatch.setitem(fsspec.config.conf, "sftp", sftp.options)
    url = sftp.url().removesuffix(f"{sftp.root}/landing")
    landing = Landing(f"{url}{folder_of_two}")
    assert landing.cleaned("bad/ffffffff") == 9
    say(landing, BAD, 1)
    assert landing.cleaned_epochs("bad") == {"ffffffff": 9, EPOCH: 1}
    aside.write_bytes(cleaned_json("bad", {"ffffffff": 3}))
    assert landing.cleaned("bad/ffffffff") == 9, "the newer one stands under its own name"


def test_a_prefix_of_an_object_store_in_place_of_a_manifest_is_no_batch(
    folder_of_two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file system, a folder with the name of a manifest would prevent the batch from landing.
    In an object store, such a prefix prevents nothing. So the report says that batch 2 is missing,
    because batch 3 has landed.
    """
    manifest = folder_of_two / BAD / "000000000002.json"
    manifest.unlink()
    land(folder_of_two, "bad", 3, [row("bad", 3)])
    (tmp_path / "weed").mkdir()
    with s3_server(tmp_path / "weed") as server:
        place = S3Place(server, "prefixes")
        monkeypatch.setitem(fsspec.config.conf, "s3", place.options)
        place.put(folder_of_two)
        place.write(f"{BAD}/000000000002.json/x", b"1")
        landing = Landing(place.url)
        assert not landing.has(BAD, 2)
        assert landing.manifest(BAD, 2) is None
        assert landing.newest(BAD, 1) == 1
        feeds = Feeds(landing)
        assert feeds.advance({}, ALL) == {BAD: 1, GOOD: 2}
        assert feeds.holes.keys() == {BAD}
        made = report.make(landing, table(tmp_path, 1))
        (bad,) = (one for one in made.feeds if one.feed == BAD)
        assert "waits for batch 2: it is missing, and batch 3 arrived" in str(bad.held)
        place.shut()
