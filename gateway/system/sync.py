"""Sync of a file or folder, given by its path. In: a file or a folder. Out: the content is on the
disk, if the file system supports fsync.
"""

import errno
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Write the content of a file, or the names in a folder, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems have no fsync of a folder
            raise
    finally:
        os.close(descriptor)
