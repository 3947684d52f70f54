"""`onceway backup` and `onceway restore`: a new machine takes the place of the gateway, and the
user is told everything that is necessary.
"""

import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gateway.backup import cli
from gateway.backup.contents import read, write
from gateway.backup.restore import put_back
from gateway.backup.sealed import SealedReader
from gateway.commands import control_client as control
from gateway.commands import options
from gateway.commands.exit_codes import FAILED, STORE
from gateway.config import load
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connect, Publish, Pubrec
from gateway.site.pki.authority import found, membership
from gateway.site.pki.invitation import invite
from gateway.store.schema import open_store
from gateway.uplink.landing import open_landing
from gateway.uplink.signing import load_or_make
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.service.process import gateway
from tests.service.wire import wire

ONCEWAY = Path(sys.executable).with_name("onceway")
OLD_BACKUPS = sorted((Path(__file__).parent / "old").glob("*.owback"))


def onceway(*words: object, passphrase: str = "correct horse") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ONCEWAY, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ONCEWAY_PASSPHRASE": passphrase},
    )


def registry(path: Path, *names: str) -> Registry:
    made = Registry(path)
    for name in names:
        made.finish(made.begin(Identity.create(name), "uno", "/dev/ttyACM0"), "ab" * 32)
    return made


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return the folder that stands for a machine: it has the configuration and the data
    directory.
    """
    site = tmp_path / "site"
    site.mkdir()
    (site / "gateway.toml").write_text(
        f'gateway.name = "site-7"\ngateway.data = "{site}/data"\n'
        f'uplink.landing = "file://{site}/landing"\n[[listener]]\nbind = "127.0.0.1:0"\n'
    )
    return site


async def test_another_machine_goes_on_as_the_gateway(site: Path, tmp_path: Path) -> None:
    config, file = site / "gateway.toml", tmp_path / "site-7.owback"
    async with gateway(site / "data", "--config", str(config)) as running:
        registry(site / "data/registry.db", "roof-1")
        async with wire(running.port, Connect("c")) as client:
            client.send(Publish("sensors/a", b"a reading", 2, 1))
            await client.take(Pubrec)
            made = onceway("backup", file, "--config", config)
        await running.end()
    assert made.returncode == 0, made.stderr
    assert f"sudo onceway restore {file} --config {config}\n" in made.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"a reading" not in file.read_bytes()

    shutil.rmtree(site)
    done = onceway("restore", file, "--config", config)
    assert done.returncode == 0, done.stderr
    assert "restored the gateway site-7" in done.stdout
    assert f"the gateway's configuration is in {config}" in done.stdout
    assert "never let the old machine run again" in done.stdout
    assert [device.name for device in Registry(site / "data/registry.db").devices()] == ["roof-1"]
    async with gateway(site / "data", "--config", str(config)) as running:
        (status,) = control.ask(site / "data", do="status")
        assert status["gateway"] == "site-7"
        assert "backup" in status["restored"] or "restored" in status["restored"]
        await running.end()
    with closing(sqlite3.connect(site / "data/gateway.db")) as database:
        spooled = "SELECT payload FROM spool WHERE topic != 'onceway/devices'"
        assert database.execute(spooled).fetchall() == [(b"a reading",)]


def backed_up(site: Path, file: Path, *names: str) -> None:
    (site / "data").mkdir(exist_ok=True)
    open_store(site / "data", "site-7").close()
    registry(site / "data/registry.db", *names)
    done = onceway("backup", file, "--config", site / "gateway.toml")
    assert done.returncode == 0, done.stderr


def test_a_backup_from_the_landing_place_is_restored(site: Path, tmp_path: Path) -> None:
    config = ("--config", site / "gateway.toml")
    backed_up(site, tmp_path / "b", "roof-1")
    done = onceway("backup", "--to-landing", "--keep", "2", *config)
    assert done.returncode == 0, done.stderr
    (first,) = (site / "landing/site-7/backups").glob("*.owback")
    assert str(first) in done.stdout
    landing = open_landing(f"file://{site}/landing")
    assert landing.epochs("site-7") == [], "no batches are looked for there"
    assert not list((site / "data").glob(".backup-*"))
    registry(site / "data/registry.db", "roof-2")
    done = onceway("restore", first, *config)
    assert done.returncode == 0, done.stderr
    assert [item.name for item in Registry(site / "data/registry.db").devices()] == ["roof-1"]


def test_device_revoked_since_the_backup_stays_revoked(site: Path, tmp_path: Path) -> None:
    file = tmp_path / "b"
    backed_up(site, file, "roof-1", "roof-2")
    here = registry(site / "data/registry.db", "roof-3")
    here.revoke("roof-1")
    here.revoke("roof-3")
    done = onceway("restore", file, "--config", site / "gateway.toml")
    assert "devices revoked on this machine stay revoked: roof-1, roof-3" in done.stdout
    now = {item.name: item.status for item in Registry(site / "data/registry.db").devices()}
    assert now == {"roof-1": "revoked", "roof-2": "ready", "roof-3": "revoked"}


def test_batches_are_signed_with_the_key_that_the_centre_trusts(site: Path, tmp_path: Path) -> None:
    file, data = tmp_path / "b", site / "data"
    data.mkdir()
    trusted = load_or_make(data).public
    backed_up(site, file)
    (data / "uplink.key").unlink()
    other = load_or_make(data).public  # a new machine, on which the uplink has already run
    done = onceway("restore", file, "--config", site / "gateway.toml")
    assert done.returncode == 0, done.stderr
    assert load_or_make(data).public == trusted != other
    assert (data / "uplink.key").stat().st_mode & 0o777 == 0o600
    assert (data / "uplink.key.before-restore").exists()


def test_files_that_the_configuration_names_come_along(site: Path, tmp_path: Path) -> None:
    names = ("page.pem", "page.key", "cloud.password", "cloud-ca.pem")
    for name in names:
        (site / name).write_text(f"what {name} holds")
        (site / name).chmod(0o600)
    config = site / "gateway.toml"
    page = f'[page]\ncertificate = "{site}/page.pem"\nkey = "{site}/page.key"\n'
    bridge = (
        '[[bridge]]\nname = "cloud"\nserver = "mqtts://broker.example"\nup = ["#"]\nuser = "u"\n'
        f'password_file = "{site}/cloud.password"\nca = "{site}/cloud-ca.pem"\n'
    )
    config.write_text(config.read_text() + page + bridge)
    backed_up(site, tmp_path / "b")
    shutil.rmtree(site)
    done = onceway("restore", tmp_path / "b", "--config", config)
    assert done.returncode == 0, done.stderr
    for name in names:
        assert (site / name).read_text() == f"what {name} holds"
        assert (site / name).stat().st_mode & 0o777 == 0o600


def test_restore_writes_the_configuration_where_the_environment_says(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file exists at that path before, as on a new machine."""
    backed_up(site, tmp_path / "b")
    shutil.rmtree(site)
    monkeypatch.setenv("ONCEWAY_CONFIG", str(site / "gateway.toml"))
    monkeypatch.setenv("ONCEWAY_PASSPHRASE", "correct horse")
    elsewhere = tmp_path / "elsewhere"
    for module in (options, cli):
        monkeypatch.setattr(module, "CONFIG_FILE", str(elsewhere / "gateway.toml"))
    done = CliRunner().invoke(cli.restore_app, [str(tmp_path / "b")])
    assert done.exit_code == 0, done.output
    assert load(site / "gateway.toml").gateway.name == "site-7"
    assert not elsewhere.exists()


