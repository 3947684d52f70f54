"""Who has a serial port open. In: its path. Out: processes by name and number."""

import os
import stat
from pathlib import Path


def holders(port: str) -> list[str]:
    """Processes that have this port open, as `name (pid N)`. Those of other users are seen by root
    only.
    """
    try:
        device = os.stat(port).st_rdev
    except OSError:
        return []
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            if any(_is_device(fd, device) for fd in (process / "fd").iterdir()):
                found.append(f"{(process / 'comm').read_text().strip()} (pid {process.name})")
        except OSError:
            continue  # gone meanwhile, or not ours to look at
    return found


def _is_device(fd: Path, device: int) -> bool:
    try:
        status = fd.stat()
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == device
