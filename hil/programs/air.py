"""The ether of a run, and the gateway's modem in it, as processes.

In: a folder, the air of a bench, the boards in it by their numbers. Out: what the boards and the
gateway say to each other, as events of hop `air`; at the end what each radio has counted, and how
the law was broken.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gateway.errors import OncewayError
from gateway.regions import EU868
from gateway.store.uptime import uptime
from hil.air.tap import AirTap
from hil.bench.tables import AirTable
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Child, Children

HOUR = 3600.0
MODEM = "gateway"
"""Its name in the ether."""
NOBODY = "nobody"
"""To whom a frame is that bears no number of a board."""
READY_WITHIN = 60.0  # s, on a busy machine


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
        self._modem: Child | None = None
        self._taps: dict[str | None, AirTap] = {}

    def listen(
        self, name: str, key: Callable[[], bytes], heard: Callable[[str, dict[str, Any]], None]
    ) -> AirTap:
        """Read along what a board of this key and the gateway say. heard: takes each event that is
        entered.
        """

        def enter(t: int, event: str, data: dict[str, Any]) -> None:
            self._history.add("air", event, t, line=name, **data)
            heard(event, data)

        self._taps[name] = AirTap(key, enter)
        return self._taps[name]

    async def start(self) -> None:
        """Returns when radios can join; with a real modem, when the gateway can open it."""
        if self._air.modem is not None:
            boards = [f"{number}={name}" for number, name in self._boards.items()]
            options = ["--modem", self._air.modem, "--port", str(self._folder.port(MODEM))]
            options += ["--factor", str(self._air.spreading_factor), "--boards", *boards]
            self._ether = await self._program("air", "hil.air.modem_tap", options)
            return
        options = ["--socket", str(self._folder.air), "--tell", "--seed", str(self._seed)]
        options += ["--trace", self._air.trace] if self._air.trace else []
        options += ["--pace", str(self._air.pace)] if self._air.pace else []
        options += ["--longest-outage", str(self._air.longest_outage)]
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
                self.enter(data)
            elif event == "replayed":
                self._replayed(data)
            else:
                self._history.add("air", event, **data)
        await self._ether.process.wait()
        self._ether.check()

    async def stop(self) -> None:
        if self._foreign:
            await self._foreign.stop()
        if self._modem:
            await self._modem.stop()
        await self._ether.stop()

    def enter(self, said: dict[str, Any]) -> None:
        """A frame that is over, of a board or of the gateway."""
        frame, sender, to = bytes.fromhex(said["frame"]), said["from"], said["to"]
        of_board = self._boards.get(int.from_bytes(frame[1:2]), NOBODY)
        line, direction, other = sender, "up", MODEM
        if sender == MODEM:
            line, direction, other = of_board, "down", of_board
        if frame[0] == self._air.network and line == of_board != NOBODY:
            self._taps[line].feed(direction, frame, other in to, said["t"])
        else:
            told = {"direction": direction, "frame": said["frame"]}
            self._history.add("air", "strange", said["t"], line=line, **told)

    def _replayed(self, said: dict[str, Any]) -> None:
        """How much of a recording a link has lived through; boards do not listen to each other."""
        ends = said.pop("from"), said.pop("to")
        for line, direction in zip(ends, ("up", "down"), strict=True):
            if MODEM in ends and line in self._taps:
                self._history.add("air", "replayed", line=line, direction=direction, **said)
