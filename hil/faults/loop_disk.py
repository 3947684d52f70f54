"""A disk whose power can be cut: its own ext4 on a loop device. It needs root; `missing` returns
what this machine lacks. In: an empty folder to mount it on. Out: a power cut, which mounts the
content that the block device had at one moment: pages that the kernel had not written to the device
by then are lost, as on a real disk.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.errors import OncewayError

SIZE = 128 * 1024 * 1024
FREE_WITHIN = 10.0  # s
MEMORY = "/dev/shm"  # noqa: S108 - a file system, and the folder made in it has a name that nobody can guess
PROGRAMS = {
    "mkfs.ext4": "e2fsprogs",
    "losetup": "mount",
    "mount": "mount",
    "umount": "mount",
    "cp": "coreutils",
}
"""Programs that a loop disk needs, with the Debian packages that contain them."""
CAP_SYS_ADMIN = 21  # man 7 capabilities
_WRITES, _IN_FLIGHT = 4, 8
"""Positions in /sys/block/loopN/stat: number of completed writes, and of requests in progress."""


def missing() -> str | None:
    """Return the reason why this machine cannot have a loop device with a file system, or None."""
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
    """Return whether a process may mount file systems. status: content of its /proc/PID/status."""
    capabilities = next(
        (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0"
    )
    return bool(int(capabilities, 16) & 1 << CAP_SYS_ADMIN)


class LoopDisk:
    """A loop device with a file system. mount: its mount point. The image is in memory, so that the
    disks of a machine do not slow each other down. Raises OncewayError if it cannot be created.
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
        end = time.monotonic() + FREE_WITHIN
        while True:  # a thread of the rig may be reading a file
            try:
                _run("umount", *how, self.mount)
                break
            except OncewayError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        _run("losetup", "--detach", self._device)

    def freeze(self) -> Path:
        """Copy the content of the device, and return the path of the copy. No program may write to
        the files during the copy. If the kernel writes meanwhile, the copy is repeated.
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
        """Continue with a copy that `freeze` made. All files on the disk must be closed."""
        self._detach()
        copy.replace(self._image)
        self._attach()

    def close(self) -> None:
        if self.mount.is_mount():  # an unmountable copy is reported already
            self._detach("--lazy")  # an interrupted program may have left a file open
        self._folder.cleanup()


@contextmanager
def kept(mount: Path) -> Iterator[LoopDisk]:
    """Mount a disk at this folder. After the context, the disk's files are in the folder itself."""
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
    """Return the names that are not copied: sockets of a killed program, and ext4's own folder."""
    return [
        name
        for name in names
        if name == "lost+found" or not ((path := Path(folder, name)).is_file() or path.is_dir())
    ]


def _run(*command: str | Path) -> str:
    """Run a command in its own session. So a Ctrl-C in the terminal cannot stop it halfway, which
    would leave a disk mounted.
    """
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, start_new_session=True
    )
    if done.returncode:
        raise OncewayError(
            f"a disk whose power can be cut cannot be created here ({done.stderr.strip()})",
            str(command[0]),
        )
    return done.stdout
