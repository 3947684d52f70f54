"""`onceway site …`: three commands add a second gateway to a site. A wrong command gets an error
with its reason.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.config import Config, load
from gateway.doctor.finding import State
from gateway.doctor.site import site as examine
from gateway.errors import OncewayError
from gateway.service import cli as gateway_cli
from gateway.site import cli as site_cli
from gateway.site.pki import folder as files
from gateway.site.pki import joining
from gateway.site.pki.authority import membership
from gateway.site.pki.invitation import read
from tests.service.process import free_port
from tests.site.members import running, until


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    error: str


async def onceway(*words: object) -> Done:
    """Run a command in another thread, because the member that it asks runs in the event loop."""
    return await asyncio.to_thread(_onceway, *map(str, words))


def _onceway(command: str, *words: str) -> Done:
    app = {"site": site_cli.app, "gateway": gateway_cli.app}[command]
    done = CliRunner().invoke(app, words)
    match done.exception:
        case None | SystemExit():
            return Done(done.exit_code, done.stdout, done.stderr)
        case OncewayError() as error:
            return Done(error.exit_code, done.stdout, str(error))
        case error:
            raise error


class Pi:
    """A machine with a gateway's configuration."""

    def __init__(self, folder: Path, name: str, members: dict[str, str] | None) -> None:
        self.name = name
        self.file = folder / f"{name}.toml"
        lines = [f'gateway = {{ name = "{name}", data = "{folder / name}" }}']
        lines += ["[[listener]]", 'bind = "127.0.0.1:0"']
        if members is not None:
            lines += ["[site.members]", *(f'{key} = "{value}"' for key, value in members.items())]
        self.file.write_text("\n".join(lines) + "\n")

    @property
    def config(self) -> Config:
        return load(self.file)

    @property
    def folder(self) -> Path:
        return self.config.site_folder

    async def site(self, *words: object) -> Done:
        return await onceway("site", *words, "--config", self.file)


@pytest.fixture
def members() -> dict[str, str]:
    return {name: f"127.0.0.1:{free_port()}" for name in ("attic", "barn")}


@pytest.fixture
def attic(tmp_path: Path, members: dict[str, str]) -> Pi:
    return Pi(tmp_path, "attic", members)


@pytest.fixture
def barn(tmp_path: Path, members: dict[str, str]) -> Pi:
    return Pi(tmp_path, "barn", members)


async def test_a_second_gateway_joins_and_is_removed(
    attic: Pi, barn: Pi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    file = tmp_path / "barn.invitation"
    done = [await attic.site("init"), await attic.site("invite", "barn", "--output", file)]
    assert [item.code for item in done] == [0, 0], done
    assert "sudo onceway site join barn.invitation" in done[1].out
    assert file.stat().st_mode & 0o777 == 0o600
    secret = read(file).secret
    async with running(attic.config) as (member,):
        done.append(await barn.site("join", file))
        assert done[-1].code == 0, done
        assert "barn is a member" in done[-1].out
        async with running(barn.config) as (other,):
            await until(lambda: member.linked("barn") and other.linked("attic"))
            done.append(await attic.site("remove", "barn"))
            assert "remove it from their lists, without a restart" in done[-1].out
            await until(lambda: not member.linked("barn"))
    assert barn.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in barn.folder.iterdir()} == {0o600}
    keys = [_key(pi.folder / name) for pi in (attic, barn) for name in os.listdir(pi.folder)]
    said = caplog.text + "".join(item.out + item.error for item in done)
    assert len([key for key in keys if key]) == 3
    assert not [word for word in (secret, *filter(None, keys)) if word in said]
    assert not (barn.folder / "joining.key").exists()


def _key(path: Path) -> str | None:
    """Return the private key in a PEM file, in base64, or None."""
    text = path.read_text() if path.is_file() else ""
    found = re.search(r"BEGIN PRIVATE KEY-----\n(.*?)\n", text)
    return found and found[1]


async def invited(attic: Pi, tmp_path: Path) -> Path:
    file = tmp_path / "barn.invitation"
    assert (await attic.site("init")).code == 0
    assert (await attic.site("invite", "barn", "--output", file)).code == 0
    return file


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(("caller", "owner"), [("12345", 12345), ("0", 0), ("", 0), ("-1", 0)])
async def test_an_invitation_belongs_to_the_person_behind_sudo(
    attic: Pi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller: str, owner: int
) -> None:
    """The guide tells this person to copy the file with scp."""
    monkeypatch.setenv("SUDO_UID", caller)
    found = (await invited(attic, tmp_path)).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (owner, 0o600)


