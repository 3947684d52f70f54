"""Gateway and uplink under separate accounts, as in the Debian package. Both use the spool. The
gateway cannot read the uplink's own files.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.config import UplinkSection
from gateway.system import accounts
from gateway.uplink import signing
from gateway.uplink.cutter import Cutter
from gateway.uplink.spool import Spool
from tests.accounts import onceway, python, under
from tests.service.process import START_S

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

GATEWAY, UPLINK, GROUP = 4711, 4712, 4713
CONFIG = """
[gateway]
name = "site-1"
data = "{folder}/data"
trust_clock = true

[[listener]]
bind = "127.0.0.1:0"
anonymous = true

[uplink]
landing = "file://{folder}/landing"
batch_age_s = 1
"""


@pytest.fixture
def site() -> Iterator[Path]:
    """Yield a folder with the files that the package makes. Other accounts may enter it, unlike
    pytest's folders.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        for part, user, mode in (("data", GATEWAY, 0o2750), ("landing", UPLINK, 0o750)):
            (folder / part).mkdir()
            os.chown(folder / part, user, GROUP)
            (folder / part).chmod(mode)
        signing.load_or_make(folder / "data")  # made by root, as in the package
        os.chown(folder / "data/uplink.key", UPLINK, GROUP)
        (folder / "gateway.toml").write_text(CONFIG.format(folder=folder))
        yield folder


def start(site: Path, user: int, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        onceway(*words, "--config", site / "gateway.toml"),
        stderr=subprocess.PIPE,
        text=True,
        umask=0o027,
        **under(user, GROUP),
    )


@contextmanager
def running(site: Path, user: int, *words: str, until: str):
    """Run `onceway` under an account. Yield the first line of its output that has the text
    `until`.
    """
    with start(site, user, *words) as process:
        try:
            assert process.stderr is not None
            said = ""
            while until not in said.rpartition("\n")[2]:
                line = process.stderr.readline()
                assert line, said
                said = f"{said}\n{line.rstrip()}"
            yield said.rpartition("\n")[2]
        finally:
            process.terminate()
            process.communicate(timeout=START_S)


def publish(said: str) -> None:
    port = said.strip().rpartition(":")[2]
    subprocess.run(
        ["mosquitto_pub", "-p", port, "-t", "a", "-m", "1", "-q", "2"], check=True, timeout=START_S
    )


def land(site: Path) -> None:
    with start(site, UPLINK, "uplink", "run", "--once") as uplink:
        _, said = uplink.communicate(timeout=START_S)
    assert uplink.returncode == 0, said


def until_landed(site: Path) -> None:
    """Wait until a batch has landed, at most START_S seconds."""
    end = time.monotonic() + START_S
    while not landed(site):
        assert time.monotonic() < end
        time.sleep(0.1)


def landed(site: Path) -> int:
    return len(list((site / "landing").glob("*/[!.]*/*.parquet")))


def test_each_goes_on_with_what_the_other_has_made(site: Path) -> None:
    with running(site, GATEWAY, "gateway", "run", until="listening on") as said:
        publish(said)
        land(site)
        publish(said)
        land(site)
    assert landed(site) == 2
    land(site)  # no gateway runs now
    with (
        running(site, UPLINK, "uplink", "run", until="next batch: 3"),
        running(site, GATEWAY, "gateway", "run", until="listening on") as said,
    ):
        publish(said)
    land(site)
    assert (site / "data/gateway.db-wal").stat().st_size, "the last one could not delete it"
    with running(site, GATEWAY, "gateway", "run", until="listening on") as said:
        publish(said)
    land(site)
    assert landed(site) == 4


def test_without_a_log_the_uplink_waits_for_the_gateway(site: Path) -> None:
    """The log is missing, for example because root opened the store while both programs were
    stopped.
    """
    with running(site, GATEWAY, "gateway", "run", until="listening on") as said:
        publish(said)
    for name in ("gateway.db-wal", "gateway.db-shm"):
        (site / "data" / name).unlink()
    with (
        running(site, UPLINK, "uplink", "run", until="The uplink waits until") as said,
        running(site, GATEWAY, "gateway", "run", until=": start "),
    ):
        assert "has no write-ahead log" in said
        until_landed(site)


TAKE_OVER = """
import os, sys
folder, *names = sys.argv[1:]
os.chdir(folder)
for name in names:
    os.stat(name)
    for act in (os.unlink, lambda name: os.rename(name, "x"), lambda name: os.link("users", "x")):
        try:
            act(name)
        except PermissionError:
            continue
        sys.exit(name)
"""


def test_an_uplink_that_was_taken_over_replaces_nothing_of_the_gateway(site: Path) -> None:
    (site / "data/users").touch(0o600)
    os.chown(site / "data/users", GATEWAY, GROUP)
    with running(site, GATEWAY, "gateway", "run", until=": start "):
        names = ["users", "control.sock", "boards.json", "gateway.db", "gateway.db-wal"]
        (site / "data/boards.json").touch(0o600)
        command = python("-c", TAKE_OVER, site / "data", *names)
        subprocess.run(command, check=True, **under(UPLINK, GROUP))


def test_the_gateway_cannot_read_the_key_that_signs(site: Path) -> None:
    with running(site, GATEWAY, "gateway", "run", until=": start "):
        land(site)
    found = (site / "data/uplink.key").stat()
    assert (found.st_uid, found.st_mode & 0o777) == (UPLINK, 0o600)


def test_files_made_by_root_for_the_uplink_belong_to_it(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "UPLINK", "games")
    (site / "data/uplink.key").unlink()
    signing.load_or_make(site / "data")
    owner = accounts.uplink_owner(site / "data")
    found = (site / "data/uplink.key").stat()
    assert owner == (found.st_uid, found.st_gid)
    assert owner[0] not in (0, GATEWAY)


def test_the_uplink_goes_on_with_a_batch_that_root_has_cut(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "UPLINK", "games")
    with running(site, GATEWAY, "gateway", "run", until="listening on") as said:
        publish(said)
    with Spool(site / "data") as spool:
        Cutter(spool, site / "data", UplinkSection(landing="file:///unused")).cut()
    owner, _ = accounts.uplink_owner(site / "data")
    made = [site / "data/batches", *(site / "data/batches").iterdir()]
    assert [path.stat().st_uid for path in made] == [owner, owner]


def test_root_gives_nothing_away_through_a_link(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "UPLINK", "games")
    roots = site / "roots"
    roots.mkdir()
    (site / "data/batches").symlink_to(roots)
    accounts.give_to_uplink(site / "data/batches", site / "data")
    assert roots.stat().st_uid == 0
    assert (site / "data/batches").lstat().st_uid == accounts.uplink_owner(site / "data")[0]


def test_a_directory_of_one_account_stays_closed_to_the_group(site: Path) -> None:
    (site / "data").chmod(0o750)
    with running(site, GATEWAY, "gateway", "run", until=": start "):
        assert not (site / "data/gateway.db").stat().st_mode & 0o020
        with start(site, UPLINK, "uplink", "run", "--once") as uplink:
            _, said = uplink.communicate(timeout=START_S)
    assert uplink.returncode != 0
    assert said.startswith("error: ")
