"""Whose the files in a data directory are. The Debian package gives gateway and uplink an account
each, so that neither reads the other's secrets. A directory that they share has the set-group-ID
bit (2750): the uplink, which is of its group, writes in the files that are open to the group, and
makes, replaces or deletes none beside them. By hand all of it belongs to one account.

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
    if is_shared(file.parent):
        with suppress(PermissionError):
            file.chmod(0o660)


def leave(*files: Path) -> None:
    """Make files in a shared directory that the uplink needs and cannot make, empty, where there
    are none. Whoever may not do so either leaves it.
    """
    for file in files:
        if is_shared(file.parent):
            with suppress(OSError), file.open("xb") as made:
                os.fchmod(made.fileno(), 0o660)
                if os.geteuid() == 0:
                    folder = file.parent.stat()
                    os.fchown(made.fileno(), folder.st_uid, folder.st_gid)


def leave_for_uplink(data: Path) -> None:
    """Its lock, and the folder of its batches, in which it makes files. The key that signs them is
    root's to make: the gateway shall not have had it in hand.
    """
    leave(data / "uplink.lock")
    if is_shared(data):
        with suppress(FileExistsError):
            (data / "batches").mkdir()
            (data / "batches").chmod(0o770)


def give_to_uplink(file: Path | int, data: Path) -> None:
    """What root has made for it. file: a path, or an open file."""
    if os.geteuid() == 0:
        # a gateway that was taken over might put a link to any file of root's there
        os.chown(file, *uplink_owner(data), follow_symlinks=isinstance(file, int))


def uplink_owner(data: Path) -> tuple[int, int]:
    """User and group of the uplink's own files."""
    folder = data.stat()
    if is_shared(data):
        with suppress(KeyError):
            return pwd.getpwnam(UPLINK).pw_uid, folder.st_gid
    return folder.st_uid, folder.st_gid


def is_shared(folder: Path) -> bool:
    """Whether gateway and uplink have an account each there."""
    return bool(folder.stat().st_mode & stat.S_ISGID)