def test_restore_keeps_existing_files(site: Path, tmp_path: Path) -> None:
    file, config = tmp_path / "b", site / "gateway.toml"
    backed_up(site, file)
    before = config.read_text()
    config.write_text(before + "log.level = 'debug'\n")
    done = onceway("restore", file, "--config", config)
    assert done.returncode == 0, done.stderr
    assert config.read_text() == before
    assert "debug" in config.with_name("gateway.toml.before-restore").read_text()
    assert list((site / "data").glob("replaced-*.db"))


def test_without_a_terminal_no_passphrase_is_asked_for(site: Path) -> None:
    done = subprocess.run(
        [ONCEWAY, "backup", site / "b.owback", "--config", site / "gateway.toml"],
        capture_output=True,
        text=True,
        input="typed where all can see it\n",
        check=False,
        start_new_session=True,  # no terminal for a prompt
        env={key: value for key, value in os.environ.items() if key != "ONCEWAY_PASSPHRASE"},
    )
    assert done.returncode == 1
    assert "error: there is no passphrase. Type one at the terminal, or put it" in done.stderr
    assert "Warning" not in done.stderr
    assert not (site / "b.owback").exists()


@pytest.mark.parametrize("harm", ["passphrase", "cut", "foreign", "gone"])
def test_unusable_backup_changes_nothing(site: Path, tmp_path: Path, harm: str) -> None:
    file = tmp_path / "b"
    backed_up(site, file, "roof-1")
    if harm == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    if harm == "foreign":
        file.write_bytes(b"something else")
    if harm == "gone":
        file.unlink()
    store = (site / "data/gateway.db").read_bytes()
    done = onceway(
        "restore",
        file,
        "--config",
        site / "gateway.toml",
        passphrase="correct horse" if harm != "passphrase" else "wrong",
    )
    assert done.returncode == (FAILED if harm == "passphrase" else STORE)
    assert done.stderr.startswith(f"error: {file}: ")
    assert len(done.stderr.splitlines()) == 1
    assert (site / "data/gateway.db").read_bytes() == store
    assert not list(site.glob(".restore-*"))


