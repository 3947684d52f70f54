"""Readings of boards as JSON on separate topics.

In: publications of boards, as the broker accepts them. Out: retained messages in memory, sent at
the end of a turn of the event loop, in order of arrival; and the file of the last values, every ten
minutes.

  readings/$state              online: the gateway is running
  readings/DEVICE/$state       online or offline; offline also while the board has a problem
  readings/DEVICE/NAME         {"value": 21.5, "unit": "Cel", "time": "2026-01-01T00:00:00Z",
                                "quality": "synchronised"}
  readings/DEVICE/NAME.fault   {"value": 1, …} while NAME has no value; 0 when it has one again

The topics of a board that may no longer connect are cleared.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gateway.mirror.announce import announce
from gateway.mirror.last import LastReadings
from gateway.payload.readings import DEVICE_NAME, Reading, readings
from gateway.runtime.engine import Engine
from gateway.system.jobs import LOOP_S, Job

log = logging.getLogger(__name__)

SAVE_S = 600.0
LOOK_S = 1.0
"""Seconds between two checks of the connected boards."""
STATE = "$state"
"""Topic level of the state. No name of a reading begins with `$` (RFC 8428, section 4.5.1)."""


class Mirror:
    """The mirror of readings. topic: first level of the mirror's topics; if None, the mirror
    publishes nothing, but keeps the last values. stays: returns whether a board with this name may
    connect. is_fine: returns whether the board works as expected. Runs from `start` to `close`.
    """

    def __init__(
        self,
        engine: Engine,
        last: LastReadings,
        topic: str | None,
        stays: Callable[[str], bool],
        is_fine: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.last = last
        self._topic = topic
        self._engine = engine
        self._stays = stays
        self._is_fine = is_fine
        self.on_gone: list[Callable[[str], None]] = []
        """Callbacks that are called with the name of a board that may not connect any more."""
        self.on_taken: list[Callable[[str], None]] = []
        """Callbacks that are called with the name of a board that has new readings."""
        self._states: dict[str, bool] = {}
        """Last published state by board: True if online."""
        self._leaving: dict[str, list[str]] = {}
        """Names of the readings of each removed board. The next check deletes their topics. Home
        Assistant must first learn that the board is removed, so that it does not treat an empty
        message as a value.
        """
        self._coming: list[tuple[str, str, Reading]] = []
        self.looking = Job("mirror", "the mirror of readings has stopped", LOOP_S)
        self.jobs = [self.looking, *self.last.jobs]
        self._thread = ThreadPoolExecutor(1, "readings")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Publish the values from before the restart, and begin to check the boards."""
        self._tell(
            {STATE: b"online"}
            | {
                f"{device}/{name}": _payload(series.last)
                for device in self.last.devices
                for name, series in self.last.of(device).items()
            }
        )
        self._look()
        self.looking.begin()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop, and save the last values."""
        if self._task is not None:
            self._task.cancel()
        if news := self.last.news():
            self.last.write(news)
        self._thread.shutdown(cancel_futures=True)

    def take(self, device: str, topic: str, payload: bytes, utc: int | None) -> None:
        """Take a board's publication, to publish its readings at the end of this turn. The broker
        calls this while it processes the publication, so an error here does not affect the board.
        utc: µs since 1970, None while the clock is not known.
        """
        if not DEVICE_NAME.fullmatch(device):
            return
        try:
            found = readings(device, topic, payload, utc)
        except Exception:
            if self._engine.broker.log_throttle.allows(f"mirror of {device}"):
                log.exception("%s: a publication to %r cannot be mirrored", device, topic)
            return
        if found and not self._coming:
            asyncio.get_running_loop().call_soon(self._flush)
        self._coming += [(device, topic, item) for item in found]

    def _tell(self, messages: dict[str, bytes]) -> None:
        """Publish payloads. messages: payloads by topic without its first level."""
        topic = self._topic
        if topic is not None:
            tell(self._engine, {f"{topic}/{name}": text for name, text in messages.items()})

    def _flush(self) -> None:
        coming, self._coming = self._coming, []
        for device, topic, reading in coming:
            if self.last.take(device, reading, topic):
                self._tell({f"{device}/{reading.name}": _payload(reading)})
            if (well := self.last.mend(device, reading)) is not None:
                self._tell({f"{device}/{well.name}": _payload(well)})
        for device in {device for device, *_ in coming}:
            for call in self.on_taken:
                call(device)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        saved = loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._look()
                if loop.time() - saved >= SAVE_S and (news := self.last.news()):
                    saved = loop.time()
                    await loop.run_in_executor(self._thread, self.last.write, news)
                self.looking.go_round()
            except Exception as error:
                self.looking.fail(error)

    def _look(self) -> None:
        """Publish the state of each board if it has changed. Drop boards that may not connect any
        more.
        """
        self._clear()
        online_here = connected(self._engine)
        for device in self.last.devices:
            if device not in online_here and not self._stays(device):
                self._states.pop(device, None)
                self._leaving[device] = [*self.last.forget(device), STATE]
                for call in self.on_gone:
                    call(device)
                continue
            online = device in online_here and self._is_fine(device)
            if self._states.get(device) != online:
                self._states[device] = online
                self._tell({f"{device}/{STATE}": b"online" if online else b"offline"})

    def _clear(self) -> None:
        """Clear topics of boards that were removed at the last check, except topics that are in use
        again.
        """
        leaving, self._leaving = self._leaving, {}
        for device, names in leaving.items():
            in_use = {*self.last.of(device), *([STATE] if device in self._states else [])}
            self._tell({f"{device}/{name}": b"" for name in names if name not in in_use})


def tell(engine: Engine, messages: dict[str, bytes]) -> None:
    """Publish messages of the gateway itself, all in one step. messages: payload by topic."""
    engine.begin()
    with engine.broker.step:
        for topic, payload in messages.items():
            announce(engine.broker, topic, payload)
        engine.broker.settle()


def connected(engine: Engine) -> set[str]:
    """Return the names of the boards that have a connection."""
    devices = (connection.peer.device for connection in engine.broker.connections)
    return {device.name for device in devices if device is not None}


def _payload(reading: Reading) -> bytes:
    return json.dumps(reading.public()).encode()
