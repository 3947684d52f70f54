"""Programs that have a port open: only this port counts, not another one with the same number."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.links.holders import holders

_HOLD = """
import fcntl, os, subprocess, sys
number, unlock = int(sys.argv[1]), 0x40045431  # TIOCSPTLCK (ioctl_tty(2))
options = "newinstance,ptmxmode=0666"
subprocess.run(["mount", "-t", "devpts", "-o", options, "devpts", "/mnt"], check=True)
for _ in range(number + 1):
    master = os.open("/mnt/ptmx", os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(master, unlock, bytes(4))
held = os.open(f"/mnt/{number}", os.O_RDWR | os.O_NOCTTY)
print(os.fstat(held).st_rdev, flush=True)
sys.stdin.read()
os.close(held)
subprocess.run(["umount", "--lazy", "/mnt"], check=True)
"""


@contextmanager
def _container_that_holds(number: int) -> Iterator[int]:
    """Run a process that holds the pseudo-terminal with this number in a mount namespace of its
    own, as in a container. Yield the device number that the process sees.
    """
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    # in a chroot, / need not be a mount point, so its propagation cannot be changed
    root = any(line.split()[4] == "/" for line in mounts)
    how = [] if root else ["--propagation", "unchanged"]
    command = ["unshare", "--mount", *how, sys.executable, "-c", _HOLD, str(number)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.communicate(timeout=20)


def test_holder_of_an_open_port_is_named() -> None:
    master, slave = pty.openpty()
    try:
        path = os.ttyname(slave)
        code = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[slave],
        ) as process:
            assert process.stdout is not None
            process.stdout.read(1)
            assert [name for name in holders(path) if f"(pid {process.pid})" in name]
            process.communicate(timeout=20)
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_a_containers_terminal_of_the_same_number_is_another_one() -> None:
    master, slave = pty.openpty()
    try:
        number = os.fstat(slave).st_rdev
        with _container_that_holds(os.minor(number)) as seen:
            assert seen == number
            assert holders(os.ttyname(slave)) == []
    finally:
        os.close(master)
        os.close(slave)
