"""The registry that a command uses: the gateway's, or the one that the user names. It is never a
registry that no gateway reads.
"""

import json
import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.boards.admission import FILE
from gateway.commands import control_client
from gateway.commands import options as shared
from gateway.commands.options import CONFIG
from gateway.config import MayNotRead
from gateway.errors import NotAllowed, OncewayError
from gateway.system import accounts
from provisioning import options
from provisioning.registry import Registry
from tests.accounts import python, under

GATEWAY, GROUP, UPLINK, ADMIN, PERSON = 4711, 4713, 4712, 4714, 4715
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

COMMANDS = [
    ["device", "list"],
    ["device", "pending"],
    ["device", "admit", "roof-1"],
    ["device", "revoke", "roof-1"],
    ["device", "show", "roof-1"],
    ["device", "add", "roof-1", "--port", "/dev/null"],
    ["device", "provision", "roof-1", "--port", "/dev/null"],
    ["device", "flash", "roof-1", "--port", "/dev/null"],
    ["device", "replace", "roof-1", "--port", "/dev/null"],
    ["device", "rename", "roof-1", "roof-2", "--port", "/dev/null"],
    ["device", "rekey", "roof-1", "--port", "/dev/null"],
    ["device", "update", "--all"],
    ["device", "ping", "roof-1", "--wait", "1"],
    ["device", "log", "roof-1"],
    ["device", "expect", "roof-1", "5m"],
    ["device", "pause", "roof-1", "3d"],
    ["registry", "export", "/nowhere/backup"],
]


@pytest.fixture
def site() -> Iterator[Path]:
    """Yield a folder with a configuration and a data directory of another account, like those of
    the package.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "data").mkdir()
        os.chown(folder / "data", GATEWAY, GROUP)
        (folder / "data").chmod(0o2750)
        Registry(folder / "data" / FILE).admit("roof-1")
        (folder / "gateway.toml").write_text(f'[gateway]\ndata = "{folder}/data"\n')
        yield folder


RUN_ALL = """
import contextlib, io, json, sys
from gateway.commands.main import main
found = []
for words in json.loads(sys.argv[1]):
    sys.argv, said = ["onceway", *words], io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    found.append([code, said.getvalue()])
print(json.dumps(found))
"""
"""A program that runs all commands in one process, because the start of each process takes
seconds.
"""


def run(folder: Path, commands: list[list[str]], user: int, config: Path) -> list[tuple[int, str]]:
    """Run all commands under this account. Return the exit code and the output of each."""
    account = under(user, user)
    account["env"] |= {"HOME": str(folder), CONFIG: str(config)}
    done = subprocess.run(
        python("-c", RUN_ALL, json.dumps(commands)),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        **account,
    )
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout)]


@pytest.mark.parametrize("installed", [False, True])
def test_registry_option_is_required_without_a_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    """If ONCEWAY_CONFIG is mistyped, the command must not silently use the registry of the
    installed gateway.
    """
    none = tmp_path / "none.toml"
    monkeypatch.setenv(CONFIG, str(none))
    monkeypatch.setattr(shared, "INSTALLED", tmp_path if installed else tmp_path / "not-there")
    monkeypatch.setenv("HOME", str(tmp_path))
    for opened in (options.open_registry, options.existing_registry):
        with pytest.raises(OncewayError, match=f"^{none}: there is no gateway here"):
            opened(None)
    assert not [*tmp_path.rglob("*.db")], "nothing private was made"


@pytest.mark.parametrize("named", [False, True])
def test_an_unreadable_configuration_means_the_installed_gateway_only_if_it_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    def refuse(path: Path) -> None:
        raise MayNotRead("you may not read the configuration", str(path))

    (tmp_path / "gateway.toml").touch()
    monkeypatch.setattr(shared, "load", refuse)
    monkeypatch.setattr(shared, "INSTALLED", tmp_path)
    monkeypatch.setattr(shared, "CONFIG_FILE", str(tmp_path / "gateway.toml"))
    if named:
        monkeypatch.setenv(CONFIG, str(tmp_path / "gateway.toml"))
        with pytest.raises(MayNotRead):
            shared.running_folder(None, None)
    else:
        monkeypatch.delenv(CONFIG, raising=False)
        assert shared.running_folder(None, None) == tmp_path


def test_named_configuration_decides_the_registry(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f'[gateway]\ndata = "{tmp_path}/data"\n')
    assert options.registry_file(config) == tmp_path / "data" / FILE
    assert options.gateway_folder(config) == tmp_path / "data"
    own = tmp_path / "mine.db"
    assert options.registry_file(own) == own


@root_only
def test_user_without_permission_gets_the_remedy_before_any_change(site: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    found = run(site, COMMANDS, PERSON, site / "gateway.toml")
    for words, (code, said) in zip(COMMANDS, found, strict=True):
        assert code == NotAllowed.exit_code, (words, said)
        assert "sudo usermod -aG onceway-admin $USER" in said, words
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before


@root_only
def test_error_is_json_under_the_json_option(site: Path) -> None:
    asked = [[*words, "--json"] for words in COMMANDS]
    for words, (_, said) in zip(
        asked, run(site, asked, PERSON, site / "gateway.toml"), strict=True
    ):
        assert "onceway-admin" in json.loads(said)["hint"], words


@root_only
def test_the_uplink_cannot_connect_to_the_control_socket(site: Path) -> None:
    """The folder of the socket belongs to the group of the administrators and is closed to all
    others. The uplink's account is only in the gateway's group.
    """
    folder = site / "run"
    folder.mkdir()
    os.chown(folder, GATEWAY, ADMIN)
    folder.chmod(0o2750)
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(folder / "control.sock"))
        (folder / "control.sock").chmod(0o660)
        listening.listen()
        found = (folder / "control.sock").stat()
        assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (ADMIN, 0o660)
        assert not _connects(folder, UPLINK, GROUP)
        assert not _connects(folder, PERSON, PERSON)
        assert _connects(folder, PERSON, ADMIN)
        assert _connects(folder, GATEWAY, ADMIN)


def _connects(folder: Path, user: int, group: int) -> bool:
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        try:
            with closing(socket.socket(socket.AF_UNIX)) as channel:
                channel.connect(str(folder / "control.sock"))
        except PermissionError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_package_makes_the_uplink_no_member_of_the_group_that_commands() -> None:
    systemd = Path(__file__).parents[2] / "systemd"
    lines = (systemd / "onceway.sysusers").read_text().splitlines()
    assert f"g {control_client.ADMIN} -" in lines
    assert not [line for line in lines if accounts.UPLINK in line and control_client.ADMIN in line]
    made = (systemd / "onceway.tmpfiles").read_text().splitlines()
    assert f"d {control_client.RUN} 2750 onceway {control_client.ADMIN} -" in made
    assert (
        f"ReadWritePaths=-{control_client.RUN}" in (systemd / "onceway-gateway.service").read_text()
    )


def test_the_socket_of_the_package_is_where_its_group_may_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_client, "INSTALLED", tmp_path / "data")
    monkeypatch.setattr(control_client, "RUN", tmp_path / "run")
    assert control_client.place(tmp_path / "data") == tmp_path / "data"
    (tmp_path / "run").mkdir()
    assert control_client.place(tmp_path / "data") == tmp_path / "run"
    assert control_client.place(tmp_path / "other") == tmp_path / "other"
