"""Connected boards, and ports that cannot be opened: the error names the port, the reason and the
remedy.
"""

import grp
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.errors import OncewayError
from provisioning import board_cli, exclusive, ports
from provisioning.boards import board
from provisioning.ports import Plugged


@pytest.fixture
def port() -> Iterator[str]:
    master, slave = os.openpty()
    name = os.ttyname(slave)
    os.close(slave)
    yield name
    os.close(master)


def test_a_free_port_passes(port: str) -> None:
    ports.check(port)


@pytest.mark.parametrize("path", ["/dev/ttyNONE0", "/dev/null/ttyACM0", "/dev/" + "x" * 300])
def test_missing_port_is_an_error(path: str) -> None:
    with pytest.raises(OncewayError, match=f"{path}: there is no such port"):
        ports.check(path)


def test_looking_at_a_port_does_not_open_it(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening the port would reset the board."""
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda *arguments: opened.append(arguments))
    ports.look(port)
    assert opened == []
    with pytest.raises(OncewayError, match="not a serial port"):
        ports.look("/dev/null")


def test_file_is_not_a_port_and_only_a_terminal_device_is_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    for other in (str(path), "/dev/null"):
        with pytest.raises(OncewayError, match="not a serial port"):
            ports.check(other)


def test_board_that_was_unplugged_meanwhile_is_reported(tmp_path: Path) -> None:
    """The board may be unplugged between the check of its port and the next step."""
    with pytest.raises(OncewayError, match="cannot open the port"):
        ports.drop_dtr(str(tmp_path / "ttyACM0"))


@pytest.mark.parametrize(
    "hold",
    [
        "",
        "import fcntl; fcntl.flock(port, fcntl.LOCK_EX)",
        "import fcntl, termios; fcntl.ioctl(port, termios.TIOCEXCL)",
    ],
    ids=["open", "locked", "exclusive"],
)
def test_a_busy_port_names_its_holder(port: str, hold: str) -> None:
    code = (
        f"import os, sys; port = os.open({port!r}, os.O_RDWR | os.O_NOCTTY); {hold or 'pass'};"
        " print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OncewayError, match=rf"in use by .*\(pid {holder.pid}\)"):
            ports.check(port)
        holder.communicate()


def test_unreadable_port_is_an_error_that_names_its_group_or_its_owner(port: str) -> None:
    """Root may open every port, so the test runs as another user."""
    code = f"""
import os
from gateway.errors import OncewayError
from provisioning import ports
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    ports.check({port!r})
except OncewayError as error:
    print(error)
"""
    group = grp.getgrgid(os.stat(port).st_gid).gr_name
    for mode, said in (
        (0o060, f"you may not open this port. It belongs to the group {group}: run"),
        (0o000, "Only the owner of the port may"),
    ):
        os.chmod(port, mode)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=30
        )
        assert f"{port}: " in done.stdout, done.stderr
        assert said in done.stdout


def test_a_port_is_for_one_command_at_a_time(port: str, tmp_path: Path) -> None:
    (tmp_path / "roof").symlink_to(port)
    with (
        exclusive.port(port),
        pytest.raises(OncewayError, match="in use by another `onceway` command"),
        exclusive.port(str(tmp_path / "roof")),
    ):
        pass
    with exclusive.port(port):
        pass


def _plugged(name: str, *boards: str) -> Plugged:
    return Plugged(f"/dev/{name}", f"/dev/serial/by-id/usb-{name}", list(boards), "", [])


def test_the_only_board_of_a_kind_is_found_by_its_stable_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = [
        _plugged("ttyACM0", "uno"),
        _plugged("ttyUSB0", "nano", "nano-old"),
        _plugged("ttyUSB1", "nano", "nano-old"),
        _plugged("ttyS0"),
    ]
    monkeypatch.setattr(ports, "plugged", lambda: there)
    assert ports.find(board("uno")) == "/dev/serial/by-id/usb-ttyACM0"
    with pytest.raises(
        OncewayError,
        match="several boards look like Arduino Nano, old boot loader: /dev/ttyUSB0, /dev/ttyUSB1",
    ):
        ports.find(board("nano-old"))
    with pytest.raises(OncewayError, match="no Arduino Mega 2560 is plugged in"):
        ports.find(board("mega2560"))


@pytest.mark.parametrize("product", [0x7523, 0x55D3, 0x55D4])  # CH340, CH343, CH9102
def test_plugged_board_is_recognised_by_its_usb_ids(
    monkeypatch: pytest.MonkeyPatch, product: int
) -> None:
    class Port:
        device, vid, pid, description = "/dev/ttyNONE0", 0x1A86, product, "USB Serial"

    monkeypatch.setattr(ports, "comports", lambda: [Port])
    looks_like = ["uno", "uno-lora", "nano", "nano-old", "mega2560", "pro-mini", "pro-mini-5v"]
    assert ports.plugged() == [Plugged("/dev/ttyNONE0", None, looks_like, "USB Serial", [])]
    done = CliRunner().invoke(board_cli.app, ["ports", "--json"])
    (row,) = json.loads(done.output)
    assert row == {
        "port": "/dev/ttyNONE0",
        "stable": None,
        "boards": looks_like,
        "description": "USB Serial",
        "held_by": [],
    }
    done = CliRunner().invoke(board_cli.app, ["ports"])
    assert "uno, uno-lora, nano, nano-old" in done.output
