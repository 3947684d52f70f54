"""`onceway spool land`: a gateway has died, and its card can be read."""

import asyncio
import errno
import gc
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion

from gateway.config import UplinkSection
from gateway.errors import NotAllowed, OncewayError
from gateway.store.copies import Copies
from gateway.store.schema import StoreError
from gateway.system.lock import Locked, ProcessLock
from gateway.uplink import owner
from gateway.uplink import rescue as module
from gateway.uplink.lander import NumberTaken
from gateway.uplink.landing import Unreachable, open_landing
from gateway.uplink.rescue import Rescued, rescue
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import NoSpool
from tests.service.process import free_port
from tests.uplink.conftest import ROOT
from tests.uplink.servers import listens, wait_until


def bring(directory: Path, landing: Path | str) -> Rescued:
    settings = UplinkSection(landing=str(landing))
    return rescue(directory, settings, lambda: open_landing(str(landing)), lambda now, total: None)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def keys(rows) -> list[tuple]:
    return [row[:3] for row in rows]


def epochs(landing: Path) -> list[str]:
    return sorted(path.name for path in (landing / "site-1").iterdir() if path.is_dir())


def all_rows(landing: Path, landed) -> list[tuple]:
    return [row for epoch in epochs(landing) for row in landed(landing, epoch=epoch)]


@pytest.fixture
def dead(data):
    """Return the data of a dead gateway that has landed nothing. In its spool are 30 rows of a
    board and 20 rows of a client.
    """
    load_or_make(data.path)
    data.add(30)
    data.add(20, device=None)
    gc.collect()  # closes the connections of `add`: the last one to be closed changes the file
    return data


EVERYTHING = [("sensor-1", 77, n) for n in range(1, 31)] + [
    ("@site-1", 0x00C0FFEE, n) for n in range(1, 21)
]


def test_rescue_lands_each_waiting_row_and_leaves_the_directory_unchanged(dead, landed, tmp_path):
    before, told = digests(dead.path), []
    settings = UplinkSection(landing=str(tmp_path / "landing"))
    done = rescue(
        dead.path,
        settings,
        lambda: open_landing(settings.landing),
        lambda now, total: told.append((now, total)),
    )
    assert done == Rescued("site-1", "00c0ffee", 50, 1, 0)
    assert told[0] == (0, 50)
    assert told[-1] == (50, 50)
    assert keys(landed(tmp_path / "landing")) == EVERYTHING
    assert digests(dead.path) == before


def test_no_gateway_starts_on_the_directory_while_it_is_landed(dead, tmp_path):
    refused = []

    def try_to_start(now: int, total: int) -> None:
        for name in ("gateway.lock", "uplink.lock"):
            with pytest.raises(Locked):
                ProcessLock(dead.path / name)
            refused.append(name)

    settings = UplinkSection(landing=str(tmp_path / "landing"))
    rescue(dead.path, settings, lambda: open_landing(settings.landing), try_to_start)
    assert set(refused) == {"gateway.lock", "uplink.lock"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_card_that_is_mounted_read_only_lands(dead, onceway, landed, tmp_path):
    card, place = shlex.quote(str(dead.path)), tmp_path / "l"
    words = "spool", "land", dead.path, "--landing", place, "--new-place"
    land = shlex.join(map(str, onceway.command(*words)))
    mount = f"mount --bind {card} {card} && mount -o remount,bind,ro {card}"
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{mount} && ! touch {card}/x && exec {land}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert said.returncode == 0, said.stderr
    assert "Read-only file system" in said.stderr, "of touch"
    assert keys(landed(place)) == EVERYTHING


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_card_lands_in_a_bucket_by_the_line_of_the_guide(dead, s3, tmp_path):
    """The dead gateway had already landed batches at this place, so the command needs no
    --new-place.
    """
    guide = (ROOT / "gateway/uplink/README.md").read_text()
    (line,) = re.findall(r"^ {4}(onceway spool land .*)$", guide, re.MULTILINE)
    _, _, _, card, _, place = line.split()
    landing_url = f"{s3.url()}/rescued"
    line = line.replace(place, landing_url)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AWS_ACCESS_KEY_ID": s3.KEY,
        "AWS_SECRET_ACCESS_KEY": s3.SECRET,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.port}",
    }

    def run(script: str) -> None:
        command = ["unshare", "--mount", "sh", "-ec", f"{prepare}\n{script}"]
        subprocess.run(command, env=environment, check=True, timeout=120)

    prepare = (
        f"mount -t tmpfs none /mnt; mkdir -p {card}\n"
        f"mount --bind {shlex.quote(str(dead.path))} {card}"
    )
    run(f"onceway uplink run --once --name site-1 --data {card} --landing {landing_url}")
    assert dead.spool_ids() == []
    dead.add(30)
    gc.collect()
    run(line)
    landing = open_landing(landing_url, s3.options())
    names = [name for name in landing.names_in("site-1/00c0ffee") if name.endswith(".json")]
    assert len(names) == 2
    assert len(dead.spool_ids()) == 30, "the card is only read"


