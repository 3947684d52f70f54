"""Disks for tests: an ext4 of its own on a loop device, whose power can be cut, and a tmpfs that can be full. Both need root.

A power cut is what the block device held at one moment, mounted anew: pages that the kernel had not written to the device by then are gone,
as they would be. `missing` says what this machine lacks for that.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SIZE = 128 * 1024 * 1024
_WRITES, _IN_FLIGHT = 4, 8
"""Places in /sys/block/loopN/stat: writes that are complete, …, requests under way."""


def missing() -> str | None:
    """Why there can be no such disk here."""
    if os.geteuid():
        return "mounting a loop device needs root"
    for need in ("/dev/loop-control", "/dev/shm"):
        if not Path(need).exists():
            return f"this machine has no {need}"
    return None if shutil.which("mkfs.ext4") else "mkfs.ext4 is not installed"


class LoopDisk:
    """mount: where it is mounted. Its image is in memory, so that other disks of this machine neither slow it nor suffer from it."""

    def __init__(self, folder: Path) -> None:
        self.mount = folder / "disk"
        self.mount.mkdir()
        self._folder = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="onceway-")
        self._image = Path(self._folder.name) / "disk.img"
        self._device = ""
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        _run("mkfs.ext4", "-q", "-F", "-J", "size=4", self._image)
        self._attach()

    def _attach(self) -> None:
        self._device = _run("losetup", "--find", "--show", self._image).strip()
        _run("mount", "-o", "noatime", self._device, self.mount)

    def _detach(self, *how: str) -> None:
        _run("umount", *how, self.mount)
        _run("losetup", "--detach", self._device)

    def freeze(self) -> Path:
        """A copy of what the device holds. Nobody may write to the files meanwhile; the kernel may, and then the copy is made again."""
        copy = self._image.with_name("cut.img")
        while True:
            before = self._written()
            _run("cp", "--sparse=always", self._image, copy)
            if self._written() == before and before[_IN_FLIGHT - _WRITES] == "0":
                return copy

    def _written(self) -> list[str]:
        return Path(f"/sys/block/{Path(self._device).name}/stat").read_text().split()[_WRITES : _IN_FLIGHT + 1]

    def restart(self, copy: Path) -> None:
        """Go on with a copy that `freeze` made. Nothing may be open on the disk."""
        self._detach()
        copy.replace(self._image)
        self._attach()

    def close(self) -> None:
        self._detach("--lazy")  # a test that was interrupted may have left something open
        self._folder.cleanup()


class SmallDisk:
    """A tmpfs of so many bytes. mount: where it is."""

    def __init__(self, folder: Path, size: int) -> None:
        self.mount = folder / "small"
        self.mount.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "onceway-test", self.mount)
        self._ballast = self.mount / "ballast"

    def fill(self) -> None:
        """Take what is left."""
        with self._ballast.open("ab", buffering=0) as file:
            for chunk in (65536, 4096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(chunk)) == chunk:
                        pass

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink()

    def close(self) -> None:
        _run("umount", self.mount)


def _run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
