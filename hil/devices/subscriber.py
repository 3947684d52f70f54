"""A subscriber as the rig sees it: its table in a bench, its process, and the messages that it must
still receive. In: a `[[subscriber]]` table, the port of the gateway's listener. Out: events of hop
`subscriber` in the history. `walk` runs the clients of `hil/clients/walk.toml` (hop `walk`).
"""

import json
import sys
from collections.abc import Iterable

from hil.bench.bench import Bench
from hil.bench.tables import SubscriberTable
from hil.clients import records
from hil.devices.client import Client
from hil.devices.wired_device import WiredDevice
from hil.formats.topics import matches, shared
from hil.observe.counters import wait_until
from hil.observe.history import History
from hil.programs.process import Child, Children


class Subscriber:
    """A subscriber. far: whether it subscribes at the bridge's other broker, not at the gateway.
    subscribed: time of its first granted subscription, in monotonic nanoseconds. received: number
    of messages."""

    def __init__(
        self,
        name: str,
        table: SubscriberTable,
        children: Children,
        history: History,
        with_others: "Subscriber | None" = None,
    ) -> None:
        """Create the subscriber. with_others: an earlier subscriber of its shared subscription."""
        self.name = name
        self.far = table.there
        self.subscribed: int | None = None
        self.received = 0
        self._table = table
        self._children = children
        self._history = history
        self._has: set[tuple[str, int]] = set()  # topic and sequence
        self._received: set[tuple[str, str]] = set()  # topic and payload
        self._filter = shared(table.filter)[1]
        if with_others:  # each message goes to one subscriber of the shared subscription
            self._has, self._received = with_others._has, with_others._received
        self._heard = False

    async def start(self, port: int) -> None:
        """Start the subscriber. port: port of the gateway's listener."""
        table = self._table
        options = {
            "port": port,
            "name": self.name,
            "topic-filter": table.filter,
            "qos": table.qos,
            "stays-s": table.stays_s,
            "away-s": table.away_s,
            "receive-maximum": table.receive_maximum,
            "keep-alive-s": table.keep_alive_s,
            "expiry-s": table.expiry_s,
        }
        argv = [sys.executable, "-m", "hil.clients.subscriber"]
        for name, value in options.items():
            argv += [f"--{name}", str(value)]
        if table.clean:
            argv.append("--clean")
        self._child: Child = await self._children.start(self.name, argv, pipe=True)

    async def follow(self) -> None:
        """Record all reports of the program. Raises EndedError if the program ended by itself."""
        async for line in self._child.lines():
            report = json.loads(line)
            event, t = report.pop("event"), report.pop("t")
            if event == "subscribed" and self.subscribed is None:
                self.subscribed = t
            elif event == "received":
                self.received += 1
                if report["sequence"] is not None:
                    self._has.add((report["topic"], report["sequence"]))
                self._received.add((report["topic"], report["payload"]))
            self._history.add("subscriber", event, t, subscriber=self.name, **report)
        self._heard = True
        await self._child.process.wait()
        self._child.check()

    async def until_subscribed(self) -> None:
        await wait_until(lambda: self.subscribed is not None)

    def owed(self, clients: Iterable[Client], boards: Iterable[WiredDevice] = ()) -> int:
        """Return the number of messages that the subscriber must still receive. The run waits until
        the number is 0.
        """
        table = self._table
        if self.subscribed is None or table.clean or table.expiry_s or not table.qos:
            return 0
        missing = sum(
            not stored & self._received
            for board in boards
            for stored in board.stored
            if any(matches(self._filter, topic) for topic, _ in stored)
        )
        return missing + sum(
            (topic, sequence) not in self._has
            for client in clients
            for sequence, published in client.acknowledged.items()
            if published > self.subscribed
            if matches(self._filter, topic := client.topics[sequence])
        )

    async def disconnect(self) -> None:
        await self._child.stop()

    def close(self) -> None:
        """Record the event `complete` if all reports of the subscriber are in the history."""
        if self._heard:
            self._history.add("subscriber", "complete", subscriber=self.name)


async def walk(
    bench: Bench, port: int, children: Children, history: History, *, after: bool = False
) -> None:
    """If the bench has `walk`, try the options of MQTT at the gateway, and record what the clients
    saw. port: port of the gateway's listener. after: whether to carry out the scripts for the end
    of a run. Raises EndedError if the program fails.
    """
    due = records(bench.config).items() if bench.walk else ()
    argv = [sys.executable, "-m", "hil.clients.walk", "--port", str(port)]
    for name, record in due:
        argv += ["--record", name] if "after" in record or not after else []
    if not due:
        return
    child = await children.start("walk", argv + ["--after"] * after, pipe=True)
    async for line in child.lines():
        report = json.loads(line)
        event, t = report.pop("event"), report.pop("t")
        history.add("walk", event, t, **report)
    if await child.process.wait():
        child.check()
    child.ended_by_us = True
