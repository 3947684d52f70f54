"""Boards and the gateway as devices of Home Assistant.

In: the last readings, the device registry, and Home Assistant's messages: its birth
(`PREFIX/status`), and requests to update a board (`commands/NAME/update`). Out:
`PREFIX/device/ID/config` for the gateway and each board, sent after each change and each birth
message, and cleared for a removed board; the states `$gateway` and `$firmware`, in addition to the
states of `json_topics.py`. All messages are retained in memory only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from gateway import __version__
from gateway.boards.admission import Listed, Registry
from gateway.boards.bundled_firmware import Kind, kinds
from gateway.config import HomeAssistantSection
from gateway.mirror.discovery import (
    INSTALL,
    UPDATE,
    Message,
    identifier,
    of_board,
    of_gateway,
    page_of,
    shape,
)
from gateway.mirror.json_topics import Mirror, tell
from gateway.mqtt.packets import Publish
from gateway.runtime.engine import Engine
from gateway.runtime.internal_client import InternalClient
from gateway.system.jobs import LOOP_S, Job
from gateway.system.log_throttle import LogThrottle
from gateway.system.logs import printable

log = logging.getLogger(__name__)

LOOK_S = 2.0
MOST_WANTED = 100
"""Largest number of boards for which a request to update the firmware may wait for the next check.
"""
MOST_BOARDS = 1000
MOST_GONE = 1000
_AT_ONCE = 20
"""Largest number of boards, or of repeated messages, that one turn handles."""
_PAUSE_S = 0.05
_LONGEST_SUMMARY = 255
_UNKNOWN = Listed("", None, None)


class WriterJob(Protocol):
    """The last job of a `Writer`. error: why it failed, None if it did not."""

    @property
    def device(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def error(self) -> str | None: ...


class Writer(Protocol):
    """Writes firmware to boards (`gateway/web/page_flash.py`)."""

    @property
    def job(self) -> WriterJob | None: ...

    async def start(
        self, user: str, deed: str, device: str, kind: str, port: str, empty: bool
    ) -> str | None: ...


class HomeAssistant:
    """The messages for Home Assistant. gateway: name of this gateway. topic: the mirror's first
    level. problems: returns the gateway's problems in words. Runs from `start` to `close`.
    """

    def __init__(
        self,
        gateway: str,
        section: HomeAssistantSection,
        engine: Engine,
        mirror: Mirror,
        topic: str,
        registry: Registry,
        problems: Callable[[], list[str]],
        writer: Writer,
    ) -> None:
        self._gateway = gateway
        self._section = section
        self._engine = engine
        self._mirror = mirror
        self._topic = topic
        self._registry = registry
        self._problems = problems
        self._writer = writer
        self._throttle = LogThrottle(time.monotonic)  # any client may request updates
        self._announced: dict[str, bytes] = {}
        """The last payload that was published on each topic."""
        self._shapes: dict[str, object] = {}
        """For each board, what its last message was made from (`shape`), to notice changes."""
        self._removed: dict[str, None] = {}
        """Topics that were cleared and will be cleared again, because Home Assistant may have been
        offline.
        """
        self._kinds: dict[str, Kind] = {}
        self._client: InternalClient | None = None
        self._born = False
        """Whether Home Assistant has started, so that all messages must be sent again."""
        self._wanted: set[str] = set()
        """Names of the boards for which Home Assistant has requested a firmware update."""
        self._task: asyncio.Task[None] | None = None
        self.job = Job("home_assistant", "Home Assistant is not informed of boards", LOOP_S)
        mirror.on_gone.append(self._clear)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        self.job.begin()
        while True:
            try:
                self._kinds = self._kinds or await asyncio.to_thread(kinds)
                if self._client is None or self._client.closed:
                    self._client = InternalClient(
                        self._engine, [f"{self._section.prefix}/status", UPDATE], self._heard
                    )
                await self._look()
                if self._born:
                    await self._repeat()
                for _ in range(len(self._wanted)):
                    await self._install(self._wanted.pop())
                self.job.go_round()
            except Exception as error:
                self.job.fail(error)
            await asyncio.sleep(LOOK_S)

    def _heard(self, message: Publish) -> None:
        if message.topic != f"{self._section.prefix}/status":
            device = message.topic.split("/")[1]
            is_one = message.payload == INSTALL.encode() and not message.retain
            if is_one and len(self._wanted) < MOST_WANTED:
                self._wanted.add(device)
        elif message.payload == b"online":
            self._born = True

    async def _install(self, device: str) -> None:
        """Update a board's firmware. Only log a line if the board has the bundled firmware already,
        if none is bundled for it, or if its firmware is unknown.
        """
        listed = self._registry.registered().get(device, _UNKNOWN)
        if listed.firmware == self._newest(listed):
            why: str | None = (
                "the board has the bundled firmware, none is bundled for it, or the registry does"
                " not know its firmware"
            )
        else:
            why = await self._writer.start("Home Assistant", "update", device, "", "", False)
        if why is not None and self._throttle.has_room():
            log.warning("%s: not updated for Home Assistant: %s", printable(device), why)

    def _newest(self, listed: Listed) -> str | None:
        """Return the SHA-256 of the firmware to offer: the bundled firmware, or the board's own if
        none is bundled. None if the board's firmware is unknown.
        """
        kind = self._kinds.get(listed.board or "")
        return (kind.sha256 if kind and listed.firmware else None) or listed.firmware

    def _job_of(self, device: str) -> tuple[bool, str | None]:
        """Return whether a board is being written, and the error of the last attempt, None without
        an error."""
        job = self._writer.job
        return (job.running, job.error) if job and job.device == device else (False, None)

    async def _repeat(self) -> None:
        """Send all messages again, some in each turn, because Home Assistant has started (birth
        message). However many birth messages arrive meanwhile, they cause only one more round.
        """
        self._born = False
        log.info("Home Assistant has started: all boards are announced again")
        everything = [*dict.fromkeys(self._removed, b"").items(), *self._announced.items()]
        for first in range(0, len(everything), _AT_ONCE):
            tell(self._engine, dict(everything[first : first + _AT_ONCE]))
            await asyncio.sleep(_PAUSE_S)

    async def _look(self) -> None:
        """Send all changed messages, some in each turn."""
        topic = self._topic
        figures = {
            "problems": self._problems(),
            "waiting": self._engine.broker.spool.count,
            "version": __version__,
        }
        self._tell(
            {
                self._config_of(): of_gateway(self._gateway, topic, self._section.page),
                f"{topic}/$gateway": figures,
            }
        )
        registered = self._registry.registered()
        devices = iter(self._mirror.last.devices[:MOST_BOARDS])
        while part := list(islice(devices, _AT_ONCE)):
            for device in part:
                known, listed = self._mirror.last.of(device), registered.get(device, _UNKNOWN)
                looks = listed, shape(known), self._job_of(device)
                if known and self._shapes.get(device) != looks:  # the board may be gone
                    self._shapes[device] = looks
                    self._tell(self._about(device, listed))
            await asyncio.sleep(0)

    def _about(self, device: str, listed: Listed) -> dict[str, Message]:
        kind = self._kinds.get(listed.board or "")
        messages = {
            self._config_of(device): of_board(
                self._gateway,
                device,
                self._mirror.last.of(device),
                self._topic,
                model=kind.title if kind else None,
                firmware=listed.firmware,
                expire_after_s=self._section.expire_after_s,
                page=self._section.page,
            )
        }
        if listed.firmware is not None:
            newest, (running, error) = self._newest(listed), self._job_of(device)
            messages[f"{self._topic}/{device}/$firmware"] = {
                "installed_version": listed.firmware[:12],
                "latest_version": (newest or "")[:12],
                "in_progress": running,
                "release_summary": f"The update failed: {error}"[:_LONGEST_SUMMARY]
                if error
                else f"Or update it on the gateway: sudo onceway device update {device}",
            }
            if self._section.page is not None:
                url = page_of(self._section.page, device)
                messages[f"{self._topic}/{device}/$firmware"]["release_url"] = url
        return messages

    def _tell(self, messages: dict[str, Message]) -> None:
        for topic, message in messages.items():
            payload = json.dumps(message).encode()
            if self._announced.get(topic) != payload:
                self._announced[topic] = payload
                self._removed.pop(topic, None)
                tell(self._engine, {topic: payload})

    def _clear(self, device: str) -> None:
        self._shapes.pop(device, None)
        topics = [self._config_of(device), f"{self._topic}/{device}/$firmware"]
        for topic in topics:
            self._announced.pop(topic, None)
        tell(self._engine, dict.fromkeys(topics, b""))
        self._removed[topics[0]] = None
        if len(self._removed) > MOST_GONE:
            del self._removed[next(iter(self._removed))]

    def _config_of(self, *device: str) -> str:
        return f"{self._section.prefix}/device/{identifier(self._gateway, *device)}/config"
