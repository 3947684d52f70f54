"""The other end of the gateway's bridge: mosquitto, and the programs that change retained messages
at both ends (`hil/clients/states.py`). In: the table [bridge] of a bench, the port of the gateway's
listener. Out: events of hop `states` in the history, and whether both ends have equal messages.
"""

import asyncio
import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

from gateway.errors import OncewayError
from hil.bench.tables import BridgeTable
from hil.formats.topics import HERE, THERE
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Child, Children

NAME = "mosquitto"
LISTENS_WITHIN = 20.0  # s
AGREED_WITHIN = 60.0  # s
LOOK_EVERY = 0.05  # s
CONFIG = """\
user root
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
max_queued_messages 0
max_inflight_messages 0
"""


class OtherBroker:
    """mosquitto with its own folder. When asked to end, mosquitto saves its sessions in the folder.
    port: port of its listener. running: programs of the run by name, to which mosquitto is added.
    changes: number of changes of retained messages so far.
    """

    def __init__(
        self,
        table: BridgeTable,
        port: int,
        seed: int,
        folder: Folder,
        children: Children,
        running: dict[str, Child],
        history: History,
    ) -> None:
        self.port = port
        self.changes = self._ready = 0
        self._running = running
        self._table = table
        self._folder = folder.root / NAME
        self._children, self._history, self._seed = children, history, seed
        self._programs: list[Child] = []
        self._newest: dict[str, str] = {}
        self._retained: dict[str, dict[str, str]] = {}

    async def start(self) -> None:
        """Start mosquitto, and wait until it accepts connections. Raises OncewayError."""
        # root's path has /usr/sbin, others' often lacks it
        program = shutil.which(NAME, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            raise OncewayError(f"{NAME} is not installed", hint=f"On Debian: apt install {NAME}")
        self._folder.mkdir(exist_ok=True)
        config = self._folder / f"{NAME}.conf"
        config.write_text(CONFIG.format(port=self.port, folder=self._folder))
        self._running[NAME] = child = await self._children.start(NAME, [program, "-c", str(config)])
        async with asyncio.timeout(LISTENS_WITHIN):
            while True:
                child.check()
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                await asyncio.sleep(LOOK_EVERY)

    async def stop(self) -> int:
        self._running[NAME].check()
        return await self._running[NAME].stop()

    async def start_changes(self, port: int) -> None:
        """Start the programs that change retained messages. port: the gateway's port."""
        for end, at in ((HERE, port), (THERE, self.port)):
            options = {
                "port": at,
                "end": end,
                "states": self._table.states,
                "changes": self._table.changes,
                "per-s": self._table.per_s,
                "seed": f"{self._seed}/{end}",
            }
            argv = [sys.executable, "-m", "hil.clients.states"]
            for name, value in options.items():
                argv += [f"--{name}", str(value)]
            child = await self._children.start(f"states-{end}", argv, pipe=True, orders=True)
            self._programs.append(child)

    async def go(self, agreed: Path) -> None:
        """Wait until both brokers have the first messages. Then let the programs begin with their
        later changes. agreed: the bridge's file of agreements (`gateway/bridge/agreed.py`). Raises
        OncewayError after AGREED_WITHIN seconds.
        """
        wanted = len(self._programs) * self._table.states
        try:
            async with asyncio.timeout(AGREED_WITHIN):
                await wait_until(lambda: self._ready == len(self._programs), LOOK_EVERY)
                await wait_until(lambda: _rows(agreed) >= wanted, LOOK_EVERY)
        except TimeoutError:
            raise OncewayError(
                f"both ends of the bridge have agreed on {_rows(agreed)} of {wanted} retained"
                f" messages after {AGREED_WITHIN:.0f} s",
                str(agreed),
            ) from None
        for child in self._programs:
            child.order(b"go")

    async def follow(self) -> None:
        """Record both programs' reports until both end. Raises OncewayError if one ends early."""
        async with asyncio.TaskGroup() as tasks:
            for end, child in zip((HERE, THERE), self._programs, strict=True):
                tasks.create_task(self._follow(end, child))

    async def _follow(self, end: str, child: Child) -> None:
        async for line in child.lines():
            fields = json.loads(line)
            event, t = fields.pop("event"), fields.pop("t")
            if event == "changed":
                self.changes += 1
                self._newest[fields["topic"]] = fields["payload"]
            elif event == "ready":
                self._ready += 1
                continue
            else:
                self._retained[end] = fields["messages"]
            self._history.add("states", event, t, end=end, **fields)
        await child.process.wait()
        child.check()

    @property
    def agrees(self) -> bool:
        """Whether both brokers have exactly the newest messages, by the programs' last reports."""
        newest = {topic: payload for topic, payload in self._newest.items() if payload}
        return self._retained == {HERE: newest, THERE: newest}

    async def end_changes(self) -> None:
        for child in self._programs:
            await child.stop()


def _rows(agreed: Path) -> int:
    """Return the number of topics on which both brokers agree, from the bridge's file `agreed`; 0
    if it cannot be read.
    """
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{agreed.as_uri()}?mode=ro", uri=True)) as found,
    ):
        return int(found.execute("SELECT count(*) FROM agreed").fetchone()[0])
    return 0