def test_missing_configuration_is_named(dead, onceway, tmp_path, monkeypatch):
    monkeypatch.setenv("ONCEWAY_CONFIG", str(tmp_path / "typo.toml"))
    done = onceway("spool", "land", dead.path)
    assert done.returncode == 2
    assert f"{tmp_path}/typo.toml: no landing place is named" in done.stderr


def test_twice_is_once(dead, landed, tmp_path):
    bring(dead.path, tmp_path / "landing")
    stands = digests(tmp_path / "landing")
    for _ in range(2):
        assert bring(dead.path, tmp_path / "landing") == Rescued("site-1", "00c0ffee", 0, 0, 50)
    assert digests(tmp_path / "landing") == stands


def test_the_gateway_comes_back_later(dead, drain, landed, tmp_path):
    """The dead gateway works again after its spool was landed, and receives more readings. Its own
    uplink cuts the rows into other batches.
    """
    bring(dead.path, tmp_path / "landing")
    dead.add(10)
    dead.add(10, device=None)
    drain(dead, tmp_path / "landing", count=7)
    assert dead.spool_ids() == []
    rows = all_rows(tmp_path / "landing", landed)
    assert sorted(int.from_bytes(row[5][:8], "big") for row in rows) == list(range(1, 71))
    assert len(set(keys(rows))) == 70


def test_a_card_of_which_the_gateway_has_landed_more_since(dead, drain, landed, tmp_path):
    """The gateway received and landed more rows after the copy was made, and then died."""
    shutil.copytree(dead.path, tmp_path / "copy")
    drain(dead, tmp_path / "landing", count=7)
    dead.add(10, device=None)
    drain(dead, tmp_path / "landing", count=7)
    stands = digests(tmp_path / "landing")
    assert bring(tmp_path / "copy", tmp_path / "landing") == Rescued("site-1", "00c0ffee", 0, 0, 50)
    assert digests(tmp_path / "landing") == stands


def test_another_gateway_has_the_name_by_now(dead, make_data, drain, landed, tmp_path):
    drain(dead, tmp_path / "landing")
    dead.add(5)
    new = make_data(tmp_path / "new", epoch="00beef00")
    with closing(open_landing(str(tmp_path / "landing"))) as place:
        mark = owner.Mark("ffffffffffffffff", "00beef00", 0, "new", "2026-01-01")
        place.replace("site-1/owner.json", mark.to_json("site-1"))
        with new.db() as db:
            db.execute("INSERT INTO meta VALUES ('uplink.owner', 'ffffffffffffffff')")
        assert bring(dead.path, tmp_path / "landing").readings == 5
        assert owner.read(place, "site-1") == mark
    new.add(3)
    drain(new, tmp_path / "landing")
    assert keys(all_rows(tmp_path / "landing", landed)) == [
        ("sensor-1", 77, 1),
        ("sensor-1", 77, 2),
        ("sensor-1", 77, 3),
        *EVERYTHING,
        *(("sensor-1", 77, n) for n in range(51, 56)),
    ]


def test_a_gateway_that_was_renamed_before_it_died(dead, drain, landed, tmp_path):
    drain(dead, tmp_path / "landing")
    dead.add(5, device=None)
    with dead.db() as db:
        db.execute("UPDATE meta SET value = 'site-2' WHERE key = 'gateway'")
    assert bring(dead.path, tmp_path / "landing").readings == 5
    stands = digests(tmp_path / "landing")
    (epoch,) = (path.name for path in (tmp_path / "landing" / "site-2").iterdir())
    rows = landed(tmp_path / "landing", "site-2", epoch)
    assert keys(rows) == [("@site-2", 0x00C0FFEE, n) for n in range(21, 26)]
    assert bring(dead.path, tmp_path / "landing").there == 5
    assert digests(tmp_path / "landing") == stands