@pytest.mark.parametrize("name", ["gateway.db", "registry.db"])
def test_damaged_database_is_named_and_no_backup_takes_its_place(
    site: Path, tmp_path: Path, name: str
) -> None:
    data, file = site / "data", tmp_path / "x.owback"
    data.mkdir()
    open_store(data, "site-7").close()
    registry(data / "registry.db", "roof-1").close()
    image = (data / name).read_bytes()
    (data / name).write_bytes(image[:4096] + b"\xff" * (len(image) - 4096))
    done = onceway("backup", file, "--config", site / "gateway.toml")
    assert done.returncode in (FAILED, STORE)
    assert re.match(f"error: .*/{name}: .*damaged", done.stderr), done.stderr
    assert list(tmp_path.glob("*.owback*")) == list(data.glob("*.new")) == []


async def test_a_running_gateway_is_not_replaced(site: Path, tmp_path: Path) -> None:
    file, config = tmp_path / "b", site / "gateway.toml"
    backed_up(site, file)
    async with gateway(site / "data", "--config", str(config)) as running:
        done = onceway("restore", file, "--config", config)
        assert done.returncode == 4
        assert "already in use by" in done.stderr
        await running.end()


@pytest.mark.parametrize("name", ["../out", "nobody", "/etc/out"])
def test_a_file_that_the_list_does_not_name_goes_nowhere(tmp_path: Path, name: str) -> None:
    archive = io.BytesIO()
    entry = {"name": "gateway.db", "path": "/d", "mode": 0o600, "owner": "0", "group": "0"}
    entries = [entry, entry | {"name": "gateway.toml"}]
    listed = {"format": 1, "version": "1", "gateway": "g", "made": "m", "machine": "h"}
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for member, data in (
            ("manifest.json", json.dumps(listed | {"files": entries}).encode()),
            (name, b"text"),
        ):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    archive.seek(0)
    with pytest.raises(OncewayError, match="an unknown file"):
        read(archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", OLD_BACKUPS, ids=lambda file: file.stem)
def test_backups_of_older_versions_stay_readable(file: Path, tmp_path: Path) -> None:
    """The passphrase of these backups is `correct horse`."""
    with file.open("rb") as archive:
        manifest = read(SealedReader(archive, "correct horse"), tmp_path)
    assert manifest.gateway == "site-7"
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as database:
        assert database.execute("PRAGMA quick_check").fetchone() == ("ok",)


def test_backup_of_an_old_version_is_readable() -> None:
    assert OLD_BACKUPS


def test_the_place_in_a_site_comes_back_and_no_open_invitation_does(
    site: Path, tmp_path: Path
) -> None:
    config = site / "gateway.toml"
    with config.open("a") as file:
        file.write('[site.members]\nsite-7 = "10.0.0.1:8884"\nbarn = "10.0.0.2:8884"\n')
    settings = load(config)
    assert settings.site is not None
    (site / "data").mkdir()
    open_store(site / "data", "site-7").close()
    found(settings.site_folder, "site-7")
    invite(settings.site_folder, settings.site, "site-7", "barn", 1)
    archive = io.BytesIO()
    write(archive, settings, config)
    archive.seek(0)
    folder = tmp_path / "out"
    folder.mkdir()
    manifest = read(archive, folder)
    kept = {entry.name: entry for entry in manifest.files if entry.name.startswith("site-")}
    assert set(kept) == {"site-authority.pem", "site-member.pem"}
    entry = kept["site-member.pem"]
    assert (entry.path, entry.mode) == (str(site / "data/site/member.pem"), 0o600)
    assert (folder / entry.name).read_bytes() == Path(entry.path).read_bytes()
    shutil.rmtree(site / "data/site")
    if not os.geteuid():  # root gives restored files to the account of the service
        for item in manifest.files:
            object.__setattr__(item, "owner", "nobody")
    put_back(folder, manifest, site / "data", config)
    owners = {path.owner() for path in (settings.site_folder, Path(entry.path))}
    assert owners == {"nobody" if not os.geteuid() else Path(folder).owner()}
    assert membership(settings.site_folder, "site-7").name == "site-7"


ENTRY = {"name": "x", "path": "/x", "mode": 384, "owner": "o", "group": "g"}
GOOD = {"format": 1, "version": "v", "gateway": "g", "made": "m", "machine": "h", "files": []}
MANIFESTS = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[" * 100_000,
    b"null",
    b"3",
    b"[]",
    b'"text"',
    b'[{"format": 1}]',
    b"{}",
    b'{"format": 2, "version": {}}',
    b'{"format": null}',
    b'{"format": 1' + b" " * 1_000_000 + b"}",
    *(json.dumps(GOOD | more).encode() for more in (
        {"files": None},
        {"files": {}},
        {"files": [3]},
        {"files": [{}]},
        {"gateway": 3},
        {"made": None},
        *({"files": [ENTRY | wrong]} for wrong in (
            {"name": ""},
            {"name": "."},
            {"name": ".."},
            {"name": "a/b"},
            {"name": "/x"},
            {"name": "a\0b"},
            {"name": "manifest.json"},
            {"name": 3},
            {"path": "x"},
            {"path": ""},
            {"path": "/"},
            {"path": "/etc/.."},
            {"path": "/a\0b"},
            {"path": "/a\nb"},
            {"mode": -1},
            {"mode": 0o4755},
            {"mode": 10**30},
            {"mode": "rw"},
            {"mode": None},
            {"owner": None},
            {"owner": "a\0"},
            {"group": []},
        )),
        {"files": [ENTRY, ENTRY]},
        {"files": [ENTRY]},
    )),
]  # fmt: skip


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_list_of_files_that_is_wrong_is_reported_in_a_sentence(
    manifest: bytes, tmp_path: Path
) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(manifest)
        tar.addfile(member, io.BytesIO(manifest))
    archive.seek(0)
    with pytest.raises(OncewayError, match=r"^the backup"):
        read(archive, tmp_path)


_LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["gateway.db", "gateway.toml", "manifest.json", "..", "/", "/x"])
)
_KEYS = st.text(max_size=4) | st.sampled_from([*GOOD, *ENTRY])
_TREE = st.recursive(
    _LEAF, lambda item: st.lists(item, max_size=3) | st.dictionaries(_KEYS, item, max_size=4)
)
_ENTRY = st.fixed_dictionaries({key: st.just(good) | _TREE for key, good in ENTRY.items()})
_MANIFEST = st.fixed_dictionaries(
    {key: st.just(good) | _TREE for key, good in GOOD.items()}
    | {"files": st.lists(_ENTRY | _TREE, max_size=4)}
)
_FILES = st.dictionaries(
    st.sampled_from(["x", "gateway.db", "gateway.toml", "manifest.json", "a/b", "../x", ""]),
    st.binary(max_size=20),
    max_size=3,
)


