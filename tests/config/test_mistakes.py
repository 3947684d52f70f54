"""Common mistakes in the configuration. Each message says what to write instead."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.access.rules import Acl
from gateway.config import INSIDE, Config, ConfigError, advice, load, split_bind


def _load(folder: Path, text: str) -> Config:
    path = folder / "gateway.toml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[listener]\nbind = ':1883'",
            "listener: write [[listener]], in double brackets: there may be several",
        ),
        ("[[spool]]\nmax_bytes = 5", "spool: write [spool], in single brackets: only one such"),
        (
            "[spool]\nmax_bytes = '1GB'",
            "spool.max_bytes = '1GB': write a number without quotes: 1_000_000_000",
        ),
        ("gateway = 3", "gateway: write the section [gateway], on a line of its own"),
        (
            "[[listener]]\nbind = ':1883'\ntls = true",
            "listener[1].tls: write the section [listener.tls], on a line of its own",
        ),
        (
            "[[listener]]\nbind = ':8883'\ntype = 'tls'",
            "listener[1].type = 'tls': for TLS write a section [listener.tls]",
        ),
        (
            "[site.members]\na = '10.0.0.1:1'\nb = '10.0.0.1:1'",
            "site: two members have the address '10.0.0.1:1'",
        ),
        ("[gateway]\nname = 5", "gateway.name = 5: write a text in quotes"),
        ("[[acl]]\nusers = 'x'", "acl[1].users: write a list, in square brackets"),
        ("[spool]\nmax_bytes = 'much'", "spool.max_bytes = 'much': write a number without quotes"),
        (
            "[[serial]]\nport = '/dev/x'\nopen = 'yes'",
            "serial[1].open = 'yes': write true or false, without quotes",
        ),
        (
            "[[listener]]\nbind = ':1883'\nrefuse = 'code'",
            "listener[1].refuse = 'code': input should be 'disconnect' or 'reason code'",
        ),
        (
            "[[listener]]\nbind = '127.0.0.1:99999'",
            "listener[1].bind = '127.0.0.1:99999': a port is a number up to 65535",
        ),
        (
            "[[bridge]]\nname = 'b'\nserver = 'broker:1883'\nup = ['#']",
            "bridge[1].server = 'broker:1883': must be a URL, such as mqtts://broker.example",
        ),
        *(
            (
                f"[[bridge]]\nname = 'b'\nserver = 'mqtt://{server}'\nup = ['#']",
                f"bridge[1].server = 'mqtt://{server}': {why}",
            )
            for server, why in (
                ("b:0", "the port of a URL is a number from 1 to 65535"),
                ("b:99999", "the port of a URL is a number from 1 to 65535"),
                ("b:x", "the port of a URL is a number from 1 to 65535"),
                ("b c", "a URL has no spaces"),
                ("b:1883#x", "must be a URL, such as mqtts://broker.example"),
            )
        ),
        (
            "[[bridge]]\nname = 'b c'\nserver = 'mqtt://b'\nup = ['#']",
            "bridge[1].name = 'b c': must have 1 to 32 characters: letters from a to z, digits",
        ),
        (
            "[access]\nurl = 'http://b:0'",
            "access.url = 'http://b:0': the port of a URL is a number from 1 to 65535",
        ),
        (
            "[[bridge]]\nname = 'b'\nserver = 'mqtt://b'",
            'has neither up nor down. Add, for example, up = ["sensors/#"]',
        ),
        (
            "[[bridge]]\nname = 'b'\nserver = 'mqtt://b'\nup = ['#']\nmax_bytes = 200_000_000",
            "more than half of limits.memory_bytes = 256000000: lower bridge.max_bytes, or raise",
        ),
        (
            "[limits]\nmemory_bytes = 1_000_000\n"
            "[[bridge]]\nname = 'b'\nserver = 'mqtt://b'\nup = ['#']",
            "all bridges together may keep 1000000 bytes (bridge.max_bytes, or 1 MB without that",
        ),
    ],
)
def test_mistake_is_reported_with_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("size", "bytes_"), [("500kB", 500_000), ("1.5 MB", 1_500_000), ("2GiB", 2_147_483_648)]
)
def test_a_size_with_a_unit_is_given_back_as_a_number(
    tmp_path: Path, size: str, bytes_: int
) -> None:
    with pytest.raises(ConfigError, match=f"without quotes: {bytes_:_}$"):
        _load(tmp_path, f"[spool]\nmax_bytes = '{size}'")


@pytest.mark.parametrize("bind", ["0.0.0.0:1883", ":1883", "[::]:1883", "192.168.1.4:1883"])
def test_open_listener_is_reported(tmp_path: Path, bind: str) -> None:
    (text,) = advice(_load(tmp_path, f"[[listener]]\nbind = '{bind}'\nanonymous = true"))
    assert text.startswith(f"listener {bind}: accepts everyone who reaches this machine")
    assert "anonymous = false" in text


@pytest.mark.parametrize(
    "listener",
    ["bind = '127.0.0.1:1883'\nanonymous = true", "bind = '0.0.0.0:1883'\nanonymous = false"],
)
def test_a_listener_with_access_control_gets_no_advice(tmp_path: Path, listener: str) -> None:
    assert advice(_load(tmp_path, f"[[listener]]\n{listener}")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_unreadable_file_points_to_sudo_and_to_the_group(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o750)
    (folder / "gateway.toml").touch()
    shutil.chown(folder, group="games")
    for above in (tmp_path, *tmp_path.parents[:2]):  # pytest closes its folders to other accounts
        above.chmod(0o711)
    os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match="you may not read the configuration") as refused:
            load(folder / "gateway.toml")
    finally:
        os.seteuid(0)
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("Run the command with sudo, or join the group games: ")


def test_password_in_a_broker_url_is_not_repeated(tmp_path: Path) -> None:
    text = "[[bridge]]\nname = 'b'\nserver = 'mqtt://me:secret@broker'\nup = ['#']"
    with pytest.raises(ConfigError, match="password_file") as error:
        _load(tmp_path, text)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("rules", ["", "[[acl]]\nusers = ['alice']\nread = ['#']\n"])
def test_a_bridge_may_do_what_its_section_says(tmp_path: Path, rules: str) -> None:
    text = f"{rules}[[bridge]]\nname = 'b'\nserver = 'mqtt://b'\nup = ['s/#']\ndown = ['c/+']"
    acl = Acl(_load(tmp_path, text).acl)
    assert acl.may_read(INSIDE, "onceway-bridge:b", "s/1")
    assert acl.may_write(INSIDE, "onceway-bridge:b", "c/1")
    assert acl.may_write(INSIDE, "onceway-bridge:b", "s/1") == (not rules)


def test_a_program_gets_the_result_as_json(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    command = [Path(sys.executable).with_name("onceway"), "gateway", "check-config", "--json"]

    def told(bind: str) -> subprocess.CompletedProcess[str]:
        file.write_text(f"[[listener]]\nbind = '{bind}'\nanonymous = true\n")
        return subprocess.run(
            [*command, "--config", file], capture_output=True, text=True, check=False
        )

    found = json.loads((done := told("0.0.0.0:1883")).stdout)
    assert (done.returncode, found["file"]) == (0, str(file))
    assert "accepts everyone" in found["warnings"][0]
    found = json.loads((done := told("0.0.0.0:99999")).stderr)
    assert (done.returncode, found["where"]) == (2, str(file))
    assert "a port is a number up to 65535" in found["error"]


WRONG = """\
# all of it is wrong
[gateway]
name = 5
[[listener]]
bind = ":1883"
[[listener]]
bind = "127.0.0.1:99999"
nosuch = true

