"""The site of a run: the shipped programs, started by the command lines that a user types, in one
folder.

In: a folder, devices with their ports, a bench. Out: configuration, running gateway, uplink and
ingest, and hands to kill them.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from gateway.config import ConfigError
from gateway.config import load as load_config
from gateway.errors import OncewayError
from hil.bench.bench import Bench
from hil.bench.settings import merged, own_batch_count
from hil.faults.ingest import SECOND
from hil.faults.landing_place import LandingPlace
from hil.faults.loop_disk import LoopDisk
from hil.faults.preload import Machine
from hil.observe.folder import Folder
from hil.programs.air import MODEM
from hil.programs.process import Child, Children, EndedError
from hil.programs.sd_notify import Readiness

SERVICES = ("gateway", "uplink", "ingest", SECOND)
"""The programs under test. One that ends by itself fails the run."""
ENDS_WELL = ("gateway", "uplink")
"""Those whose exit code is 0 when they are asked to end."""
READY_WITHIN = 30.0  # s, on a machine that is busy starting Spark
COMMAND_WITHIN = 60.0  # s
SHORT_LIVED_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""For a Spark that lives for a minute: the second compiler takes a third of the time to the first
micro-batch, and never gives it back.
"""


def onceway() -> str:
    """The console script of this installation."""
    return str(Path(sys.executable).with_name("onceway"))


def site_name(bench: Bench) -> str:
    """Of the gateway."""
    return str(bench.config.get("gateway", {}).get("name", "site"))


def batch_count(bench: Bench) -> int | None:
    """The most rows of a batch; None if that is no number, which the gateway will refuse."""
    count = bench.config.get("uplink", {}).get("batch_count", own_batch_count(bench.readings))
    return count if isinstance(count, int) else None


def write_config(folder: Folder, devices: list[str], bench: Bench, port: int | None = None) -> None:
    """port: where commands come in. Raises OncewayError if the gateway would refuse it, as that of
    a bench that was recorded by another version.
    """
    data, landing = str(folder.data), f"file://{folder.mount}"
    sections = merged(bench.config, bench.readings, data, landing, bool(port))
    lines = []
    for name, settings in sections.items():
        lines += [
            f"[{name}]",
            *(f"{key} = {json.dumps(value)}" for key, value in settings.items()),
            "",
        ]
    if bench.air:
        numbers = ", ".join(f'"{name}" = {number}' for name, number in bench.by_air.items())
        lines += ["[[lora]]", f"port = {json.dumps(str(folder.port(MODEM)))}"]
        lines += [f"spreading_factor = {bench.air.spreading_factor}"]
        lines += [f"network = {bench.air.network}", f"boards = {{{numbers}}}", ""]
    for device in [name for name in devices if name not in bench.by_air]:
        lines += ["[[serial]]", f"port = {json.dumps(str(folder.port(device)))}", ""]
    if port:
        lines += ["[[listener]]", f'bind = "127.0.0.1:{port}"', "anonymous = true", ""]
    folder.config.write_text("\n".join(lines))
    try:
        load_config(folder.config)
    except ConfigError as error:
        raise OncewayError(error.what, error.where, "Look at [config] of the bench") from error


def make_folders(folder: Folder) -> None:
    for made in (folder.data, folder.landing, folder.table.parent, folder.ports):
        made.mkdir(parents=True, exist_ok=True)


class Site:
    """Gateway, uplink and ingest as processes. disk: under the gateway's data, if its power can be
    cut. hands: held by who takes processes down and brings them up again, or works on the gateway's
    disk, since there is one pair of them.
    """

    def __init__(
        self, folder: Folder, bench: Bench, children: Children, disk: LoopDisk | None = None
    ) -> None:
        self.folder = folder
        self.disk = disk
        self.hands = asyncio.Lock()
        self._bench = bench
        self._children = children
        self.running: dict[str, Child] = {}
        self._readiness: dict[str, Readiness] = {}
        self._machines: dict[str, Machine] = {}
        self.landing = LandingPlace(folder.landing, folder.mount, folder.key)
        self._trusted = False

    def machine(self, program: str) -> Machine:
        """The one that misbehaves under a program, and that below what it writes."""
        if program not in self._machines:
            below = {
                "gateway": self.folder.data,
                "uplink": self.folder.landing,
                "ingest": self.folder.table.parent,
            }[program]
            self._machines[program] = Machine(self.folder.root / "machines" / program, below)
        return self._machines[program]

    def _env(self, program: str) -> Mapping[str, str]:
        """Of a program, if a fault of the bench wants a machine under it."""
        return (
            self.machine(program).env
            if any(kind.machine_of == program for kind in self._bench.fault)
            else {}
        )

    async def store(self, *words: str) -> None:
        """`onceway store …` for the gateway's store, as a user types it. Raises OncewayError."""
        line = [onceway(), "store", *words, "--config", str(self.folder.config)]
        await self._children.run(f"store-{words[0]}", line, COMMAND_WITHIN)

    async def start_gateway(self) -> None:
        await self._start_service(
            "gateway", [onceway(), "gateway", "run", "--config", str(self.folder.config)]
        )

    async def start_uplink(self) -> None:
        await self._start_service(
            "uplink", [onceway(), "uplink", "run", "--config", str(self.folder.config)]
        )

    async def start_ingest(self, name: str = "ingest", checkpoint: Path | None = None) -> None:
        """By the very line that `onceway ingest command` prints for the user, as a stream.
        checkpoint: not the site's own.
        """
        if not self._trusted:
            await self._trust()
        place = ["--landing", str(self.folder.landing), "--table", str(self.folder.table)]
        place += ["--checkpoint", str(checkpoint or self.folder.checkpoint)]
        pace = ["--every", "1s", "--rows", str(max(2, self._bench.readings // 3)), "--memory", "1g"]
        line = await self._children.run(
            f"{name}-command", [onceway(), "ingest", "command", *place, *pace], COMMAND_WITHIN
        )
        env = {**SHORT_LIVED_JAVA, **self._env(name)}
        self.running[name] = await self._children.start(
            name, ["/bin/sh", "-c", f"exec env {line}"], env=env
        )

    async def _trust(self) -> None:
        """Give the centre the gateway's key, by the commands that a user types once."""
        config, table = str(self.folder.config), str(self.folder.table)
        key = self.folder.root / "uplink.pub"
        key.write_text(
            await self._children.run(
                "uplink-key", [onceway(), "uplink", "key", "--config", config], COMMAND_WITHIN
            )
        )
        line = [onceway(), "ingest", "trust", "--table", table, str(key)]
        await self._children.run("ingest-trust", line, COMMAND_WITHIN)
        self._trusted = True

    def check(self) -> None:
        """Raise EndedError if one of them has ended and nobody here ended it."""
        for child in self.running.values():
            child.check()

    async def stop(self) -> list[EndedError]:
        """Ask all to end. Returns those of ours that did not end well when they were asked to."""
        codes = {name: await child.stop() for name, child in self.running.items()}
        return [
            EndedError(name, code, self.running[name].log, "did not end well when it was asked to")
            for name, code in codes.items()
            if name in ENDS_WELL and code
        ]

    async def _start_service(self, name: str, argv: list[str]) -> None:
        self._readiness[name] = readiness = Readiness(name)
        self.running[name] = child = await self._children.start(
            name, argv, env={**readiness.env, **self._env(name)}
        )
        await readiness.wait(child, READY_WITHIN)
