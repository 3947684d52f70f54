"""Record of answers to clients whose session was suspect. In: these clients. Out: a file, some
seconds later (`gateway/store/doubts.py`).
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.store.doubts import FILE, LONGEST, MOST, Doubt, read
from gateway.system.jobs import SavedFile
from gateway.system.late_file import LateFile

WRITE_S = 5.0
"""Seconds from the first answer that is not in the file to the next write of the file, which adds
all answers until then. So the file is written rarely, however many clients return while a member is
silent.
"""


class Doubts:
    """The last `MOST` answers to clients whose session was suspect. utc: returns µs since 1970,
    None while the clock is not known.
    """

    def __init__(self, folder: Path, utc: Callable[[], int | None]) -> None:
        self._utc = utc
        self._known = deque(read(folder), MOST)
        saved = SavedFile(folder / FILE, "the list of clients whose session was suspect")
        self._late = LateFile(saved, lambda: json.dumps(list(self._known)), WRITE_S)
        self.job = saved.job

    def add(self, client: str, silent: Sequence[str]) -> None:
        if len(client) > LONGEST:
            return
        self._known.append(Doubt(client, self._utc(), list(silent)))
        self._late.changed()

    def close(self) -> None:
        self._late.close()
