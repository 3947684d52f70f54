"""The site of a run: the product's programs, started with a user's commands, in one folder. In: a
folder, devices with their ports, a bench. Out: running gateways, each with its uplink, the ingest,
and ways to kill them.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from gateway.errors import OncewayError
from hil.bench.bench import Bench
from hil.faults.ingest import SECOND
from hil.faults.landing_place import LandingPlace
from hil.faults.loop_disk import LoopDisk
from hil.faults.preload import Machine
from hil.observe.folder import Folder
from hil.programs.process import Child, Children, EndedError, Readiness, free_port

OF_GATEWAY = ("gateway", "uplink")
"""Programs of each gateway, which end with exit code 0 after SIGTERM."""
OF_CENTRE = ("ingest", SECOND)
READY_WITHIN = 30.0  # s, on a machine that is busy starting Spark
COMMAND_WITHIN = 60.0  # s
LINKS_WITHIN = 60.0  # s, on a busy machine
SHORT_LIVED_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""Settings for a Spark that runs for a minute. Java's second compiler would take a third of the
time until the first micro-batch, and pays off only in longer runs."""


Disks = tuple[LoopDisk | None, LoopDisk | None, LoopDisk | None]
NO_DISKS = None, None, None


def onceway() -> str:
    """Return the path of this installation's console script."""
    return str(Path(sys.executable).with_name("onceway"))


class MemberLinks:
    """The network between the gateways of a site, as a process that can cut it and slow it down. Of
    two members, the one with the lower name connects (gateway/site/links/net.py). addresses:
    HOST:PORT of each gateway, by name.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = dict(addresses)
        self._ports = {ends: free_port() for ends in combinations(sorted(addresses), 2)}
        self._done: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def seen_by(self, name: str) -> dict[str, str]:
        """Return HOST:PORT at which the member `name` reaches each member, by member."""
        ways = {far: port for (near, far), port in self._ports.items() if near == name}
        return self._addresses | {far: f"127.0.0.1:{port}" for far, port in ways.items()}

    async def start(self, children: Children) -> None:
        """Start the network, and wait until gateways can connect. Raises OncewayError."""
        argv = [sys.executable, "-m", "hil.wire.members"]
        for (near, far), port in self._ports.items():
            target = self._addresses[far].rpartition(":")[2]
            argv += ["--link", f"{near}:{far}:{port}:{target}"]
        self._child: Child = await children.start("members", argv, pipe=True, orders=True)
        async with asyncio.timeout(LINKS_WITHIN):
            async for line in self._child.lines():
                if json.loads(line)["event"] == "ready":
                    return
        raise OncewayError("the network between the gateways did not start", str(self._child.log))

    async def order(self, do: str, member: str, **more: float) -> dict[str, Any]:
        self._child.order(json.dumps({"do": do, "member": member, **more}).encode())
        return await self._done.get()

    async def follow(self) -> None:
        """Read the program's reports until it ends. Raises EndedError if it ended by itself."""
        async for line in self._child.lines():
            self._done.put_nowait(json.loads(line))
        await self._child.process.wait()
        self._child.check()

    async def stop(self) -> None:
        await self._child.stop()


class Member:
    """One gateway and its uplink. disks: simulated disks of data, landing place and tables, whose
    power the rig can cut; None: an ordinary folder.
    """

    def __init__(self, site: "Site", folder: Folder, disks: Disks = NO_DISKS) -> None:
        self.name = folder.gateway
        self.folder = folder
        self.disk, self.landing_disk, self.centre_disk = disks
        self.process_lock = site.process_lock
        keys = {name: folder.of(name).key for name in site.bench.gateways}
        self.landing = LandingPlace(folder.landing, folder.mount, folder.key, keys)
        self._site = site
        self.dead = False
        """Whether the gateway is gone for good."""

    @property
    def copied(self) -> bool:
        return self._site.bench.copies > 1

    @property
    def links(self) -> MemberLinks:
        assert self._site.links is not None  # noqa: S101 - a single gateway has no faults of links
        return self._site.links

    @property
    def running(self) -> Mapping[str, Child]:
        """Return the programs of the run: those of this member by kind, all others by name."""
        kinds = {program_of(kind, self.name): kind for kind in OF_GATEWAY}
        return {kinds.get(name, name): child for name, child in self._site.running.items()}

    def machine(self, kind: str) -> Machine:
        below = {
            "gateway": self.folder.data,
            "uplink": self.folder.landing,
            "ingest": self.folder.table.parent,
        }[kind]
        return self._site.machine(program_of(kind, self.name), below)

    async def store(self, *words: str) -> None:
        await self.command("store", *words)

    async def command(self, *words: str) -> str:
        """Run `onceway …` for this gateway, and return its output. Raises OncewayError."""
        line = [onceway(), *words, "--config", str(self.folder.config)]
        name = program_of("-".join(words[:2]), self.name)
        return await self._site.children.run(name, line, COMMAND_WITHIN)

    async def die(self, *, card_too: bool) -> Path:
        victims = [self.running[kind] for kind in OF_GATEWAY]
        for child in victims:
            child.check()  # raises an error if the program has ended by itself
            child.pause()
        for child in victims:
            await child.kill()
        for kind in OF_GATEWAY:
            del self._site.running[program_of(kind, self.name)]
        self.dead = True
        if not card_too:
            return self.folder.data
        return self.folder.data.rename(self.folder.root / f"dead-{self.name}")

    async def land(self, data: Path) -> None:
        await self.command("spool", "land", str(data))

    async def start_gateway(self) -> None:
        await self._start("gateway")

    async def start_uplink(self) -> None:
        await self._start("uplink")

    async def _start(self, kind: str) -> None:
        line = [onceway(), kind, "run", "--config", str(self.folder.config)]
        machine = self.machine(kind) if self._site.needs_faulty_machine(kind) else None
        await self._site.start_service(program_of(kind, self.name), line, machine)

    async def start_ingest(self, name: str = "ingest", checkpoint: Path | None = None) -> None:
        await self._site.start_ingest(name, checkpoint)


