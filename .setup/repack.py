"""Debian packages for trials, made from a finished one. In: a package. Out: a changed package."""

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path


def repack(
    package: Path, target: Path, version: str, change: Callable[[Path], None] = lambda _: None
) -> None:
    """Make the same package with another version. The program in the package reports the new
    version as well. change: called with the folder of all files before they are packed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
        (code,) = folder.glob("usr/lib/onceway/lib/*/site-packages/gateway/__init__.py")
        for file, pattern, line in (
            (folder / "DEBIAN/control", r"(?m)^Version: .*$", f"Version: {version}"),
            (code, r'__version__ = ".*"', f'__version__ = "{version}"'),
        ):
            file.write_text(re.sub(pattern, line, file.read_text()))
        change(folder)
        pack(folder, target)


def pack(folder: Path, target: Path) -> None:
    """Make a package of a folder that contains the folder DEBIAN with the control files."""
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", folder, target],
        check=True,
        stdout=subprocess.DEVNULL,
    )
