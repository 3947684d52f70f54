"""Names at a landing place: names of gateways, of foreign folders, and of older gateways whose
names are no longer allowed.
"""

import json
import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.ingest.cli import app
from gateway.ingest.jobs.source import BatchList, read_batches
from gateway.ingest.landing.keys import Keys, change, keys_url, load, save
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import Landing
from gateway.ingest.landing.trust import Trust
from gateway.uplink.signing import Signer, load_or_make
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.landing.closed_places import open_folder, without_rights
from tests.system.test_gateway_name import BAD, GOOD

A = f"a/{EPOCH}"
ALL = 10**9
OF_SERVERS = ["#recycle", "#snapshot", "@eaDir", "@Recycle", "~snapshot", ".zfs", ".@__thumb"]
OLD = [name for name in BAD if name not in ("", ".", "..", "a/b") and len(name.encode()) < 255]
"""Forbidden names of gateways that a folder can have."""


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    (tmp_path / "data").mkdir()
    return load_or_make(tmp_path / "data")


@pytest.mark.parametrize("name", GOOD)
def test_gateway_of_any_name_is_trusted_and_ingested(
    name: str, tmp_path: Path, signer: Signer
) -> None:
    folder, url = tmp_path / "landing", str(tmp_path / "keys.json")
    for number in (1, 2):
        land(folder, name, number, [row("dev", number)], signer=signer)
    keys = Keys()
    change(keys, [f"{signer.public} {name}\n"])
    save(url, keys)
    landing = Landing(str(folder))
    feeds = Feeds(landing, trust=Trust(url, True))
    offset = feeds.advance({}, ALL, feeds.newest({}))
    assert offset == {f"{name}/{EPOCH}": 2}
    (chunk,) = read_batches(landing, BatchList(0, feeds.between({}, offset)))
    assert chunk["sequence"].to_pylist() == [1, 2]
    assert set(chunk["gateway"].to_pylist()) == {name}


@pytest.mark.parametrize("name", BAD)
def test_a_key_for_what_no_gateway_is_called_is_refused(name: str, signer: Signer) -> None:
    if name == name.strip():  # spaces at the end of a line do not count
        keys = Keys()
        with pytest.raises(OncewayError, match="not a valid gateway name"):
            change(keys, [f"{signer.public} {name}"])
        assert keys == Keys()


@pytest.mark.parametrize("name", ["_lab", ".lab", "lost+found"])
def test_batches_without_signature_of_what_no_gateway_is_called_are_refused(name: str) -> None:
    with pytest.raises(OncewayError, match="not a valid gateway name"):
        change(Keys(), [], until=[f"{name}/{EPOCH}:7"])


@pytest.mark.parametrize("name", OLD)
def test_old_key_file_is_read_with_any_names(name: str, tmp_path: Path, signer: Signer) -> None:
    path = tmp_path / "keys.json"
    save(str(path), Keys({name: [signer.public], "a": [signer.public]}))
    assert load(str(path)).keys.keys() == {name, "a"}