class Site:
    """Gateways, uplinks and ingest as processes. process_lock: lock for stopping and restarting
    processes, and for work on a gateway's disk. members: the gateways by name; a single gateway has
    the name "".
    """

    def __init__(
        self, folder: Folder, bench: Bench, children: Children, disks: Disks = NO_DISKS
    ) -> None:
        self.folder = folder
        self.bench = bench
        self.children = children
        self.process_lock = asyncio.Lock()
        self.running: dict[str, Child] = {}
        self._readiness: dict[str, Readiness] = {}
        self._machines: dict[str, Machine] = {}
        self._trusted = False
        self.links: MemberLinks | None = None
        """Links between the gateways, if there are several."""
        self.members = {name: Member(self, folder.of(name), disks) for name in bench.gateways}

    def machine(self, program: str, below: Path) -> Machine:
        """Return a program's `Machine`, the same at each call. below: folder of its faulty disk."""
        if program not in self._machines:
            self._machines[program] = Machine(self.folder.root / "machines" / program, below)
            for fault in self.bench.fault:
                if fault.machine_of == program:
                    fault.prepare(self._machines[program])
        return self._machines[program]

    def stale(self, program: str) -> int:
        """Return how often a program wrote on in a log without a sync; 0 if this is not counted."""
        return self._machines[program]["stale"] if program in self._machines else 0

    def needs_faulty_machine(self, kind: str) -> bool:
        """Whether a fault of the bench needs this program to run on a faulty machine. kind:
        "gateway", "uplink" or "ingest".
        """
        copies = kind == "gateway" and "site" in self.bench.config  # their log must be synced
        return copies or any(fault.machine_of == kind for fault in self.bench.fault)

    async def start_ingest(self, name: str = "ingest", checkpoint: Path | None = None) -> None:
        """Start the ingest as a stream, with the command that `onceway ingest command` prints.
        checkpoint: folder to use instead of the site's checkpoint.
        """
        if not self._trusted:
            await self._trust()
        place = ["--landing", str(self.folder.landing), "--table", str(self.folder.table)]
        place += ["--checkpoint", str(checkpoint or self.folder.checkpoint)]
        pace = ["--every", "1s", "--rows", str(max(2, self.bench.readings // 3)), "--memory", "1g"]
        line = await self.children.run(
            f"{name}-command", [onceway(), "ingest", "command", *place, *pace], COMMAND_WITHIN
        )
        machine = (
            self.machine(name, self.folder.table.parent)
            if self.needs_faulty_machine(name)
            else None
        )
        env = {**SHORT_LIVED_JAVA, **(machine.env if machine else {})}
        self.running[name] = await self.children.start(
            name, ["/bin/sh", "-c", f"exec env {line}"], env=env
        )

    async def _trust(self) -> None:
        """Give the centre the gateways' keys, with the commands that a user types once."""
        for member in self.members.values():
            key = self.folder.root / f"{program_of('uplink', member.name)}.pub"
            key.write_text(await member.command("uplink", "key"))
            line = [onceway(), "ingest", "trust", "--table", str(self.folder.table), str(key)]
            name = program_of("ingest-trust", member.name)
            await self.children.run(name, line, COMMAND_WITHIN)
        self._trusted = True

    def check(self) -> None:
        """Raise EndedError if a program ended by itself."""
        for child in self.running.values():
            child.check()

    async def stop(self) -> list[EndedError]:
        """Ask all programs to end. Return an error for each gateway or uplink that failed."""
        codes = {name: await child.stop() for name, child in self.running.items()}
        return [
            EndedError(name, code, self.running[name].log, "failed when it was asked to end")
            for name, code in codes.items()
            if name not in OF_CENTRE and code
        ]

    async def start_service(self, name: str, argv: list[str], machine: Machine | None) -> None:
        self._readiness[name] = readiness = Readiness(name)
        self.running[name] = child = await self.children.start(
            name, argv, env={**readiness.env, **(machine.env if machine else {})}
        )
        await readiness.wait(child, READY_WITHIN)


def program_of(kind: str, gateway: str) -> str:
    """Return the name of a program in the history and logs. kind: such as `uplink`."""
    return f"{kind}-{gateway}" if gateway and kind not in OF_CENTRE else kind


def services(bench: Bench) -> set[str]:
    """Return the names of the programs under test. A run fails if one of them ends by itself."""
    of_gateways = {program_of(kind, name) for name in bench.gateways for kind in OF_GATEWAY}
    return of_gateways | set(OF_CENTRE)