@pytest.mark.parametrize("step", ["after Signer.publish", "before Spool.landed"])
async def test_a_real_gateway_and_its_uplink_are_killed(onceway, landed, tmp_path, step):
    """Each acknowledged reading lands once. The uplink dies in its second batch."""
    port, data, landing = free_port(), tmp_path / "data", tmp_path / "landing"
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data}"\ntrust_clock = true\n'
        f'[[listener]]\ntype = "tcp"\nbind = "127.0.0.1:{port}"\nanonymous = true\n'
        f'[spool]\ntopics = ["sensors/#"]\n'
        f'[uplink]\nlanding = "file://{landing}"\nbatch_count = 10\n'
    )
    gateway = onceway.start("gateway", "run", "--config", config)
    wait_until(lambda: listens(port), "the gateway")
    async with aiomqtt.Client(
        "127.0.0.1", port, identifier="tester", protocol=ProtocolVersion.V5
    ) as client:
        for number in range(60):
            await client.publish("sensors/one", number.to_bytes(8, "big"), qos=2)
        gateway.send_signal(signal.SIGKILL)
        gateway.wait()
    when, name = step.split()
    module = "lander" if "Signer" in name else "spool"
    step = f"gateway.uplink.{module}:{name}"
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.uplink.die", when, step, "2"),
        *("uplink", "run", "--config", config, "--once"),
        cwd=ROOT,
    )
    assert await asyncio.wait_for(killed.wait(), 60) == -signal.SIGKILL
    before = digests(data)
    said = onceway("spool", "land", data, "--landing", f"file://{landing}", "--json")
    assert said.returncode == 0, said.stderr
    epoch = json.loads(said.stdout)["epoch"]
    there = json.loads(said.stdout)["there"]
    assert json.loads(said.stdout)["readings"] + there == 50
    assert there == (10 if name == "Spool.landed" else 0)
    assert digests(data) == before
    rows = landed(landing, epoch=epoch)
    assert [int.from_bytes(row[5], "big") for row in rows] == list(range(60))
    assert len(set(keys(rows))) == 60
    # the gateway is started again with this card
    assert onceway("uplink", "run", "--config", config, "--once").returncode == 0
    assert len(all_rows(landing, landed)) == 60


def test_a_landing_place_that_is_away_for_a_while(dead, landed, tmp_path):
    class Away(Exception):
        pass

    place = open_landing(str(tmp_path / "landing"))
    place.create = lambda name, data: (_ for _ in ()).throw(Unreachable("away", "there"))
    with pytest.raises(Unreachable):
        rescue(dead.path, UplinkSection(landing="/x"), lambda: place, lambda now, total: None)
    bring(dead.path, tmp_path / "landing")
    assert keys(landed(tmp_path / "landing")) == EVERYTHING


def test_rescue_is_refused_where_it_would_do_harm(dead, drain, tmp_path):
    for name in ("gateway.lock", "uplink.lock"):
        with closing(ProcessLock(dead.path / name)), pytest.raises(Locked, match="already in use"):
            bring(dead.path, tmp_path / "landing")
    drain(dead, tmp_path / "landing")
    dead.add(1)
    with pytest.raises(OncewayError, match="nothing of site-1 is at this landing place"):
        bring(dead.path, tmp_path / "another")
    (dead.path / "uplink.key").unlink()
    with pytest.raises(OncewayError, match="key that signs"):
        bring(dead.path, tmp_path / "landing")