@pytest.mark.parametrize(
    "name", [name for name in OLD if name.casefold() not in ("lost+found", "$recycle.bin")]
)
def test_unsigned_batch_of_an_older_gateway_is_held_until_its_key_is_given(
    name: str, tmp_path: Path, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    if name.casefold() == "system volume information":
        pytest.skip("no gateway had it")
    folder, url = tmp_path / "landing", str(tmp_path / "keys.json")
    land(folder, "a", 1, [row("dev", 1)], signer=signer)
    land(folder, name, 1, [row("dev", 2)], signer=signer)
    save(url, Keys({"a": [signer.public]}))
    landing = Landing(str(folder))
    feeds = Feeds(landing, trust=Trust(url, True))
    feed = f"{name}/{EPOCH}"
    for _ in range(2):
        assert feeds.advance({}, ALL) == {A: 1}
    held = [one for one in caplog.messages if one.startswith("held")]
    assert len(held) == 1
    assert name in held[0]
    assert "--old-names" in held[0]
    assert "--old-names" in str(feeds.senders.not_trusted(feed))
    keys = load(url)
    change(keys, [f"{signer.public} {name}"], old_names=True)
    save(url, keys)
    feeds = Feeds(landing, trust=Trust(url, True))
    assert feeds.advance({}, ALL, feeds.newest({})) == {A: 1, feed: 1}
    assert not any(one.flaw for one in feeds.between({}, {A: 1, feed: 1}))


def test_a_name_that_is_not_in_utf_8_is_held_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    land(tmp_path, "a", 1, [row("dev", 1)])
    folder = os.fsencode(tmp_path) + b"/caf\xe9/" + EPOCH.encode()
    os.makedirs(folder)
    Path(os.fsdecode(folder), "000000000001.json").write_bytes(b"{}")
    feeds = Feeds(Landing(str(tmp_path)))
    assert feeds.advance({}, ALL) == {A: 1}
    assert "held: caf\\udce9 cannot be read: its name is not in UTF-8" in caplog.text
    assert feeds.closed.keys() == {"caf\udce9"}


def test_folder_that_is_not_a_feed_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with open_folder() as folder:
        land(folder, "a", 1, [row("dev", 1)])
        for name in ("lost+found", ".Trash-0", ".snapshot", "_newest", *OF_SERVERS):
            (folder / name).mkdir(mode=0o700)
        (folder / "photos" / "2026").mkdir(parents=True)
        (folder / "empty").mkdir()
        (folder / ".cache" / "deadbeef").mkdir(parents=True)
        (folder / "_tmp" / "deadbeef").mkdir(parents=True)
        (folder / "README.txt").touch(mode=0o600)
        (folder / "nowhere").symlink_to(folder / "gone")
        (folder / "loop").symlink_to(folder / "loop")
        with without_rights():
            landing = Landing(str(folder))
            feeds = Feeds(landing)
            assert feeds.advance({}, ALL) == {A: 1}
            assert Feeds(landing).names() == [A]
    assert feeds.unreadable == {}
    assert caplog.messages == []


def test_an_unreadable_folder_of_a_file_server_is_no_batch(tmp_path: Path) -> None:
    """File servers create such folders, for example for deleted files, and allow only root to read
    them. A landing place with nothing else counts as empty.
    """
    with open_folder() as folder:
        for name in OF_SERVERS:
            (folder / name).mkdir(mode=0o700)
        with without_rights():
            assert not Landing(str(folder)).any_feed()


def test_a_gateway_that_is_called_like_a_folder_of_a_file_server_is_taken(tmp_path: Path) -> None:
    """The ingest looks into each folder with such a name. A gateway's folder has batches, so it is
    read.
    """
    for name in OF_SERVERS[:4]:
        land(tmp_path, name, 1, [row("dev", 1)])
    feeds = Feeds(Landing(str(tmp_path)))
    assert feeds.advance({}, ALL) == {f"{name}/{EPOCH}": 1 for name in OF_SERVERS[:4]}


def test_a_gateway_s_folder_may_be_a_link(tmp_path: Path) -> None:
    """The folder was moved to another disk, and a link was left in its place."""
    land(tmp_path / "disk", "a", 1, [row("dev", 1)])
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a").symlink_to(tmp_path / "disk" / "a")
    assert Feeds(Landing(str(tmp_path / "landing"))).advance({}, ALL) == {A: 1}


def report(folder: Path, table: Path, *more: str) -> tuple[int, str]:
    where = ["report", "--landing", str(folder), "--table", str(table)]
    done = CliRunner().invoke(app, [*where, *more])
    return done.exit_code, done.stdout


@pytest.mark.parametrize("name", ["_lab", ".lab", "_newest", "lab "])
def test_the_report_names_it_and_trust_says_the_way(
    name: str, tmp_path: Path, signer: Signer
) -> None:
    folder, table = tmp_path / "landing", tmp_path / "lake"
    land(folder, "a", 1, [row("dev", 1)], signer=signer)
    land(folder, name, 1, [row("dev", 2)], signer=signer)
    write_deltalake(table, pa.table({"gateway": ["a"], "epoch": [EPOCH], "batch": [1]}))
    save(keys_url(str(table)), Keys({"a": [signer.public]}))
    code, text = report(folder, table)
    assert code == 5
    assert f"held: {name}/{EPOCH}: a gateway's name must not" in text
    assert f'feed_held{{gateway="{name}"' in report(folder, table, "--metrics", "-")[1]
    line = f"{signer.public} {name}\n"
    trust = ["trust", "--table", str(table), "-"]
    if name == name.strip():
        refused = CliRunner().invoke(app, trust, input=line)
        assert isinstance(refused.exception, OncewayError)
        assert "--old-names" in str(refused.exception)
    assert CliRunner().invoke(app, [*trust, "--old-names"], input=line).exit_code == 0
    assert "held" not in report(folder, table)[1]
    assert json.loads(report(folder, table, "--json")[1])["feeds"][1]["held"] is None
