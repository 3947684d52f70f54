"""Protection of a command against closed standard streams, and against a reader that ends early."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def streams() -> Iterator[None]:
    """Context in which a command runs. A stream that the caller closed (`>&-`) becomes /dev/null,
    so that no file of the command gets the stream's number. If the reader of a pipe ends first,
    such as `head -1`, the command ends with exit code 1 and no message.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115
    try:
        yield
    except BrokenPipeError:
        sys.exit(1)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                # Python tries to write the rest of the buffer once more when it ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
