"""Writing to boards from the page: add a board that is plugged in, update a board, replace a board.
Home Assistant starts updates here as well.

In: an operator's request. Out: the progress and result of the job. `provisioning` writes to boards,
and the gateway does not import it. So the gateway starts a command of `provisioning` as a separate
process, and lends the port to this process, as it does for a command of a user. One board is
written at a time. A job continues if the browser disconnects. An interrupted job continues when an
operator requests it again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gateway.boards.admission import FILE, Registry
from gateway.boards.bundled_firmware import kinds
from gateway.commands.control_client import LEND_S
from gateway.links.serial_port import PortStatus
from gateway.mqtt.errors import quote
from gateway.payload.readings import DEVICE_NAME
from gateway.system.logs import about, printable

log = logging.getLogger(__name__)

LOOK_S = 15.0
"""Longest time that the listing of the ports may take, in seconds."""
_KIND = re.compile(r"[a-z0-9-]{1,40}")
_LONGEST = 500
_MOST_LINES = 1000

_VERBS = {"add": "flashed and added", "update": "updated", "replace": "given to a new board"}


@dataclass(frozen=True, slots=True)
class Job:
    """The last job. stage: see `provisioning/progress.py`. share: finished share of the stage, from
    0 to 1. running: whether the job is running. error: why the job failed. outcome: the result in
    words, if it succeeded.
    """

    deed: str
    device: str
    port: str | None
    stage: str | None = None
    share: float = 0.0
    running: bool = True
    error: str | None = None
    outcome: str | None = None


class PageFlash:
    """The page's jobs of flashing boards. folder: the data directory. ports: returns the status of
    each serial port. Open until `close`.
    """

    def __init__(
        self, folder: Path, registry: Registry, ports: Callable[[], list[PortStatus]]
    ) -> None:
        self._registry_file = folder / FILE
        self._registry = registry
        self._ports = ports
        self._plugged: list[dict[str, Any]] = []
        self._job: Job | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._number = 0
        """Number of changes of the job so far."""

    @property
    def job(self) -> Job | None:
        """The job that was started last, or None."""
        return self._job

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- ports and kinds of boards

    async def choices(self) -> dict[str, Any]:
        """Return ports that are plugged in or that the gateway serves, and kinds of boards."""
        try:
            code, out, errors = await _run(["board", "ports", "--json"], LOOK_S, _ignore)
        except TimeoutError:
            code, out, errors = 1, "", f"no answer within {LOOK_S:.0f} s"
        if code:
            log.error("`onceway board ports` failed: %s", errors)
        self._plugged = json.loads(out) if not code else []
        titles = [{"name": name, "title": kind.title} for name, kind in kinds().items()]
        return {"ports": self._sorted_ports(), "kinds": titles}

    def _sorted_ports(self) -> list[dict[str, Any]]:
        """Return the ports; those with a likely board and those that the gateway serves
        come first.
        """
        served = {os.path.realpath(port.path): port for port in self._ports()}
        found = []
        for entry in self._plugged:
            port = served.pop(os.path.realpath(entry["port"]), None)
            found.append(
                {
                    "port": entry["stable"] or entry["port"],
                    "boards": entry["boards"],
                    "text": "" if entry["description"] == "n/a" else entry["description"],
                    "device": port.device if port else None,
                }
            )
        mine: list[dict[str, Any]] = [
            {"port": port.path, "boards": [], "text": "", "device": port.device}
            for path, port in served.items()
            if os.path.exists(path)
        ]
        likely = [entry for entry in found if entry["boards"] or entry["device"]]
        return likely + mine + [entry for entry in found if entry not in likely]

    def _knows(self, port: str) -> bool:
        """Return whether the gateway serves a port, or `choices` has found it. No other port is
        passed to a command.
        """
        known = {port.path for port in self._ports()}
        known |= {name for entry in self._plugged for name in (entry["port"], entry["stable"])}
        return port in known

    # -- a job

    async def start(
        self, user: str, deed: str, device: str, kind: str, port: str, empty: bool
    ) -> str | None:
        """Start a job. Return why it was not started, or None. kind, port: kind and serial port of
        the new board; not used by an update. empty: for `add`, whether unsent readings of the
        board's former device may be deleted.
        """
        if deed not in _VERBS:
            return "Choose add, update or replace."
        if not DEVICE_NAME.fullmatch(device):
            return "A name has at most 23 letters and digits; - . _ are allowed after the first."
        if deed != "add" and device not in self._registry.registered():
            return f"{device} is not in the device registry."
        if deed != "update" and not (_KIND.fullmatch(kind) and self._knows(port)):
            return "Choose a kind of board and a port that exists."
        if self._job is not None and self._job.running:
            return f"{self._job.device} is being flashed now. Try again when this is finished."
        words = ["device", deed, "--json", "--registry", str(self._registry_file)]
        if deed != "update":
            words += ["--board", kind, "--port", port]
        if deed == "add" and empty:
            words.append("--empty")
        await self._set(Job(deed, device, port if deed != "update" else None))
        log.warning(
            "%s will be %s: %s asked for it",
            device,
            _VERBS[deed],
            quote(user),
            extra=about(device=device),
        )
        self._task = asyncio.create_task(self._work([*words, "--", device]))
        return None

    async def _work(self, words: list[str]) -> None:
        error: str | None = None
        outcome: str | None = None
        try:
            code, out, errors = await _run(words, LEND_S, self._hear)
            error, outcome = _result(code, out, errors)
        except TimeoutError:
            error = "The command was stopped because it took too long. Try again."
        except Exception:
            log.exception("a board could not be written")
            error = "The gateway could not start the command. See the gateway's log."
        job = self._job
        assert job is not None  # noqa: S101 - it is this one
        await self._set(replace(job, running=False, error=error, outcome=outcome))
        level = logging.WARNING if error is None else logging.ERROR
        text = error or _VERBS[job.deed]
        log.log(level, "%s: %s", job.device, text, extra=about(device=job.device))

    async def _hear(self, line: str) -> bool:
        """Handle a line of output if it reports progress. Return whether it does."""
        try:
            progress = json.loads(line)
            stage, share = str(progress["stage"]), float(progress["share"])
        except (ValueError, KeyError, TypeError):
            return False
        if self._job is not None:
            await self._set(replace(self._job, stage=stage, share=share))
        return True

    async def _set(self, job: Job) -> None:
        async with self._changed:
            self._job = job
            self._number += 1
            self._changed.notify_all()

    def watch(self) -> Callable[[], Awaitable[bytes | None]]:
        """Return a function that returns the next event for one browser: first the present state,
        then each change. Changes in quick succession are merged.
        """
        seen = -1

        async def get() -> bytes | None:
            nonlocal seen
            async with self._changed:
                await self._changed.wait_for(lambda: self._number != seen)
                seen = self._number
            return json.dumps({"job": asdict(self._job) if self._job else None}).encode()

        return get


def _result(code: int, out: str, errors: str) -> tuple[str | None, str | None]:
    """Return two values for a command that has ended: the error, or None if it succeeded; the
    outcome, or None if it failed.
    """
    with suppress(ValueError, KeyError, TypeError, IndexError):
        found = json.loads(out)
        row = found[0] if isinstance(found, list) else found
        if "error" in row:
            return str(row["error"]), None
        if not code:
            return None, str(row.get("outcome", "done"))
    if not code:
        return None, "done"
    with suppress(
        ValueError, KeyError, TypeError
    ):  # with `--json` the command writes errors as JSON, too
        found = json.loads(errors)
        hint = f". {found['hint']}" if found.get("hint") else ""
        return f"{found['error']}{hint}"[:_LONGEST], None
    return errors.strip()[-_LONGEST:] or "The command failed: see the gateway's log.", None


async def _ignore(line: str) -> bool:
    return False


async def _run(
    words: list[str], within: float, hear: Callable[[str], Awaitable[bool]]
) -> tuple[int, str, str]:
    """Run an `onceway` command. Return its exit code, its standard output, and the first
    _MOST_LINES lines of standard error that `hear` did not take. If the command takes more than
    `within` seconds, kill it and raise TimeoutError.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"ONCEWAY_PROGRESS": "json"},
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101 - both are pipes
    assert process.stderr is not None  # noqa: S101
    errors: list[str] = []
    try:
        async with asyncio.timeout(within):
            reading = asyncio.ensure_future(process.stdout.read())
            while line := (await process.stderr.readline()).decode(errors="replace"):
                if not await hear(line) and len(errors) < _MOST_LINES:
                    errors.append(printable(line.rstrip("\n")))
            out = (await reading).decode(errors="replace")
            return await process.wait(), out, " ".join(errors)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
