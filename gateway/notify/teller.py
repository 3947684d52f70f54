"""The sender of notifications and of the heartbeat, from `start` to `close`.

In: the current problems, once a second. Out: messages on each channel. While a message that could
not be sent waits for the next attempt, `failures` has the reason.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from smtplib import SMTPNotSupportedError, SMTPRecipientsRefused, SMTPResponseException
from urllib.error import HTTPError, URLError

from gateway.config import NotifySection
from gateway.config.values import split_window
from gateway.errors import OncewayError
from gateway.notify.channels import PATIENCE_S, Channel, channels
from gateway.notify.mqtt_beat import keep
from gateway.notify.notices import Message, Notices
from gateway.notify.outbox import Outbox
from gateway.system.amounts import are, wait
from gateway.system.jobs import LOOP_S, Job
from gateway.system.patience import Patience

log = logging.getLogger(__name__)

LOOK_S = 1.0
LONGEST_S = 120.0
"""Longest time of one attempt, in seconds: a mail server may delay each of its answers."""
AGAIN_S = (5.0, 30.0, 120.0, 600.0)
"""Seconds before each new attempt to send a message; further attempts use the last value."""


class Teller:
    """The sender of notifications. gateway: the gateway's name. problems: returns the words of the
    current problems, by identifier.
    """

    def __init__(
        self,
        folder: Path,
        gateway: str,
        section: NotifySection,
        problems: Callable[[], Awaitable[dict[str, str]]],
    ) -> None:
        self._gateway = gateway
        self._section = section
        self._problems = problems
        self._notices = Notices(folder, gateway, section.after_s, section.repeat_h * 3600.0)
        ways = channels(section)
        self._outbox = Outbox(folder, list(ways))
        self._notices.recall(self._outbox.everything())
        self._lines = {
            name: _Line(name, send, self._outbox, self._save, self._is_quiet)
            for name, send in ways.items()
        }
        self.job = Job("notify", "the problems to notify of cannot be determined", LOOP_S)
        self.jobs = [self.job, self._outbox.job]
        self._saving = asyncio.Lock()
        self._unsaved = False
        self._tasks: list[asyncio.Task[None]] = []
        self._heart: str | None = None

    @property
    def ways(self) -> list[str]:
        return list(self._lines)

    @property
    def failures(self) -> list[str]:
        """The notifications that could not be sent, in words."""
        found = [line.failure for line in self._lines.values() if line.failure is not None]
        if lost := self._outbox.lost:
            found.append(f"{are(lost, 'notification')} lost: room was needed for later ones")
        return found + ([self._heart] if self._heart is not None else [])

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(line.run()) for line in self._lines.values()]
        self.job.begin()
        self._tasks.append(loop.create_task(self._look()))
        if self._section.heartbeat is not None:
            self._tasks.append(loop.create_task(self._beat(self._section.heartbeat)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def test(self) -> list[str]:
        """Send a test message on each channel. Return the names of the channels. Raises
        OncewayError if there is no channel, or if one of them does not accept the message.
        """
        if not self._lines:
            raise OncewayError("[notify] names no channel", hint="Give command, webhook or mail_to")
        message = Message("test", [], self._gateway, time.time())
        sent = (line.deliver(message, PATIENCE_S) for line in self._lines.values())
        results = await asyncio.gather(*sent, return_exceptions=True)
        refused = {
            name: _words(result)
            for name, result in zip(self._lines, results, strict=True)
            if isinstance(result, Exception)
        }
        if refused:
            raise OncewayError(
                f"the test message was not accepted ({'; '.join(refused.values())})",
                ", ".join(refused),
            )
        return list(self._lines)

    async def _look(self) -> None:
        while True:
            try:
                found = self._notices.take(
                    await self._problems(), time.time(), quiet=self._is_quiet()
                )
                if found and self._lines:
                    self._outbox.put(found)
                    self._unsaved = True
                if self._unsaved:
                    self._unsaved = not await self._save()
                if not self._unsaved:
                    self._notices.keep()
                for line in self._lines.values() if found else ():  # sent even if the disk is full
                    line.more.set()
                self.job.go_round()
            except Exception as error:
                self.job.fail(error)
            await asyncio.sleep(LOOK_S)

    async def _save(self) -> bool:
        """Write the waiting messages to the disk. Return whether the disk has them."""
        async with self._saving:
            return await asyncio.to_thread(self._outbox.write, self._outbox.text())

    def _is_quiet(self) -> bool:
        return is_quiet(self._section.quiet, datetime.now().astimezone())

    async def _beat(self, url: str) -> None:
        """Send the heartbeat until the task is cancelled: by HTTP once per `heartbeat_s`, or over
        an MQTT connection. The service at the URL notices when the heartbeat stops.
        """
        patience = Patience()
        by_mqtt = url.startswith(("mqtt://", "mqtts://"))
        while True:
            try:
                if by_mqtt:
                    await keep(self._section, self._is_heard)
                else:
                    await patience.wait(partial(_get, url), PATIENCE_S)
                self._is_heard()
            except Exception as error:
                self._heart = f"the heartbeat is not accepted: {_words(error)}"
            every_s = self._section.heartbeat_s
            await asyncio.sleep(min(every_s, AGAIN_S[0]) if by_mqtt else every_s)

    def _is_heard(self) -> None:
        self._heart = None


class _Line:
    """One channel and its queue. more: set when a message is added."""

    def __init__(
        self,
        name: str,
        send: Channel,
        outbox: Outbox,
        save: Callable[[], Awaitable[object]],
        is_quiet: Callable[[], bool],
    ) -> None:
        self.name = name
        self._send = send
        self._patience = Patience()
        self.failure: str | None = None
        self.more = asyncio.Event()
        self._outbox = outbox
        self._save = save
        self._is_quiet = is_quiet

    async def deliver(self, message: Message, limit_s: float) -> None:
        """Send a message. Raises the channel's error, or TimeoutError after `limit_s` seconds."""
        await self._patience.wait(partial(self._send, message), limit_s)

    async def run(self) -> None:
        tried = 0
        while True:
            while (message := self._outbox.first(self.name)) is None:
                self.more.clear()
                await self.more.wait()
            if self._is_quiet():  # checked only now, since the message may have waited for long
                await asyncio.sleep(LOOK_S)
                continue
            try:
                await self.deliver(message, LONGEST_S)
            except Exception as error:
                count = self._outbox.count(self.name)
                self.failure = f"{wait(count, 'notification')} for {self.name}: {_words(error)}"
                if not tried:
                    log.warning("notify: %s", self.failure)
                await asyncio.sleep(AGAIN_S[min(tried, len(AGAIN_S) - 1)])
                tried += 1
            else:
                self.failure, tried = None, 0
                self._outbox.drop_accepted(self.name, message)
                await self._save()


