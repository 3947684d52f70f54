"""Admitting and revoking boards from the page.

In: a user, a board, and `admit` or `revoke`. Out: the changed device registry, or the reason why it
is unchanged. The registry belongs to `provisioning`, which the gateway does not import: a separate
process runs its command. The gateway reads the registry (`gateway/boards/admission.py`).
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.boards.admission import FILE, Registry
from gateway.links.serial_port import PortStatus
from gateway.mqtt.errors import quote
from gateway.payload.readings import DEVICE_NAME
from gateway.system.logs import about, printable

log = logging.getLogger(__name__)

PATIENCE_S = 15.0
"""Longest time, in seconds, for a change, including the wait for earlier changes. Shorter than the
lifetime of a connection to the page. A Pi starts a Python program in two seconds.
"""
_LONGEST = 500
_BUSY = "The device registry is being changed by another user. Try again in a moment."
_SLOW = "The change takes a long time. If the list of boards does not show it, try again."


class PageRegistry:
    """The changes that the page makes to the device registry. folder: the data directory. ports:
    returns the serial ports seen so far.
    """

    def __init__(
        self, folder: Path, registry: Registry, ports: Callable[[], list[PortStatus]]
    ) -> None:
        self._folder = folder
        self._registry = registry
        self._ports = ports
        self._busy = asyncio.Lock()

    async def change(self, user: str, device: str, verb: str) -> str | None:
        """Admit or revoke a board. Return None, or why the registry is unchanged."""
        listed = self._registry.registered().get(device)
        if not DEVICE_NAME.fullmatch(device):
            return "This name cannot be registered. Provision the board under another name."
        if verb == "admit" and listed is None and not self._asks(device):
            return f"{device} does not ask to be let in now. Plug the board in, then try again."
        if verb == "revoke" and listed is None:
            return f"{device} is not in the device registry."
        problem: str | None = _BUSY
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S), self._busy:
                problem = _SLOW
                problem = await self._run(verb, device)
        if problem is None:
            log.warning(
                "%s: %s by %s", device, _DONE[verb], quote(user), extra=about(device=device)
            )
        return problem

    def _asks(self, device: str) -> bool:
        return any(port.refused == device for port in self._ports())

    async def _run(self, verb: str, device: str) -> str | None:
        command = [sys.executable, "-P", "-m", "gateway", "device", verb, "--registry"]
        process = await asyncio.create_subprocess_exec(
            *command,
            str(self._folder / FILE),
            "--",
            device,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, errors = await process.communicate()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        if process.returncode == 0:
            return None
        text = printable(errors.decode(errors="replace").strip())[-_LONGEST:]
        log.error("%s: `onceway device %s` failed: %s", device, verb, text)
        return text.removeprefix("error: ") or "The device registry could not be changed."


_DONE = {"admit": "let in", "revoke": "revoked"}
