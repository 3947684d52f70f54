"""Owners and modes of the files in a data directory. The Debian package gives gateway and uplink
separate accounts, so that neither reads the other's secrets. A shared directory has the
set-group-ID bit (2750). The uplink, a member of the directory's group, may write to files that are
open to the group, and may not create, replace or delete files. Without the package, all files
belong to one account.

In: files in a data directory. Out: their owners and modes. Files that both accounts write are open
to both. Files that only the uplink reads belong to the uplink, even if root creates them.
"""

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

UPLINK = "onceway-uplink"
"""Name of the uplink's account, as in `systemd/onceway.sysusers`."""


def share(file: Path) -> None:
    """Let the group of a shared directory read and write a file in it. A file of another account is
    left as it is: that account has already shared it.
    """
    if is_shared(file.parent):
        with suppress(PermissionError):
            file.chmod(0o660)


def leave(*files: Path) -> None:
    """Create empty files for the uplink in a shared directory, where the uplink itself has no right
    to create files. Existing files stay. If this account has no such right either, do nothing.
    """
    for file in files:
        if is_shared(file.parent):
            with suppress(OSError), file.open("xb") as made:
                os.fchmod(made.fileno(), 0o660)
                if os.geteuid() == 0:
                    folder = file.parent.stat()
                    os.fchown(made.fileno(), folder.st_uid, folder.st_gid)


def leave_for_uplink(data: Path) -> None:
    """Create the uplink's lock file in the data directory; if `is_shared`, also the folder of the
    uplink's batches.
    """
    leave(data / "uplink.lock")
    if is_shared(data):
        with suppress(FileExistsError):
            (data / "batches").mkdir()
            (data / "batches").chmod(0o770)


def give_to_uplink(file: Path | int, data: Path) -> None:
    """Give a file that root has created to the uplink. file: a path, or an open file."""
    if os.geteuid() == 0:
        # a compromised gateway might put a link to a file of root's there
        os.chown(file, *uplink_owner(data), follow_symlinks=isinstance(file, int))


def uplink_owner(data: Path) -> tuple[int, int]:
    """Return user and group of the uplink's own files."""
    folder = data.stat()
    if is_shared(data):
        with suppress(KeyError):
            return pwd.getpwnam(UPLINK).pw_uid, folder.st_gid
    return folder.st_uid, folder.st_gid


def may_use(path: Path) -> bool:
    """Whether this account may read and write a file or folder. On a read-only disk, where not even
    root may write, the right to read is enough. False if the file or folder does not exist.
    """
    try:
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError:
        return False
    return os.access(path, os.R_OK if read_only else os.R_OK | os.W_OK)


def is_shared(folder: Path) -> bool:
    """Return whether gateway and uplink have separate accounts for the files of a folder."""
    return bool(folder.stat().st_mode & stat.S_ISGID)
