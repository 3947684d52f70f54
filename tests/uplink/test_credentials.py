"""The credentials of the landing place are in a file that the gateway cannot read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from gateway.uplink import credentials

SECRET = "wJalrXUtnFEMI"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})


@pytest.mark.usefixtures("environment")
def test_systemds_are_taken_before_those_beside_the_configuration(tmp_path: Path) -> None:
    handed = tmp_path / "handed"
    handed.mkdir()
    (tmp_path / "uplink.env").write_text("AWS_ACCESS_KEY_ID=by-hand\n")
    credentials.take(tmp_path / "gateway.toml")
    assert os.environ.pop("AWS_ACCESS_KEY_ID") == "by-hand"
    (handed / "uplink.env").write_text(f'# of the bucket\n\nAWS_SECRET_ACCESS_KEY="{SECRET}=="\n')
    os.environ["CREDENTIALS_DIRECTORY"] = str(handed)
    credentials.take(tmp_path / "gateway.toml")
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == f"{SECRET}=="
    assert "AWS_ACCESS_KEY_ID" not in os.environ


@pytest.mark.usefixtures("environment")
def test_the_environment_has_the_last_word(tmp_path: Path) -> None:
    os.environ["AWS_ACCESS_KEY_ID"] = "typed"
    (tmp_path / "uplink.env").write_text("AWS_ACCESS_KEY_ID=kept\n")
    credentials.take(tmp_path / "gateway.toml")
    assert os.environ["AWS_ACCESS_KEY_ID"] == "typed"


@pytest.mark.usefixtures("environment")
def test_missing_credentials_are_not_an_error(tmp_path: Path) -> None:
    before = dict(os.environ)
    credentials.take(tmp_path / "gateway.toml")
    credentials.take(None)
    assert os.environ == before


@pytest.mark.usefixtures("environment")
def test_a_secret_is_any_bytes_but_a_zero(tmp_path: Path) -> None:
    file = tmp_path / "uplink.env"
    file.write_bytes(b"AWS_SECRET_ACCESS_KEY=\xff\xe9\n")
    credentials.take(tmp_path / "gateway.toml")
    assert os.fsencode(os.environ["AWS_SECRET_ACCESS_KEY"]) == b"\xff\xe9"
    file.write_bytes(b"AWS_SESSION_TOKEN=a\0b\n")
    with pytest.raises(OncewayError, match="line 1 is not NAME=VALUE"):
        credentials.take(tmp_path / "gateway.toml")


def test_a_line_that_says_nothing_is_named_without_its_secret(tmp_path: Path) -> None:
    (tmp_path / "uplink.env").write_text(f"# key\n{SECRET}\n")
    with pytest.raises(OncewayError, match="line 2 is not NAME=VALUE") as refused:
        credentials.take(tmp_path / "gateway.toml")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "command", [("uplink", "run", "--once"), ("backup", "--to-landing"), ("doctor",)]
)
def test_commands_that_use_the_landing_place_read_the_credentials(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f'gateway.data = "{tmp_path}"\nuplink.landing = "s3://bucket/landing"\n')
    (tmp_path / "uplink.env").write_text("nonsense\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("onceway"), *command, "--config", config],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"{tmp_path}/uplink.env: line 1 is not NAME=VALUE" in done.stderr


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'two words'", "two words"),
        ('"it\'s"', "it's"),
        ('"open', '"open'),
        ("'", "'"),
        ("a'b", "a'b"),
    ],
)
def test_quote_that_is_not_closed_belongs_to_the_value(
    tmp_path: Path, written: str, value: str
) -> None:
    (tmp_path / "uplink.env").write_text(f"AWS_SECRET_ACCESS_KEY={written}\n")
    credentials.take(tmp_path / "gateway.toml")
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == value