def is_quiet(windows: list[str], now: datetime) -> bool:
    """Return whether a local time is in one of the windows, such as 22:00-06:00. Only the time of
    day counts, so the hour that occurs twice in autumn is in the window twice.
    """
    for begin, end in map(split_window, windows):
        bounds = (begin <= now.time(), now.time() < end)
        if all(bounds) if begin <= end else any(bounds):
            return True
    return False


def _get(url: str) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "onceway"})  # noqa: S310 - checked
    with urllib.request.urlopen(request, timeout=PATIENCE_S):  # noqa: S310
        pass


def _words(error: Exception) -> str:
    if isinstance(error, URLError) and isinstance(error.reason, Exception):
        return _words(error.reason)  # the text came with "<urlopen error …>"
    if isinstance(error, SMTPRecipientsRefused) and error.recipients:
        return _answer(*next(iter(error.recipients.values())))
    if isinstance(error, SMTPResponseException):
        return _answer(error.smtp_code, error.smtp_error)
    if isinstance(error, SMTPNotSupportedError):
        return "the mail server offers no STARTTLS, or no login"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, HTTPError):
        return error.strerror
    return str(error) or type(error).__name__


def _answer(code: int, text: bytes | str) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"the mail server answers {code} {' '.join(shown.split())}".rstrip()
