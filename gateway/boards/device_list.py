"""The list of devices for the centre: publications on the topic `onceway/devices`.

In: the device registry. Out: one publication at QoS 1 after each change of the list, and when the
newest list is a day old. The payload is a JSON list of objects with `name`, `board`, `port` and
`firmware`, as in `onceway device list --json`. From this list, the ingest fills board, firmware and
link of its table of devices. With an `[uplink]` the topic is spooled whatever `[spool] topics`
says; without an `[uplink]` no list is published.

`DATA/device-list.json` has the hash, the time and the spool row of the newest list, so that a
restart does not publish the same list again. If the store has no such row, the store was restored
or newly created, and the list is published again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.boards.admission import Registry
from gateway.config import DEVICES_TOPIC, INSIDE
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connack, Packet, Puback, Publish
from gateway.runtime.engine import Engine
from gateway.runtime.internal_client import Client
from gateway.system.jobs import Job, SavedFile

FILE = "device-list.json"
DAY_S = 86_400
LOOK_S = 3600
"""Longest time, in seconds, until the next check whether the newest list is a day old. The day
counts from the time in FILE, so it does not begin again at a restart.
"""
RETRY_S = 60
NOT_TAKEN_S = 600
"""Seconds for which the storing of a list may fail before the failure is reported as a problem."""
ANSWER_S = 30
"""Longest wait for the answer to a publication, in seconds."""
_FAILURE = 0x80


class DeviceList:
    """The publisher of the list of devices, from its creation until `close`. utc: returns µs since
    1970, or None while the time is unknown.
    """

    def __init__(
        self, engine: Engine, registry: Registry, folder: Path, utc: Callable[[], int | None]
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._file = folder / FILE
        self._utc = utc
        self._changed = asyncio.Event()
        text = "the new list of devices was not stored: the centre uses the previous one"
        self.job = Job("device_list", f"{DEVICES_TOPIC}: {text}", NOT_TAKEN_S)
        self._saved = SavedFile(self._file, "the note of the newest list of devices")
        self.jobs = [self.job, self._saved.job]
        self._task = asyncio.create_task(self._run())

    def changed(self) -> None:
        """Note that the registry, or the configuration, has changed."""
        self._changed.set()

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            wait_s = LOOK_S
            try:
                self._changed.clear()
                if (text := self._due()) is not None and not await self._publish(text):
                    wait_s = RETRY_S
                else:
                    self.job.succeed()
            except Exception as error:
                self.job.fail(error)
                wait_s = RETRY_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)

    def _due(self) -> str | None:
        """Return the list if it must be published now, else None."""
        if not self._engine.broker.config.spooled or not self._registry.readable:
            return None
        devices = sorted(self._registry.registered().items())
        text = json.dumps(
            [
                {
                    "name": name,
                    "board": device.board,
                    "port": device.port,
                    "firmware": device.firmware,
                }
                for name, device in devices
            ],
            separators=(",", ":"),
        )
        last = self._last()
        if not devices and not last:
            return None
        now = self._utc()
        if not last or last["row"] >= self._engine.broker.spool.next:
            return text
        old = now is not None and now / 1_000_000 - last["time"] >= DAY_S
        return text if old or last.get("sha256") != _hash(text) else None

    async def _publish(self, text: str) -> bool:
        """Publish a list. Return whether the broker has acknowledged it. If so, note this list as
        the newest one.
        """
        answered: asyncio.Future[Packet | None] = asyncio.get_running_loop().create_future()

        def on_packet(packet: Packet | None) -> None:
            if isinstance(packet, Connack):
                client.send(Publish(DEVICES_TOPIC, text.encode(), qos=1, packet_id=1))
            elif not answered.done():
                answered.set_result(packet)

        client = Client(
            self._engine, "device-list", INSIDE, on_packet, packet_bytes=2 * len(text) + 256
        )
        try:
            packet = await asyncio.wait_for(answered, ANSWER_S)
        except TimeoutError:
            packet = None
        finally:
            client.leave()
        stored = isinstance(packet, Puback) and packet.reason < _FAILURE
        if stored:
            await asyncio.to_thread(self._note, text)
        else:
            reason = packet.reason.name.lower() if isinstance(packet, Puback) else "no answer"
            self.job.fail(OncewayError(reason.replace("_", " ")))
        return stored

    def _last(self) -> dict[str, Any]:
        """Return the note about the newest list; empty if the note is missing or damaged."""
        try:
            found = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        is_whole = isinstance(found, dict) and all(
            isinstance(found.get(name), int) for name in ("time", "row")
        )
        return found if is_whole else {}

    def _note(self, text: str) -> None:
        now = self._utc()
        fields = {
            "sha256": _hash(text),
            "time": 0 if now is None else now // 1_000_000,
            "row": self._engine.broker.spool.next - 1,
        }
        self._saved.write(json.dumps(fields))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
