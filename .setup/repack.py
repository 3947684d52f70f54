"""Changes Debian packages for trials. In: a built package. Out: the same package with another
version, and with other files if the trial needs them."""

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path


def repack(
    package: Path, target: Path, version: str, change: Callable[[Path], None] = lambda _: None
) -> None:
    """Build the same package with another version. The program in the package reports the new
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
    """Build the package `target` from a folder of its files. The subfolder DEBIAN has the control
    files."""
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", folder, target],
        check=True,
        stdout=subprocess.DEVNULL,
    )
