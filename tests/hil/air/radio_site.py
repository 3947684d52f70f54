"""A site of processes: the ether, a modem, a gateway, and boards that are programs of this
machine.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from intelhex import IntelHex

from gateway.boards.admission import FILE
from hil.boards.simulator import BUILD, Air, SimulatedBoard
from provisioning.boards import board as kind
from provisioning.identity import Identity
from provisioning.radio_plan import RadioPlan, radio_page
from provisioning.registry import Registry
from tests.firmware.eeprom import with_interval
from tests.service.process import GatewayProcess, start

BOARD = BUILD / "host" / "lora"
SENSOR = BUILD / "uno" / "sensor-lora.hex"
KEY = bytes(range(1, 17))
READY_S = 60


class RadioSite:
    """A gateway with a modem, radio boards, and an ether. factor: spreading factor. boards: names
    of the boards, whose numbers count from 1. modem: `kiss` or `rylr998`, for the gateway and the
    boards. text: further text of the gateway's configuration.
    """

    def __init__(
        self, folder: Path, *boards: str, factor: int = 7, modem: str = "kiss", text: str = ""
    ) -> None:
        self.folder = folder
        self._modem = modem
        self._factor = factor
        self._boards = {name: number for number, name in enumerate(boards, start=1)}
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.gateway: GatewayProcess | None = None
        registry = Registry(folder / FILE)
        for name in boards:
            registry.finish(registry.begin(Identity(name, KEY), "uno", "/dev/x"), None)
        self._config = folder / "gateway.toml"
        numbers = ", ".join(f'"{name}" = {number}' for name, number in self._boards.items())
        self._config.write_text(
            f'[gateway]\nname = "g"\ndata = "{folder}"\n'
            '[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n'
            f'[[lora]]\nport = "{folder}/modem"\nmodem = "{modem}"\n'
            f"spreading_factor = {factor}\nnetwork = 7\n"
            f"boards = {{{numbers}}}\n"
            f'[uplink]\nlanding = "file:///landing"\n[spool]\ntopics = ["sensors/#"]\n{text}'
        )

    async def begin(self, *air: str) -> None:
        """Start the ether and the modem."""
        await self.begin_without_modem(*air)
        await self.plug_in()

    async def begin_without_modem(self, *air: str) -> None:
        report = self.folder / "air.json"
        await self._python("air", "hil.air.server", "--socket", "--report", str(report), *air)

    async def plug_in(self, kind: str = "") -> None:
        """Plug in the gateway's modem. kind: `kiss` or `rylr998`; "": the configured kind."""
        port = str(self.folder / "modem")
        module = "hil.air.rylr998" if (kind or self._modem) == "rylr998" else "hil.air.kiss_modem"
        await self._python("modem", module, "--air", "--port", port)

    async def plug_in_another(self, name: str, x: float) -> None:
        """Plug in a KISS modem that is not the gateway's."""
        options = ("--name", name, "--at", str(x), "0", "--port", str(self.folder / name))
        await self._python(name, "hil.air.kiss_modem", "--air", *options)

    async def start_gateway(self) -> GatewayProcess:
        self.gateway = await start("--config", str(self._config))
        await self.gateway.ready()
        return self.gateway

    async def start_board(self, name: str, x: float = 100.0, y: float = 0.0) -> None:
        page = self.folder / f"{name}.page"
        plan = self._plan(name)
        page.write_bytes(radio_page(Identity(name, KEY), plan))
        self._running[name] = await asyncio.create_subprocess_exec(
            BOARD,
            *("--eeprom", self.folder / f"{name}.eeprom", "--identity", page),
            *("--radio", self.folder / "air.socket", "--name", name, "--x", str(x), "--y", str(y)),
            *("--modem", self._modem),
            stdin=asyncio.subprocess.DEVNULL,
        )

    def _plan(self, name: str) -> RadioPlan:
        return RadioPlan(network=7, device=self._boards[name], factor=self._factor)

    def uno(self, name: str, x: float = 100.0, y: float = 0.0) -> SimulatedBoard:
        """Return a simulated Uno with an SX1276 and the sensor sketch, which samples once a
        second.
        """
        image = IntelHex(str(SENSOR))
        image.puts(kind("uno").identity, radio_page(Identity(name, KEY), self._plan(name)))
        image.write_hex_file(str(self.folder / f"{name}.hex"))
        place = self.folder / name
        place.mkdir()
        (place / "eeprom.bin").write_bytes(with_interval(1000))
        air = Air(self.folder / "air.socket", name, (x, y))
        return SimulatedBoard(place, firmware=self.folder / f"{name}.hex", air=air)

    async def stop(self, name: str, number: int = signal.SIGKILL) -> int:
        """End a process. Return its exit code."""
        process = self._running.pop(name)
        if process.returncode is None:
            process.send_signal(number)
        return await asyncio.wait_for(process.wait(), READY_S)

    def signal(self, name: str, number: int) -> None:
        self._running[name].send_signal(number)

    async def frames(self, count: int) -> list[dict[str, Any]]:
        """Read `count` reports of the ether, and return those of frames. The ether must have been
        started with `--tell`.
        """
        out = self._running["air"].stdout
        assert out is not None
        async with asyncio.timeout(READY_S * 3):
            told = [json.loads(await out.readline()) for _ in range(count)]
        return [one for one in told if one["event"] == "frame"]

    async def rows(self, device: str, least: int, seconds: float) -> list[tuple[int, bytes]]:
        """Wait until the spool has at least `least` rows of a board. Return sequence and payload of
        each.
        """
        async with asyncio.timeout(seconds):
            while True:
                if len(found := self._rows(device)) >= least:
                    return found
                await asyncio.sleep(0.2)

    def _rows(self, device: str) -> list[tuple[int, bytes]]:
        place = f"file:{self.folder / 'gateway.db'}?mode=ro"
        database = sqlite3.connect(place, uri=True, timeout=5)
        try:
            query = "SELECT sequence, payload FROM spool WHERE client = ? ORDER BY id"
            return database.execute(query, (device,)).fetchall()
        finally:
            database.close()

    async def end(self) -> tuple[int, dict[str, Any]]:
        """End all processes. Return the ether's exit code, or -1 if a test has stopped it, and its
        report.
        """
        for name in set(self._running) - {"air"}:
            await self.stop(name)
        if self.gateway is not None:
            await self.gateway.end()
        code = await self.stop("air", signal.SIGTERM) if "air" in self._running else -1
        return code, json.loads((self.folder / "air.json").read_text())

    async def _python(self, name: str, module: str, socket: str, *options: str) -> None:
        process = self._running[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, socket, str(self.folder / "air.socket"), *options),
            stdout=asyncio.subprocess.PIPE,
            env=dict(os.environ),
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), READY_S) == b"ready\n"
