"""`onceway device …` under an account that may command the gateway, but not write its registry."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.boards.admission import FILE
from gateway.commands import control_client, through_gateway
from gateway.commands.options import CONFIG
from gateway.errors import OncewayError
from gateway.service import device_commands
from provisioning.registry import Registry
from tests.service.process import gateway


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a registry that this process counts as not allowed to write. Return the path of the
    configuration.
    """
    Registry(tmp_path / "data" / FILE).admit("roof-1")
    config = tmp_path / "gateway.toml"
    config.write_text(f'[gateway]\ndata = "{tmp_path}/data"\n[[listener]]\nbind = "127.0.0.1:0"\n')
    monkeypatch.setenv(CONFIG, str(config))
    monkeypatch.setattr(through_gateway, "_may_write", lambda folder: False)
    return config


async def test_the_gateway_does_what_the_account_may_not(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway(closed.parent, "--config", str(closed)):

        def ask(*words: str) -> tuple[int | None, str, str]:
            code = through_gateway.through_gateway(["device", *words])
            out, err = capsys.readouterr()
            return code, out, err

        code, out, _ = await asyncio.to_thread(ask, "list", "--json")
        assert (code, [row["name"] for row in json.loads(out)]) == (0, ["roof-1"])
        code, out, _ = await asyncio.to_thread(ask, "admit", "roof-2")
        assert (code, out) == (0, "roof-2 is admitted; it does not ask to be let in now\n")
        code, out, err = await asyncio.to_thread(ask, "show", "roof-9")
        assert (code, out) == (5, "")
        assert "no device is called 'roof-9'" in err
    assert {one.name for one in Registry(closed.parent / "data" / FILE).devices()} == {
        "roof-1",
        "roof-2",
    }


@pytest.mark.parametrize(
    "words",
    [
        ["device", "list", "--registry", "mine.db"],
        ["device", "flash", "roof-1", "--hex=mine.hex"],
        ["device", "list", "--help"],
        ["device", "expect", "roof-1", "5m"],
        ["session", "list"],
        ["device"],
        [],
    ],
)
def test_other_commands_are_for_the_process_itself(closed: Path, words: list[str]) -> None:
    assert through_gateway.through_gateway(words) is None


def test_without_a_running_gateway_the_command_says_what_to_do(closed: Path) -> None:
    assert through_gateway.through_gateway(["device", "list"]) is None


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["import", "x.csv"],
        ["list", "--registry", "/etc/passwd"],
        ["flash", "x", "--hex=y"],
        "x",
    ],
)
def test_the_gateway_does_nothing_else(words: object) -> None:
    with pytest.raises(ValueError, match="`words` must be"):
        device_commands.parse(json.dumps(words))


async def test_a_request_for_something_else_is_refused(closed: Path) -> None:
    async with gateway(closed.parent, "--config", str(closed)):
        with pytest.raises(OncewayError, match="not a valid request"):
            await asyncio.to_thread(
                control_client.ask, closed.parent / "data", do="device", words='["import"]'
            )