async def test_an_invitation_that_is_used_twice_is_refused(
    attic: Pi, barn: Pi, tmp_path: Path
) -> None:
    file = await invited(attic, tmp_path)
    async with running(attic.config):
        assert (await barn.site("join", file)).code == 0
        again = await barn.site("join", file)
        assert (again.code, "barn is already a member of site" in again.error) == (1, True)
        assert "the invitation was used at" in again.error
        thief = Pi(_made(tmp_path / "elsewhere"), "barn", None)
        done = await thief.site("join", file)
        assert (done.code, "attic refuses: the invitation was used at" in done.error) == (1, True)
        assert "already" not in done.error
        assert not (thief.folder / files.MEMBER).exists()
    again = await barn.site("join", file)
    assert "barn is already a member of site" in again.error
    assert "attic cannot be reached" in again.error, "it has stopped"
    assert (await attic.site("invite", "barn", "-o", file)).error.count("there is a file already")


async def test_a_name_that_comes_back_on_an_empty_card_is_noted(
    attic: Pi, barn: Pi, tmp_path: Path
) -> None:
    file = await invited(attic, tmp_path)
    async with running(attic.config):
        assert (await barn.site("join", file)).code == 0
        assert not (barn.folder / files.RETURNED).exists()
        other = Pi(_made(tmp_path / "elsewhere"), "barn", None)
        assert (await attic.site("invite", "barn", "-o", tmp_path / "again")).code == 0
        assert (await other.site("join", tmp_path / "again")).code == 0
    assert (other.folder / files.RETURNED).exists()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("step", ["asked", "kept"])
async def test_a_join_that_was_killed_is_done_again(
    attic: Pi, barn: Pi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = await invited(attic, tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    async with running(attic.config):
        barn.config.gateway.data.mkdir()
        invitation = read(file)
        with monkeypatch.context() as patch:
            if step == "asked":  # the answer is lost
                patch.setattr(joining, "_answer", killed)
            else:
                patch.setattr(joining, "_checked", killed)
            with pytest.raises(KeyboardInterrupt):
                await asyncio.to_thread(_joining(barn, invitation))
        assert not (barn.folder / files.MEMBER).exists()
        await asyncio.sleep(0.2)
        assert (await barn.site("join", file)).code == 0
        made = membership(barn.folder)
        assert made.name == "barn"
        done = await barn.site("join", file)  # the first call did everything except its output
        assert done.code == 1
        assert membership(barn.folder).certificate == made.certificate, "it stays a member"


def _joining(pi: Pi, invitation: joining.Invitation) -> Callable[[], dict[str, str]]:
    return lambda: joining.join(pi.folder, invitation, pi.name)


async def test_an_invitation_that_is_not_written_ends_no_earlier_one(
    attic: Pi, barn: Pi, tmp_path: Path
) -> None:
    file = await invited(attic, tmp_path)
    assert "cannot be written" in (await attic.site("invite", "barn", "-o", "/none/file")).error
    assert "a file already" in (await attic.site("invite", "barn", "-o", file)).error
    assert "has no 'cellar'" in (await attic.site("invite", "cellar", "-o", tmp_path / "x")).error
    assert not (tmp_path / "x").exists(), "it would only look like an invitation"
    async with running(attic.config):
        assert (await barn.site("join", file)).code == 0


async def test_faults_of_a_join(
    attic: Pi, barn: Pi, tmp_path: Path, members: dict[str, str]
) -> None:
    file = await invited(attic, tmp_path)
    done = await attic.site("join", file)
    assert "the invitation is for 'barn', but this gateway is 'attic'" in done.error
    done = await barn.site("join", file)
    assert "attic cannot be reached (Connection refused)" in done.error
    assert f"the invitation is valid until {read(file).expires:%Y-%m-%d %H:%M} UTC" in done.error
    other = Pi(_made(tmp_path / "other"), "attic", members)
    assert (await other.site("init")).code == 0
    async with running(other.config):  # another site's gateway has the address
        done = await barn.site("join", file)
        assert (
            "that address does not prove that it is the inviter: it shows another site's"
            in done.error
        )
    address = members["attic"].split(":")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), *address)
    async with server:
        done = await barn.site("join", file)
        assert done.code == 1
        assert "cannot be reached" in done.error
    done = await other.site("join", file)
    assert "the invitation is for 'barn'" in done.error
    stranger = Pi(_made(tmp_path / "stranger"), "barn", {"barn": members["barn"]})
    assert (await stranger.site("init")).code == 0
    done = await stranger.site("join", file)
    assert "this gateway is a member of site" in done.error
    assert "move that folder away" in done.error


