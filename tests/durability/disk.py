"""A disk that can be full. It is a tmpfs, and needs root."""

import contextlib
import subprocess
from pathlib import Path


class SmallDisk:
    """A tmpfs of `size` bytes. mount: its folder."""

    def __init__(self, folder: Path, size: int) -> None:
        self.mount = folder / "small"
        self.mount.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "onceway-test", self.mount)
        self._ballast = self.mount / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            for chunk in (65536, 4096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(chunk)) == chunk:
                        pass

    def free(self) -> None:
        """Free the space that `fill` has taken."""
        self._ballast.unlink()

    def let_write(self, may: bool) -> None:
        """Mount the disk again, writable or read-only."""
        _run("mount", "-o", "remount,rw" if may else "remount,ro", self.mount)

    def close(self) -> None:
        _run("umount", "--lazy", self.mount)  # a command that failed may still have a file open


def _run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
