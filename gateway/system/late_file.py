"""A small file that is written some seconds after a change.

In: changes of the content, on the event loop. Out: the whole file, written on another thread. A
failed write is repeated until it succeeds. If that takes longer than FILE_S, this is a problem
(`jobs.py`).
"""

import asyncio
from collections.abc import Callable

from gateway.system.jobs import SavedFile

AGAIN_S = 10.0
"""Seconds between a failed write and the next attempt."""


class LateFile:
    """Writes a file some time after a change of its content. text: returns the content. wait_s:
    seconds from the first unwritten change to the write.
    """

    def __init__(self, saved: SavedFile, text: Callable[[], str], wait_s: float) -> None:
        self.saved = saved
        self._text = text
        self._wait_s = wait_s
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def changed(self) -> None:
        """Note a change. The file is written `wait_s` after the first unwritten change, with all
        later changes until then.
        """
        self._write_in(self._wait_s)

    def close(self) -> None:
        """Write the file if the last change is not in it yet."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._timer is not None or self.saved.unwritten is not None:
            self.saved.write(self._text())

    def _write_in(self, seconds: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._write)

    def _write(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, self.saved.write, self._text()).add_done_callback(self._look)

    def _look(self, _: object) -> None:
        if self.saved.unwritten is not None:
            self._write_in(AGAIN_S)
