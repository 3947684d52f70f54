"""A disk whose power can be cut: an ext4 of its own on a loop device. It needs root; `missing` says
what this machine lacks.

In: an empty folder to mount it on. Out: a power cut, which is what the block device held at one
moment, mounted again: pages that the kernel had not written to the device by then are gone, as they
would be.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.errors import OncewayError

SIZE = 128 * 1024 * 1024
MEMORY = "/dev/shm"  # noqa: S108 - a file system, and the folder made in it has a name that nobody can guess
PROGRAMS = {
    "mkfs.ext4": "e2fsprogs",
    "losetup": "mount",
    "mount": "mount",
    "umount": "mount",
    "cp": "coreutils",
}
"""What is needed, and the packages that have it."""
CAP_SYS_ADMIN = 21  # man 7 capabilities
_WRITES, _IN_FLIGHT = 4, 8
"""Places in /sys/block/loopN/stat: writes that are complete, …, requests under way."""


def missing() -> str | None:
    """Why there can be no such disk here."""
    if os.geteuid():
        return "mounting a loop device needs root"
    if not may_mount(Path("/proc/self/status").read_text()):
        return (
            "mounting a loop device needs CAP_SYS_ADMIN, which root does not have here, as in a"
            " container"
        )
    for need in ("/dev/loop-control", MEMORY):
        if not Path(need).exists():
            return f"this machine has no {need}"
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            return f"{program} is not installed (Debian's {package})"
    free = subprocess.run(["losetup", "--find"], check=False, capture_output=True, text=True)
    return (
        None
        if Path(free.stdout.strip() or "none").is_block_device()
        else f"there is no free loop device ({free.stderr.strip()})"
    )


def may_mount(status: str) -> bool:
    """status: /proc/PID/status."""
    held = next(
        (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0"
    )
    return bool(int(held, 16) & 1 << CAP_SYS_ADMIN)


class LoopDisk:
    """mount: where it is mounted. Its image is in memory, so that other disks of this machine
    neither slow it nor suffer from it. Raises OncewayError if this machine refuses.
    """

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.mount.mkdir()
        self._folder = tempfile.TemporaryDirectory(dir=MEMORY, prefix="onceway-")
        self._image = Path(self._folder.name) / "disk.img"
        self._device = ""
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        _run("mkfs.ext4", "-q", "-F", "-J", "size=4", self._image)
        self._attach()

    def _attach(self) -> None:
        self._device = _run("losetup", "--find", "--show", self._image).strip()
        try:
            _run("mount", "-o", "noatime", self._device, self.mount)
        except OncewayError:
            _run("losetup", "--detach", self._device)
            raise

    def _detach(self, *how: str) -> None:
        _run("umount", *how, self.mount)
        _run("losetup", "--detach", self._device)

    def freeze(self) -> Path:
        """A copy of what the device holds. Nobody may write to the files meanwhile; the kernel may,
        and then the copy is made again.
        """
        copy = self._image.with_name("cut.img")
        while True:
            before = self._written()
            _run("cp", "--sparse=always", self._image, copy)
            if self._written() == before and before[_IN_FLIGHT - _WRITES] == "0":
                return copy

    def _written(self) -> list[str]:
        return (
            Path(f"/sys/block/{Path(self._device).name}/stat")
            .read_text()
            .split()[_WRITES : _IN_FLIGHT + 1]
        )

    def restart(self, copy: Path) -> None:
        """Go on with a copy that `freeze` made. Nothing may be open on the disk."""
        self._detach()
        copy.replace(self._image)
        self._attach()

    def close(self) -> None:
        if self.mount.is_mount():  # a copy that could not be mounted is told already
            self._detach("--lazy")  # whoever was interrupted may have left something open
        self._folder.cleanup()


@contextmanager
def kept(mount: Path) -> Iterator[LoopDisk]:
    """A disk at this folder; its files are in the folder itself afterwards."""
    disk, copy = LoopDisk(mount), mount.with_name(mount.name + ".copy")
    try:
        yield disk
    finally:
        try:
            shutil.copytree(mount, copy, ignore=_not_kept)
        finally:
            disk.close()
        mount.rmdir()
        copy.rename(mount)


def _not_kept(folder: str, names: list[str]) -> list[str]:
    """Sockets of a program that was killed, and ext4's own folder."""
    return [
        name
        for name in names
        if name == "lost+found" or not ((path := Path(folder, name)).is_file() or path.is_dir())
    ]


def _run(*command: str | Path) -> str:
    """In a session of its own, so that a Ctrl-C in the terminal does not end it half-way and leave
    something mounted.
    """
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, start_new_session=True
    )
    if done.returncode:
        raise OncewayError(
            f"a disk whose power can be cut cannot be had here ({done.stderr.strip()})",
            str(command[0]),
        )
    return done.stdout
