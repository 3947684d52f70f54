"""Messages that wait for a channel, kept over restarts in `DATA/unsent.json`.

In: a message and the names of channels. Out: the oldest message of each channel, until the channel
has accepted the message.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from gateway.notify.channels import MAIL
from gateway.notify.notices import MOST, Message
from gateway.system.amounts import amount
from gateway.system.jobs import FILE_S, Job

log = logging.getLogger(__name__)

FILE = "unsent.json"


class Outbox:
    """The waiting messages of all channels. folder: the data directory. channels: the names of the
    configured channels.
    """

    def __init__(self, folder: Path, channels: list[str]) -> None:
        self._file = folder / FILE
        self.job = Job("notices", f"{self._file}: the waiting messages cannot be written", FILE_S)
        self.lost = 0
        """Messages dropped since the start to make room for later ones."""
        kept = _read(self._file)
        mails = [name for name in channels if name.startswith(f"{MAIL} to ")]
        if mails and MAIL in kept:  # one channel for all addresses, as until 0.2.0
            kept |= dict.fromkeys(mails, kept.pop(MAIL))
        for name in kept.keys() - set(channels):
            log.warning(
                "notify: dropped %s that waited for %s, which is no longer in [notify]",
                amount(len(kept[name]), "message"),
                name,
            )
        self._waiting = {name: deque(kept.get(name, ()), maxlen=MOST) for name in channels}

    def count(self, channel: str) -> int:
        return len(self._waiting[channel])

    def first(self, channel: str) -> Message | None:
        """Return the oldest message that waits for a channel, or None."""
        waiting = self._waiting[channel]
        return waiting[0] if waiting else None

    def everything(self) -> Iterator[Message]:
        """Yield the waiting messages, channel by channel, each channel's messages in order."""
        for waiting in self._waiting.values():
            yield from waiting

    def put(self, messages: list[Message]) -> None:
        """Add messages to the queue of each channel. If a queue is full, its oldest messages are
        lost.
        """
        for waiting in self._waiting.values():
            self.lost += max(0, len(waiting) + len(messages) - MOST)
            waiting.extend(messages)

    def drop_accepted(self, channel: str, message: Message) -> None:
        waiting = self._waiting[channel]
        if waiting and waiting[0] is message:
            waiting.popleft()

    def text(self) -> str:
        """Return all waiting messages as JSON, for `write`."""
        return json.dumps(
            {name: list(map(asdict, waiting)) for name, waiting in self._waiting.items()}
        )

    def write(self, text: str) -> bool:
        """Write a text that the method `text` has returned to the file FILE, so that a restart
        loses no message. Return whether the file was written. Call this on any thread, but only
        once at a time.
        """
        self.job.begin()
        new = self._file.with_suffix(".new")
        try:
            with new.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self._file)
        except OSError as error:
            self.job.fail(error)
            return False
        self.job.succeed()
        return True


def _read(file: Path) -> dict[str, list[Message]]:
    try:
        found = json.loads(file.read_text())
        return {str(name): [_message(row) for row in rows] for name, rows in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.error("%s: cannot be read (%s): messages that waited are lost", file, error)
        return {}


def _message(row: dict[str, object]) -> Message:
    problems = row["problems"]
    if row["event"] not in ("begins", "ends", "goes on") or not isinstance(problems, list):
        raise ValueError("no message")
    return Message(
        row["event"], list(map(str, problems)), str(row["gateway"]), float(str(row["at"]))
    )
