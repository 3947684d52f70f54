"""Whose the files in a data directory are. The Debian package gives gateway and uplink an account
each, so that neither reads the other's secrets; they share the directory by their group, which may
write there. By hand all of it belongs to one account.

In: files in a data directory. Out: what both write is open to both, and what the uplink alone reads
is the uplink's, also when root makes it.
"""

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

UPLINK = "onceway-uplink"
"""As in `systemd/onceway.sysusers`."""


def share(file: Path) -> None:
    """Let the group of a shared directory read and write a file in it. A file of another account
    stays as it is: that account has done the same.
    """
    if _is_shared(file.parent):
        with suppress(PermissionError):
            file.chmod(0o660)


def give_to_uplink(file: Path | int, data: Path) -> None:
    """What root has made for it. file: a path, or an open file."""
    if os.geteuid() == 0:
        os.chown(file, *uplink_owner(data))


def uplink_owner(data: Path) -> tuple[int, int]:
    """User and group of the uplink's own files."""
    folder = data.stat()
    if _is_shared(data):
        with suppress(KeyError):
            return pwd.getpwnam(UPLINK).pw_uid, folder.st_gid
    return folder.st_uid, folder.st_gid


def _is_shared(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWGRP)
