"""Base class of devices with a wire: the program `hil.wire`, which carries bytes between a board's
port and the gateway's port. In: a name, a folder, a bench, and the board's port. Out: the wire's
reports in the history, and ways to break it.
"""

import asyncio
import json
import sys
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hil.bench.bench import Bench
from hil.faults.line import LineWeather
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Child, Children


class WiredDevice(ABC):
    """A device with a wire. harmed: number of harms that the wire caused, by kind. opened: how
    often the gateway has opened the port. idle: whether the device is kept idle until `release`.
    gateway: the gateway that has the device now.
    """

    def __init__(
        self, name: str, folder: Folder, bench: Bench, children: Children, history: History
    ) -> None:
        self.name = name
        self.harmed: Counter[str] = Counter()
        self.opened = 0
        self.sessions: list[bool] = []
        """For each MQTT connection of the board: whether the gateway knew its session."""
        self.idle = False
        self.has_turns = True
        """Whether a session had as many publications as the bench demands (`[air]` turns)."""
        self.sent: set[int] = set()
        """Packet identifiers of the publications that the board has sent."""
        self.refused: list[tuple[int, int]] = []
        """Packet identifier and reason code of each publication that the gateway has refused."""
        self._published: dict[int, set[tuple[str, str]]] = defaultdict(set)
        self._released: set[int] = set()
        self._struck: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._armed: dict[str, asyncio.Queue[None]] = {}
        self._orders: dict[str, int] = {}
        self.gateway = bench.homes[name]
        self._folder = folder
        self._bench = bench
        self._children = children
        self._history = history

    @property
    def stored(self) -> list[set[tuple[str, str]]]:
        """Return, for each publication that the gateway has, the set of pairs (topic, payload) with
        which the board sent the publication.
        """
        return [self._published[identifier] for identifier in self._released]

    @property
    def accepted(self) -> set[int]:
        return self._released

    @property
    @abstractmethod
    def port(self) -> Path:
        """Return the board's port."""

    def wire_options(self) -> list[str]:
        """Return additional options for `python -m hil.wire`."""
        return []

    def heard(self, event: str, data: dict[str, Any]) -> None:
        """Handle an event of the wire that is already in the history."""
        match event:
            case "count":
                self.harmed = Counter(data["up"]) + Counter(data["down"])
            case "open":
                self.opened += 1
            case "connack" if not data["reason"]:
                self.sessions.append(data["session_present"])
            case "publish" if data["direction"] == "up" and data["id"]:
                self.sent.add(data["id"])
                self._published[data["id"]].add((data["topic"], data["payload"]))
            case "pubrel" if data["direction"] == "up":
                self._released.add(data["id"])
            case "refused" if data["direction"] == "down" and data["packet"] == "pubrec":
                self.refused.append((data["id"], data["reason"]))
            case "armed":
                self._armed[data["fault"]].put_nowait(None)
            case "struck":
                self._struck[data["fault"]].put_nowait({**data, "opened": self.opened})

    async def connect(self) -> None:
        """Connect the wire to the gateway's port."""
        port = self._folder.of(self.gateway).port(self.name)
        ends = ["--board", str(self.port), "--port", str(port)]
        weather = [
            option
            for kind in self._bench.fault
            if isinstance(kind, LineWeather) and kind.breaks(self.name)
            for option in kind.options()
        ]
        argv = [
            sys.executable,
            "-m",
            "hil.wire",
            *ends,
            "--seed",
            f"{self._bench.seed}/{self.name}",
            *weather,
            *self.wire_options(),
        ]
        self._wire: Child = await self._children.start(
            f"wire-{self.name}", argv, pipe=True, orders=True
        )

    async def disconnect(self) -> None:
        await self._wire.stop()

    async def follow_wire(self) -> None:
        """Record the wire's reports in the history until the wire's process ends."""
        async for line in self._wire.lines():
            data = json.loads(line)
            event = data.pop("event")
            at = data.pop("t")
            self._history.add("wire", event, at, line=self.name, **data)
            self.heard(event, {**data, "t": at})
        await self._wire.process.wait()
        self._wire.check()

    async def replug(self, fault: str, gateway: str, seconds: float, within: float) -> bool:
        opened, sessions = self.opened, len(self.sessions)
        port = self._folder.of(gateway).port(self.name)
        order = {"do": "replug", "port": str(port), "seconds": seconds}
        await self.strike(fault, [order], within)
        self.gateway = gateway
        async with asyncio.timeout(within):
            await wait_until(lambda: self.opened > opened and len(self.sessions) > sessions)
        return self.sessions[sessions]

    @abstractmethod
    async def hold(self) -> None:
        """Keep the board idle until `release`, if this kind of board can be kept idle."""

    @abstractmethod
    async def release(self) -> None:
        """Let the board begin to sample. The run calls this when faults and observers are ready."""

    async def arm_line(self, fault: str, orders: Sequence[dict[str, Any]], at: int) -> None:
        """Order a fault of the wire in advance, for the board's `at`th new PUBLISH. Returns when
        the wire has the orders.
        """
        self._struck[fault], self._orders[fault] = asyncio.Queue(), len(orders)
        self._armed[fault] = asyncio.Queue()
        for order in orders:
            placed = {**order, "fault": fault, "publication": at}
            self._wire.order(json.dumps(placed).encode())
            await self._armed[fault].get()

    async def line_struck(self, fault: str) -> list[dict[str, Any]]:
        return [await self._struck[fault].get() for _ in range(self._orders[fault])]

    async def strike(
        self, fault: str, orders: Sequence[dict[str, Any]], within: float
    ) -> list[dict[str, Any]]:
        """Send the orders of a fault to the wire. Wait for their reports, but at most `within`
        seconds, and return the reports. Raises TimeoutError.
        """
        done: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._struck[fault] = done
        for order in orders:
            self._wire.order(json.dumps({**order, "fault": fault}).encode())
        async with asyncio.timeout(within):
            return [await done.get() for _ in orders]