async def test_commands_say_where_they_have_to_run(
    attic: Pi, barn: Pi, tmp_path: Path, members: dict[str, str]
) -> None:
    for words in (("invite", "attic"), ("remove", "attic"), ("status",)):
        done = await barn.site(*words)
        assert done.code == 1, words
        assert "onceway site" in done.error, words
    alone = Pi(tmp_path, "alone", None)
    assert "has no [site]" in (await alone.site("status")).error
    assert "has no [site]" in (await alone.site("invite", "barn")).error
    done = await alone.site("init")
    assert "[site.members]\n" in done.out
    assert (await attic.site("init")).code == 0
    assert "is a member of site" in (await attic.site("init")).error
    assert "has no 'cellar'" in (await attic.site("invite", "cellar")).error
    assert "never had a member 'cellar'" in (await attic.site("remove", "cellar")).error
    assert "holds the site's certificate authority" in (await attic.site("remove", "attic")).error
    assert (await attic.site("invite", "barn", "-o", tmp_path / "file")).code == 0
    done = await attic.site("remove", "barn")
    assert "the invitation for barn is no longer valid" in done.out
    assert json.loads((await attic.site("status", "--json")).out)["authority"]


async def test_the_state_of_a_site_while_the_gateway_does_not_run(attic: Pi) -> None:
    await attic.site("init")
    done = await attic.site("status")
    assert done.code == 1
    assert "the gateway does not run" in done.out
    assert "this gateway, certificate until" in done.out
    found = json.loads((await attic.site("status", "--json")).out)
    assert (found["running"], [row["name"] for row in found["members"]]) == (
        False,
        ["attic", "barn"],
    )


async def test_the_doctor_looks_at_certificate_and_members(
    attic: Pi, barn: Pi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_) = examine(attic.config)
    assert (first.state, "not a member of a site yet" in first.what) == (State.WRONG, True)
    file = await invited(attic, tmp_path)
    first, second = examine(attic.config)
    assert (first.state, second.state) == (State.OK, State.UNSEEN)
    assert "the gateway does not answer" in second.what
    async with running(attic.config) as (member,):
        monkeypatch.setattr("gateway.doctor.site.ask", lambda folder, do: member.net.status())
        await until(lambda: member.row("barn")["problem"])
        _, second = examine(attic.config)
        assert (second.state, "no program listens there" in second.what) == (State.WRONG, True)
        assert (await barn.site("join", file)).code == 0
        async with running(barn.config):
            await until(lambda: member.linked("barn"))
            _, second = examine(attic.config)
            assert (second.part, second.state) == ("member barn", State.OK)
        await attic.site("remove", "barn")
    (barn.folder / files.REMOVED).write_bytes((attic.folder / files.REMOVED).read_bytes())
    first, _ = examine(barn.config)
    assert (first.state, "was removed" in first.what) == (State.WRONG, True)
    (barn.folder / files.MEMBER).write_text("")
    first, _ = examine(barn.config)
    assert (first.state, "damaged" in first.what) == (State.WRONG, True)


async def test_the_configuration_is_checked_with_the_certificate(attic: Pi, barn: Pi) -> None:
    check = ("gateway", "check-config", "--config", attic.file)
    assert "no certificate of a site" in (await onceway(*check)).error
    await attic.site("init")
    assert (await onceway(*check)).code == 0


def test_a_gateway_without_a_site_imports_nothing_of_it() -> None:
    text = (
        "import sys; import gateway.service.gateway; import gateway.service.cli;"
        "print([name for name in sys.modules if name.startswith('gateway.site')])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_gateway_that_cannot_read_its_site_folder_reports_it_and_ends(
    tmp_path: Path,
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        f'gateway = {{ name = "a", data = "{tmp_path}/a" }}\n'
        'listener = [{ bind = "127.0.0.1:0" }]\n'
        f'site = {{ folder = "{tmp_path}/{"x" * 300}", members = {{ a = "127.0.0.1:1" }} }}\n'
    )
    command = (sys.executable, "-m", "gateway", "gateway", "run", "--config", file)
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "the site's files cannot be used (File name too long)" in done.stderr