[listener.tls]
certificate = "/nowhere/c"
[[acl]]
users = [
    "a",
    5]
[spool]
max_bytes = \"\"\"
1GB\"\"\"
"""
AT = {3: "gateway.name = 5", 7: "a port is", 8: "there is no such key", 10: "tls.key: is missing"}
AT |= {13: "acl[1].users[2] = 5", 17: "without quotes"}


def test_each_mistake_is_a_line_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(WRONG)
    command = [Path(sys.executable).with_name("onceway"), "gateway", "check-config"]
    command += ["--config", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    told = dict(zip(AT, done.stderr.splitlines(), strict=True))
    for line, what in AT.items():
        assert told[line].startswith(f"error: {file}:{line}: ")
        assert what in told[line]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    found = json.loads(done.stderr)
    assert [item["line"] for item in found["mistakes"]] == list(AT)
    assert (done.returncode, found["where"]) == (2, str(file))


BETWEEN = """\
[notify]
mail_to = ["a@b.org"]
repeat_h = "daily"
[[listener]]
bind = ":1"
systemd = "a"
nosuch = 1
[page]
bind = ":2"
key = "/k"
certificate = 5
[[lora]]
frequency = 100_000_000
port = "/p"
region = 5
[[quota]]
users = 5
[[bridge]]
name = "b"
server = "mqtt://far"
nosuch = 1
[site]
members = {a = "h:1", b = "h:1"}
copies = 5
"""
BETWEEN_AT = {
    1: "set both mail_to and mail_server, or neither",
    3: "write a number",
    4: "needs either bind",
    7: "no such key",
    11: "should be a path",
    15: "region",
    17: "users",
    18: "has neither up nor down",
    21: "no such key",
    22: "two members have the address",
    24: "copies",
}


def test_mistakes_between_keys_are_reported_beside_wrong_keys(tmp_path: Path) -> None:
    """A check of several keys reports nothing if one of these keys is wrong by itself."""
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, BETWEEN)
    told = {item.line: item.what for item in refused.value.mistakes}
    assert list(told) == list(BETWEEN_AT), refused.value.lines
    assert len(refused.value.lines) == len(BETWEEN_AT)
    for line, what in BETWEEN_AT.items():
        assert what in told[line]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[web]\nbind = ':1'\n[[listener]]\nbind = ':1'", 2, "two sections have the bind ':1'"),
        ("[[serial]]\nport = '/a'\n[[lora]]\nport = '/a'", 4, "two sections have the port '/a'"),
        ("[site]\nmembers = {a = 'h:1'}\n[gateway]\nname = 'c'", 2, "site.members lacks"),
        ("[gateway]\nname='a'\n[site]\nmembers={a='h:1'}\ncopies = 2", 5, "needs another member"),
        ("[log]\nlevel = 1\n[[serial]]\nport = '/a'\n[[serial]]\nport = '/a'", 6, "two sections"),
    ],
)
def test_mistake_between_sections_has_its_line(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, text)
    assert [item.what for item in refused.value.mistakes if item.line == line and said in item.what]


def test_all_files_that_are_named_are_looked_at(tmp_path: Path) -> None:
    file, missing = tmp_path / "gateway.toml", [tmp_path / "one", tmp_path / "two"]
    parts = [
        f'[[listener]]\nbind = ":{number}"\n'
        f'[listener.tls]\ncertificate = "{path}"\nkey = "{path}"\n'
        for number, path in enumerate(missing, 1)
    ]
    file.write_text(f'[gateway]\ndata = "{tmp_path}"\n' + "".join(parts))
    command = [Path(sys.executable).with_name("onceway"), "gateway", "check-config"]
    done = subprocess.run([*command, "--config", file], capture_output=True, text=True, check=False)
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: {file}:3: {missing[0]}")
    assert second.startswith(f"error: {file}:8: {missing[1]}")
    assert done.returncode == 2


@pytest.mark.parametrize(("text", "line"), [("a = 1\nb = =", 2), ("[x\n", 1), ("[a]\n[a]\n", 2)])
def test_invalid_toml_is_reported_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "gateway.toml"
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, text)
    (told,) = refused.value.lines
    assert told.startswith(f"{file}:{line}: not TOML: ")
    assert refused.value.as_json["mistakes"][0]["line"] == line


def test_packaged_configuration_admits_no_remote_client() -> None:
    shipped = load(Path(__file__).parents[2] / "systemd/gateway.toml")
    assert advice(shipped) == []
    assert [split_bind(item.bind or "")[0] for item in shipped.listener] == ["127.0.0.1"]
    assert not any(item.open for item in shipped.serial)
    assert (shipped.page, shipped.web, shipped.acl) == (None, None, [])
