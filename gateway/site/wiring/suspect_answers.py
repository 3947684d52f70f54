"""Record of answers for suspect sessions. In: clients that were answered. Out: a file, some seconds
later (`gateway/store/doubts.py`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.store.doubts import LONGEST, MOST, Doubt, read, write

log = logging.getLogger(__name__)

WRITE_S = 5.0
"""Interval of writes: if many clients return while a member is silent, one file is written in this
time.
"""


class Doubts:
    """The clients answered while a member was silent. utc: returns µs since 1970, None while the
    clock is not known.
    """

    def __init__(self, folder: Path, utc: Callable[[], int | None]) -> None:
        self._folder = folder
        self._utc = utc
        self._known = deque(read(folder), MOST)
        self._timer: asyncio.TimerHandle | None = None

    def add(self, client: str, silent: Sequence[str]) -> None:
        if len(client) > LONGEST:
            return
        self._known.append(Doubt(client, self._utc(), list(silent)))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_S, self._later)

    def _later(self) -> None:
        self._timer = None
        asyncio.get_running_loop().run_in_executor(None, self._write, tuple(self._known))

    def _write(self, doubts: tuple[Doubt, ...]) -> None:
        try:
            write(self._folder, doubts)
        except OSError as error:
            log.warning("answers for suspect sessions are recorded only in the log: %s", error)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._write(tuple(self._known))
