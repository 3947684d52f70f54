"""Access by fsspec to the tables and to the files beside them.

In: the place of a table or file, as Spark names it, and a request. Out: the result of the request.

fsspec keeps a connection for the life of a process, with the credentials with which it was opened.
So a request that fails is repeated once on a new connection.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import fsspec

from gateway.ingest.busy import make_patient
from gateway.ingest.delta import local_disk

T = TypeVar("T")


def ask(place: str, request: Callable[[Any, str], T]) -> T:
    """Call `request` with the file system and the path of `place`, and return its result. At a
    place that is not local, a failed request is repeated once on a new connection, unless a file is
    missing. Raises the error of the request.
    """
    fs, path = _opened(place)
    try:
        return request(fs, path)
    except FileNotFoundError:
        raise
    except Exception:
        if local_disk.local_path(place) is not None:
            raise
    type(fs).clear_instance_cache()
    return request(*_opened(place))


def _opened(place: str) -> tuple[Any, str]:
    fs, path = fsspec.core.url_to_fs(str(local_disk.local_path(place) or place))
    make_patient(fs)
    return fs, str(path)
