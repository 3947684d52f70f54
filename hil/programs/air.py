"""The ether of a run, and the modem of each gateway in it, as processes. In: a folder, and a bench
with radio boards. Out: the frames between boards and gateways, as events of hop `air`; at the end
the counts of each radio, and breaches of the law.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.errors import OncewayError
from gateway.system.regions import EU868
from hil.air.places import Places
from hil.air.tap import AirTap
from hil.bench.bench import Bench
from hil.bench.tables import AirTable
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Child, Children
from hil.programs.site import program_of

HOUR = 3600.0
MODEM = "gateway"
"""Name of the modem's port. Also name of the modem in the ether, if there is only one gateway."""
NOBODY = "nobody"
"""Name of the receiver of a frame without a board's number."""
READY_WITHIN = 60.0  # s, on a busy machine


class AirOfRun:
    """The ether of a run, and the gateways' modems. air: table `[air]` of the bench."""

    def __init__(
        self, bench: Bench, air: AirTable, folder: Folder, children: Children, history: History
    ) -> None:
        self._air = air
        self._boards = {number: name for name, number in bench.by_air.items()}
        self._gateways = {program_of(MODEM, name): name for name in bench.gateways}
        """Gateways by their modems' names in the ether."""
        self._places = Places(bench.gateways, air.spreading_factor)
        self._seed = bench.seed
        self._folder = folder
        self._children = children
        self._history = history
        self._beside: list[Child] = []
        """Modems and the foreign radio, which end before the ether."""
        self._taps: dict[str, AirTap] = {}
        self._shared: Counter[str] = Counter()
        """Number of frames that more than one gateway has heard, by board."""

    def listen(
        self, name: str, key: Callable[[], bytes], heard: Callable[[str, dict[str, Any]], None]
    ) -> AirTap:
        """Read the frames between a board and the gateways. key: returns the key in the board's
        flash. heard: called with each event that is recorded. Return the reader.
        """

        def enter(t: int, event: str, data: dict[str, Any]) -> None:
            self._history.add("air", event, t, line=name, **data)
            heard(event, data)

        self._taps[name] = AirTap(name, key, enter)
        return self._taps[name]

    async def start(self) -> None:
        """Start the air. Return when radios can join, or when the gateway can open a real modem."""
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
        for modem, gateway in self._gateways.items():
            x, y = self._places.gateway(gateway)
            options = ["--air", str(self._folder.air), "--name", modem, "--at", str(x), str(y)]
            options += ["--port", str(self._folder.of(gateway).port(MODEM))]
            program = program_of("modem", gateway)
            self._beside.append(await self._program(program, "hil.air.kiss_modem", options))
        if self._air.foreign:
            channel = map(str, (EU868.frequency, 125_000, self._air.spreading_factor))
            options = ["--air", str(self._folder.air), "--channel", *channel]
            options += ["--do", self._air.foreign, "--seed", str(self._seed)]
            self._beside.append(await self._program("foreign", "hil.air.foreign", options))

    def _note_sent(self, age: float) -> None:
        """Write an airtime record: `sent_before` seconds were sent, `age` seconds ago."""
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        sent = [[age, self._air.sent_before]]
        record = {"at": time.monotonic(), "bands": {"P": {"reserved": 0, "sent": sent}}}
        name = str(self._folder.port(MODEM)).strip("/").replace("/", "-")
        file = self._folder.data / f"airtime-{name}.json"
        file.write_text(json.dumps({"machine": machine, **record}))

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
        """Record the ether's reports until its process ends. Raises EndedError."""
        async for line in self._ether.lines():
            data = json.loads(line)
            self.take(data.pop("event"), data)
        await self._ether.process.wait()
        self._ether.check()

    async def stop(self) -> None:
        for program in reversed(self._beside):
            await program.stop()
        await self._ether.stop()

    def take(self, event: str, report: dict[str, Any]) -> None:
        match event:
            case "frame":
                self.enter(report)
            case "replayed":
                self._replayed(report)
            case "radio" if report["line"] in self._taps and len(self._gateways) > 1:
                self._history.add("air", event, **report, shared=self._shared[report["line"]])
            case _:
                self._history.add("air", event, **report)

    def enter(self, report: dict[str, Any]) -> None:
        """Record a frame of a board or of a gateway, after its end."""
        frame = bytes.fromhex(report["frame"])
        sender, *heard = (self._gateways.get(one, one) for one in (report["from"], *report["to"]))
        of_board = self._boards.get(int.from_bytes(frame[1:2]), NOBODY)
        down = report["from"] in self._gateways
        line, direction = (of_board, "down") if down else (sender, "up")
        self._shared[line] += not down and len(self._gateways.keys() & report["to"]) > 1
        if frame[0] == self._air.network and line == of_board != NOBODY:
            self._taps[line].feed(sender, frame, heard, report["t"])
        else:
            fields = {"direction": direction, "frame": report["frame"]}
            self._history.add("air", "strange", report["t"], line=line, **fields)

    def _replayed(self, report: dict[str, Any]) -> None:
        """Add to the history which part of a trace the ether has replayed on a link."""
        ends = report.pop("from"), report.pop("to")
        for line, direction in zip(ends, ("up", "down"), strict=True):
            if MODEM in ends and line in self._taps:
                self._history.add("air", "replayed", line=line, direction=direction, **report)