@settings(deadline=None, max_examples=200)
@given(_MANIFEST | _TREE, _FILES, st.integers(0, 6000), st.binary(max_size=8))
def test_an_archive_of_any_content_is_read_or_reported_in_a_sentence(
    manifest: object, files: dict[str, bytes], place: int, noise: bytes
) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in [("manifest.json", json.dumps(manifest).encode()), *files.items()]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    data = bytearray(archive.getvalue())
    if noise:
        data[place : place + len(noise)] = noise
    else:
        del data[place * 2 :]
    with tempfile.TemporaryDirectory() as folder, suppress(OncewayError):
        read(io.BytesIO(bytes(data)), Path(folder))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, b"5"])
@pytest.mark.parametrize("name", ["manifest.json", "gateway.db"])
def test_an_archive_that_holds_other_things_than_files_is_reported_in_a_sentence(
    kind: bytes, name: str, tmp_path: Path
) -> None:
    archive = io.BytesIO()
    files = [ENTRY | {"name": item} for item in ("gateway.db", "gateway.toml")]
    manifest = json.dumps(GOOD | {"files": files}).encode()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        if name != "manifest.json":
            member = tarfile.TarInfo("manifest.json")
            member.size = len(manifest)
            tar.addfile(member, io.BytesIO(manifest))
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    archive.seek(0)
    with pytest.raises(OncewayError, match=r"^the backup"):
        read(archive, tmp_path)