def test_rescue_of_a_directory_without_a_spool_is_refused(onceway, dead, tmp_path):
    root = tmp_path / "card"
    (root / "var/lib").mkdir(parents=True)
    shutil.copytree(dead.path, root / "var/lib/onceway")
    said = onceway("spool", "land", root, "--landing", tmp_path / "landing", "--json")
    assert said.returncode == 10
    told = json.loads(said.stdout + said.stderr)
    assert (told["where"], told["hint"]) == (
        str(root),
        f"Name this directory: {root}/var/lib/onceway",
    )
    with pytest.raises(NoSpool, match="no store"):
        bring(tmp_path / "nowhere", tmp_path / "landing")
    (root / "gateway.db").write_bytes(b"")
    shutil.copy(dead.path / "uplink.key", root)
    with pytest.raises(NoSpool, match="has no spool"):
        bring(root, tmp_path / "landing")
    (root / "gateway.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match="damaged") as error:
        bring(root, tmp_path / "landing")
    assert str(root) in str(error.value.hint)


def test_a_log_that_lost_commits_is_not_taken_for_whole(dead, tmp_path):
    """After a damaged frame, SQLite ignores the rest of the log, with the readings in it."""
    card = tmp_path / "card"
    with dead.db() as db:
        # another open connection keeps the log from being removed
        db.execute("SELECT * FROM spool").fetchall()
        for _ in range(5):
            dead.add(3)
        shutil.copytree(dead.path, card)
    log = bytearray((card / "gateway.db-wal").read_bytes())
    log[len(log) // 4] ^= 1
    (card / "gateway.db-wal").write_bytes(log)
    with pytest.raises(StoreError, match="log is damaged") as error:
        bring(card, tmp_path / "landing")
    assert error.value.hint == f"See: onceway store salvage --data {card}"
    assert not (tmp_path / "landing").exists()


def test_copies_for_other_gateways_land_too_under_their_own_keys(dead, landed, tmp_path):
    told = {"name": "barn", "epochs": [[0, 5], [12, 6]], "boot": 3, "clock": 1_000}
    rows = [
        (10, "board", 7, 1, "board", "t", b"1", 3, 9, 99),
        (11, None, None, 40, "client", "t", b"2", 3, 9, None),
        (12, None, None, 41, "client", "t", b"3", 2, 9, None),
    ]
    with closing(Copies(dead.path)) as shelf:
        shelf.write([(1, "barn", 12, json.dumps(told))], [(1, row) for row in rows], {}, [])
    landing = tmp_path / "landing"
    before = digests(dead.path)
    done = bring(dead.path, landing)
    assert (done.readings, done.batches, done.there, done.copies) == (53, 2, 0, 3)
    found = all_rows(landing, landed)
    assert sorted(keys(found)) == sorted(
        [*EVERYTHING, ("board", 7, 1), ("@barn", 5, 40), ("@barn", 6, 41)]
    )
    times = {row[5]: (row[6], row[7]) for row in found if row[0] in {"board", "@barn"}}
    assert times == {b"1": (99, 3), b"2": (1_009, 3), b"3": (None, 0)}
    assert digests(dead.path) == before
    assert bring(dead.path, landing) == Rescued("site-1", "00c0ffee", 0, 0, 53, 3)


def test_copies_that_cannot_be_read_do_not_keep_the_rest_from_landing(dead, landed, tmp_path):
    told = {"name": "barn", "epochs": [[0, 5]], "boot": 3, "clock": 1_000}
    rows = [(n, None, None, n, "client", "t", bytes(500), 3, 9, None) for n in range(1, 3001)]
    with closing(Copies(dead.path)) as shelf:
        shelf.write([(1, "barn", 3000, json.dumps(told))], [(1, row) for row in rows], {}, [])
    file = dead.path / "copies.db"
    data = bytearray(file.read_bytes())
    middle = len(data) // 8 * 7
    data[middle : middle + 9000] = bytes(9000)
    file.write_bytes(data)
    landing = tmp_path / "landing"
    done = bring(dead.path, landing)
    assert 1000 < done.copies < 3000
    found = keys(all_rows(landing, landed))
    assert [key for key in found if key[0] != "@barn"] == EVERYTHING
    assert len(found) == 50 + done.copies


@pytest.mark.parametrize("has_landed", [False, True])
def test_a_mistyped_landing_place_is_refused(onceway, dead, drain, landed, tmp_path, has_landed):
    right, wrong = f"file://{tmp_path}/landing", f"file://{tmp_path}/landnig"
    if has_landed:
        drain(dead, tmp_path / "landing")
        dead.add(10)
    said = onceway("spool", "land", dead.path, "--landing", wrong, "--json")
    assert said.returncode == 1
    assert wrong in said.stderr
    assert "this landing place has nothing of the gateway site-1" in said.stderr
    assert not (tmp_path / "landnig/site-1").exists()
    more = [] if has_landed else ["--new-place"]
    assert onceway("spool", "land", dead.path, "--landing", right, *more).returncode == 0
    again = onceway("spool", "land", dead.path, "--landing", right, "--json")
    assert json.loads(again.stdout)["readings"] == 0, "now it knows the gateway"
    if not has_landed:
        assert keys(landed(tmp_path / "landing")) == EVERYTHING


@pytest.mark.parametrize("at", [0, 1, 6, -1], ids=str)
def test_a_damaged_store_is_reported_as_the_guide_says(onceway, dead, tmp_path, at):
    dead.add(3000)
    raw = bytearray((dead.path / "gateway.db").read_bytes())
    start = at * 4096 if at >= 0 else len(raw) - 4096
    raw[start : start + 4096] = b"\xff" * 4096
    (dead.path / "gateway.db").write_bytes(raw)
    said = onceway("spool", "land", dead.path, "--landing", tmp_path / "l", "--new-place")
    assert said.returncode == 10
    assert f"{dead.path}/gateway.db: the store is damaged" in said.stderr
    assert f"onceway store salvage --data {dead.path}" in said.stderr


@pytest.mark.parametrize("key", [None, "", "no key"])
def test_a_key_that_cannot_sign_is_reported_as_the_guide_says(onceway, dead, tmp_path, key):
    (dead.path / "uplink.key").unlink()
    if key is not None:
        (dead.path / "uplink.key").write_text(key)
    said = onceway("spool", "land", dead.path, "--landing", tmp_path / "l", "--new-place")
    assert said.returncode == 1
    assert said.stderr.startswith(f"error: {dead.path}")
    for words in ("uplink.key", "Restore it from a backup", "uplink key --data COPY"):
        assert words in said.stderr


def test_disk_that_fails_during_a_rescue_is_not_called_damage(dead, tmp_path, monkeypatch):
    """A salvage would not help, and leaves rows out."""

    def fails(folder, database):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
        raise error

    monkeypatch.setattr(module, "bring_all", fails)
    with pytest.raises(StoreError, match="the disk fails: it reports an error") as refused:
        bring(dead.path, tmp_path / "landing")
    assert refused.value.where == str(dead.path / "gateway.db")
    assert "salvage" not in str(refused.value)


def test_rescue_whose_numbers_are_lost_twice_ends_with_the_reason(dead, tmp_path, monkeypatch):
    def loses(cut, *_):
        raise NumberTaken(f"a file of batch {cut.number} exists", "there:")

    before = digests(dead.path)
    with monkeypatch.context() as broken:
        broken.setattr(module, "land", loses)
        with pytest.raises(Unreachable, match="a file of batch 1 exists") as refused:
            bring(dead.path, tmp_path / "landing")
    assert refused.value.where == "there:"
    assert digests(dead.path) == before
    assert bring(dead.path, tmp_path / "landing").readings == 50


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_card_that_this_account_may_not_read_needs_sudo(dead, tmp_path, monkeypatch, closed):
    def forbidden(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    if closed == "file":
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)
    else:
        monkeypatch.setattr(module, "refuse_orphaned", forbidden)
    with pytest.raises(NotAllowed, match="may not read the gateway's data") as refused:
        bring(dead.path, tmp_path / "landing")
    assert "sudo" in str(refused.value.hint)
    assert not (tmp_path / "landing").exists()


@pytest.mark.parametrize("name", ["gateway.lock", "uplink.lock"])
def test_card_that_is_mounted_read_only_is_not_read_beside_its_gateway(
    dead, tmp_path, monkeypatch, name
):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    with closing(ProcessLock(dead.path / name)), pytest.raises(Locked) as refused:
        bring(dead.path, tmp_path / "landing")
    assert refused.value.what == f"already in use by process {os.getpid()}"
    assert not (tmp_path / "landing").exists()
    assert bring(dead.path, tmp_path / "landing").readings == 50


def test_store_that_cannot_be_copied_names_the_folder_and_the_remedy(dead, tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OncewayError, match=r"cannot be copied to .*No space left") as refused:
        bring(dead.path, tmp_path / "landing")
    assert refused.value.where == str(dead.path)
    assert "TMPDIR names another place" in str(refused.value.hint)
