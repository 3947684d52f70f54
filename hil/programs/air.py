"""The ether of a run, and the gateway's modem in it, as processes.

In: a folder, the air of a bench, the boards in it by their numbers. Out: what the boards and the
gateway say in clear when they greet, as events of hop `air`; at the end what each radio has
counted, and how the law was broken.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gateway.errors import OncewayError
from gateway.regions import EU868
from gateway.store.uptime import uptime
from hil.bench.bench import AirTable
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Child, Children

HOUR = 3600.0
MODEM = "gateway"
"""Its name in the ether."""
READY_WITHIN = 60.0  # s, on a busy machine
# gateway/links/lora/README.md, Handshake: header:3, and in HELLO boot:2 attempt:2 incarnation:4
# next_sequence:4, in WELCOME nonce:8 incarnation:4
HELLO, HELLO_SIZE = 0x81, 29
WELCOME, WELCOME_SIZE = 0xC1, 24
FIRST_PUBLISH = 1
"""Turns of a session before one that may carry a publication: CONNECT. Who is not known by the
gateway subscribes in that one, and publishes in the next.
"""


class AirOfRun:
    """boards: names by number."""

    def __init__(
        self,
        air: AirTable,
        boards: Mapping[int, str],
        seed: int,
        folder: Folder,
        children: Children,
        history: History,
    ) -> None:
        self._air = air
        self._boards = boards
        self._seed = seed
        self._folder = folder
        self._children = children
        self._history = history
        self._foreign: Child | None = None
        self._greeted: set[str] = set()
        """Boards that have greeted, and have not published since."""
        self.on_turn: Callable[[str, int | None], None] = lambda name, begun: None
        """Called with a board's name when the modem has heard a turn of it that may carry a
        publication. begun: when that was, of the first such turn of a session.
        """

    async def start(self) -> None:
        """Returns when radios can join."""
        options = ["--socket", str(self._folder.air), "--tell", "--seed", str(self._seed)]
        options += ["--trace", self._air.trace] if self._air.trace else []
        options += ["--pace", str(self._air.pace)] if self._air.pace else []
        if self._air.sent_before:
            age = HOUR - self._air.after_s
            options += ["--sent", MODEM, str(self._air.sent_before), str(age)]
            self._note_sent(age)
        self._ether = await self._program("air", "hil.air.server", options)
        port = self._folder.port(MODEM)
        options = ["--air", str(self._folder.air), "--port", str(port), "--name", MODEM]
        self._modem = await self._program("modem", "hil.air.kiss_modem", options)
        if self._air.foreign:
            channel = map(str, (EU868.frequency, 125_000, self._air.spreading_factor))
            options = ["--air", str(self._folder.air), "--channel", *channel]
            options += ["--do", self._air.foreign, "--seed", str(self._seed)]
            self._foreign = await self._program("foreign", "hil.air.foreign", options)

    def _note_sent(self, age: float) -> None:
        """Write the gateway's record of airtime (gateway/links/lora/ledger_file.py)."""
        started = uptime()
        if started is None:
            raise OncewayError("this machine does not tell one start of it from another")
        sent = [[age, self._air.sent_before]]
        told = {"at": started.seconds, "bands": {"P": {"reserved": 0, "sent": sent}}}
        name = str(self._folder.port(MODEM)).strip("/").replace("/", "-")
        file = self._folder.data / f"airtime-{name}.json"
        file.write_text(json.dumps({"machine": started.machine, **told}))

    async def _program(self, name: str, module: str, options: list[str]) -> Child:
        child = await self._children.start(
            name, [sys.executable, "-m", module, *options], pipe=True
        )
        async with asyncio.timeout(READY_WITHIN):
            async for line in child.lines():
                if line == b"ready\n":
                    return child
        raise OncewayError(f"{name} did not start", str(child.log))

    async def follow(self) -> None:
        """Enter what the ether says in the history, until it ends."""
        async for line in self._ether.lines():
            data = json.loads(line)
            event = data.pop("event")
            if event == "frame":
                self._enter(data)
            else:
                self._history.add("air", event, **data)
        await self._ether.process.wait()
        self._ether.check()

    async def stop(self) -> None:
        if self._foreign:
            await self._foreign.stop()
        await self._modem.stop()
        await self._ether.stop()

    def _enter(self, said: dict[str, Any]) -> None:
        """Greetings, the offers that their boards have heard, and turns."""
        frame = bytes.fromhex(said["frame"])
        if len(frame) < 3 or frame[0] != self._air.network or frame[1] not in self._boards:
            return
        name = self._boards[frame[1]]
        if said["from"] == name and MODEM in said["to"] and FIRST_PUBLISH <= frame[2] < 64:
            begins = frame[2] == FIRST_PUBLISH and name in self._greeted
            self._greeted -= {name}
            if begins or frame[2] != FIRST_PUBLISH:
                self.on_turn(name, said["t"] if begins else None)
        if frame[2] == HELLO and len(frame) == HELLO_SIZE and said["from"] == name:
            fields = {
                "boot": int.from_bytes(frame[3:5]),
                "attempt": int.from_bytes(frame[5:7]),
                "incarnation": int.from_bytes(frame[7:11]),
                "next_sequence": int.from_bytes(frame[11:15]),
            }
            self._greeted.add(name)
            self._history.add("air", "hello", said["t"], line=name, **fields)
        elif frame[2] == WELCOME and len(frame) == WELCOME_SIZE and name in said["to"]:
            incarnation = int.from_bytes(frame[11:15])
            self._history.add("air", "welcome", said["t"], line=name, incarnation=incarnation)
