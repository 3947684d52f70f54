"""What is on the disk, and not only in memory. In: a file or a folder. Out: fsync of it, as far as
its file system knows that.
"""

import errno
import os
from pathlib import Path


def sync(path: Path) -> None:
    """What a file holds, or the names in a folder, are on the disk when this returns. Raises
    OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems know no sync of a folder
            raise
    finally:
        os.close(descriptor)
