"""A list that the site's authority has signed, in a running gateway.

In: the list's file, which commands replace, and newer lists of other members. Out: the newest list
in the file, and two jobs: reading the file and writing it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from gateway.errors import OncewayError
from gateway.site.links.seldom import Seldom
from gateway.system.jobs import FILE_S, Job


class _List(Protocol):
    def refresh(self) -> bool: ...

    def save(self) -> None: ...


class KeptList:
    """A list and its file. title: the list, in words. spawn: starts a task; the gateway waits for
    the task's end before it stops. saved: called when a list from another member was written to the
    file. mends: whether `look` replaces a damaged file.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        title: str,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        seldom: Seldom,
        saved: Callable[[], None] = lambda: None,
        mends: bool = False,
    ) -> None:
        self._name = name
        self._spawn, self._seldom, self._saved = spawn, seldom, saved
        self._mends = mends
        self._reading = Job(name, f"{folder}: {title} cannot be read", FILE_S)
        self._writing = Job(f"{name}_file", f"{folder}: {title} cannot be written", 3 * FILE_S)
        self._list: _List | None = None

    @property
    def jobs(self) -> list[Job]:
        return [self._reading, self._writing]

    def use(self, kept: _List) -> None:
        """Use this list from now on, and read its file."""
        self._list = kept
        self.look()

    def look(self) -> bool:
        """Read the list's file if it has changed. Return whether it has a newer list. If the last
        write has failed, start to write the list again, at most once a minute.
        """
        assert self._list is not None  # noqa: S101 - a gateway that has started
        found = False
        try:
            found = self._list.refresh()
        except OncewayError as error:
            self._reading.fail(error)
        else:
            self._reading.succeed()
        failed = self._writing.error or (self._mends and self._reading.error)
        if failed and self._seldom.allows(self._name):  # once a minute
            self.keep()
        return found

    def keep(self) -> None:
        """Start to write the list. Call this when another member has sent a newer one."""
        self._spawn(self._save())

    async def _save(self) -> None:
        assert self._list is not None  # noqa: S101 - a gateway that has started
        try:
            await asyncio.to_thread(self._list.save)
        except OncewayError as error:
            self._writing.fail(error)
        else:
            self._writing.succeed()
            self._saved()
