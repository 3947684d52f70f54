"""Sharing of the device registry between this gateway and its site.

In: changes of `DATA/registry.db` by commands and the page, and entries of the other members. Out:
the same file with the other members' changes, which `gateway/boards/admission.py` notices like any
change. The file belongs to `provisioning`, which the gateway does not import:
`provisioning.share_pipe` does the work, as a separate process.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from gateway.boards.admission import FILE
from gateway.errors import OncewayError
from gateway.site.shared_state.board_entry import CONFLICT, Conflict, Entry
from gateway.site.shared_state.boards import MOST, BoardSharing
from gateway.site.shared_state.sharing import Link
from gateway.system.jobs import Job
from gateway.system.logs import printable

log = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""Timeout in seconds for the process `provisioning.share_pipe`. A Raspberry Pi starts a Python
program in two seconds.
"""
RETRY_S = 5.0
EXCHANGE_S = 300.0
"""Seconds for which the exchange may fail before the failure is reported as a problem."""
_NAMES = 10
"""Largest number of names in one log line."""


class SiteRegistry:
    """The sharing of the device registry, from `start` to `close`. member: name of this gateway.
    lost: called with each `Conflict` that is found.
    """

    def __init__(
        self,
        folder: Path,
        send: Callable[[str, bytes], None],
        member: str = "",
        lost: Callable[[Conflict], None] = lambda _: None,
    ) -> None:
        self._path = folder / FILE
        self._member, self._lost = member, lost
        self.sharing = BoardSharing(send, self._enter)
        self._incoming: dict[str, tuple[Link[Entry], Sequence[Entry]]] = {}
        """The newest frame of entries of each member that is not merged yet, with the link of the
        frame.
        """
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        text = f"{self._path}: changes to boards cannot be exchanged with the site's other members"
        self.job = Job("site_registry", text, EXCHANGE_S)

    def start(self) -> None:
        self._due.set()
        self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def changed(self) -> None:
        """Note that the registry's file has changed, so that its entries are exchanged soon."""
        self._due.set()

    def _enter(self, link: Link[Entry], entries: Sequence[Entry]) -> None:
        self._incoming[link.member] = link, entries
        self._due.set()

    async def _work(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            incoming, self._incoming = self._incoming, {}
            sent = [entry for _, entries in incoming.values() for entry in entries]
            begun = time.monotonic()
            try:
                entries = await self._exchange(sent)
                news = self.sharing.entered(entries, [link for link, _ in incoming.values()])
                self._tell(sorted({*news} & {entry.name for entry in sent}))
            except Exception as error:
                self.job.fail(error)
                self._incoming = incoming | self._incoming
                self._due.set()
                await asyncio.sleep(RETRY_S)
                continue
            self.job.succeed()
            # leave half of a core to other work, whatever the members send
            await asyncio.sleep(time.monotonic() - begun)

    def _tell(self, names: list[str]) -> None:
        if names:
            more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
            log.warning(
                "boards that were changed at other members of the site: %s%s",
                ", ".join(names[:_NAMES]),
                more,
            )

    async def _exchange(self, entries: Sequence[Entry]) -> list[Entry]:
        """Merge entries into the registry. Return all entries of the registry."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "provisioning.share_pipe"),
            *(str(self._path), self._member),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                text = "".join(f"{entry.text}\n" for entry in entries)
                out, errors = await process.communicate(text.encode())
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        words = printable(errors.decode(errors="replace").strip())
        if process.returncode:
            raise OncewayError(words[-500:])
        if words:
            log.warning("%s: %s", self._path, words[-500:])
        found, conflicts = await asyncio.to_thread(_parsed, out)
        for conflict in conflicts:
            self._lost(conflict)
        if len(found) > MOST:
            raise OncewayError(f"there are {len(found)} boards; at most {MOST} can be shared")
        return found


def _parsed(out: bytes) -> tuple[list[Entry], list[Conflict]]:
    """Return the entries and conflicts in the output of the process. Runs in another thread, so
    that the event loop is not blocked.
    """
    entries, conflicts = [], []
    for line in out.decode().splitlines():
        if line.startswith(CONFLICT):
            conflicts.append(Conflict.model_validate_json(line.removeprefix(CONFLICT)))
        else:
            entries.append(Entry.model_validate_json(line))
            entries[-1].mark  # noqa: B018 - computed here, not on the event loop
    return entries, conflicts
