"""Ports that cannot be used: the error names the port, the reason and the way out."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from provisioning import ports


@pytest.fixture
def port() -> Iterator[str]:
    master, slave = os.openpty()
    name = os.ttyname(slave)
    os.close(slave)
    yield name
    os.close(master)


def test_a_free_port_passes(port: str) -> None:
    ports.check(port)


def test_a_missing_port_is_said() -> None:
    with pytest.raises(OncewayError, match="/dev/ttyNONE0: there is no such port"):
        ports.check("/dev/ttyNONE0")


def test_a_file_is_no_port(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(OncewayError, match="not a serial port"):
        ports.check(str(path))


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
        f"import os, sys; port = os.open({port!r}, os.O_RDWR | os.O_NOCTTY); {hold or 'pass'}; print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OncewayError, match=rf"in use by .*\(pid {holder.pid}\)"):
            ports.check(port)
        holder.communicate()
