"""One run of the glue, with the plan of our own run of the same bench.

In: a bench, of which it takes boards, readings, noise, power cuts and kills. Out: a history with the hops board and batch (the files), and
the checker's result. A kill of the gateway takes the broker and the scripts at the ports, since that is where they run.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import cbor2

from gateway import __version__
from gateway.errors import OncewayError
from hil.bench import Bench
from hil.checker import Result, check
from hil.counters import wait_until
from hil.faults import Fault
from hil.faults.line import LineWeather
from hil.history import History, read
from hil.plan import Plan
from hil.process import Child, Children, children

CAN = {"line-noise", "line-bursts", "line-trace", "board-power-cut", "gateway-kill", "uplink-kill"}
"""Kinds of faults that mean the same for the glue."""

DOWN_S = 0.5  # from a kill to the next start, as for ours
UP_S = 3.0  # until the scripts have connected
SETTLE_S = 8.0  # without a new row after which everything that comes has come


class GlueRun:
    """Use: `await GlueRun(…).go()`, once, in an empty folder. Raises OncewayError for a bench with faults that the glue does not know."""

    def __init__(self, bench: Bench, plan: Plan, folder: Path) -> None:
        if strange := [kind.kind for kind in bench.fault if kind.kind not in CAN]:
            raise OncewayError(f"the glue knows no {strange[0]}", bench.title, f"It knows {', '.join(sorted(CAN))}")
        self._bench = bench
        self._plan = plan
        self._folder = folder
        self._port = _free_port()
        self._history = History(folder / "history.jsonl")
        self._running: dict[str, Child] = {}
        self._wires: dict[str, Child] = {}

    async def go(self) -> Result:
        for name in ("files", "ports"):
            (self._folder / name).mkdir()
        bench = {**self._bench.model_dump(), "until": "batch"}
        self._history.add("rig", "run", version=__version__, bench=bench, plan=self._plan.to_json())
        async with children(self._folder / "logs") as programs:
            await self._start(programs)
            lanes = [asyncio.create_task(self._lane(faults, programs)) for faults in self._plan.lanes().values()]
            await wait_until(lambda: all(self._sampled(name) >= count for name, count in self._plan.readings.items()), 0.1)
            await asyncio.wait(lanes, timeout=SETTLE_S)
            await self._settle()
            for lane in lanes:
                lane.cancel()
        self._enter()
        self._history.close()
        return check(read(self._folder / "history.jsonl"))

    async def _start(self, programs: Children) -> None:
        for name, readings in self._plan.readings.items():
            board, port = self._folder / "ports" / f"{name}-board", self._folder / "ports" / name
            argv = ["--port", str(board), "--ledger", str(self._ledger(name)), "--readings", str(readings)]
            argv += ["--interval-ms", str(self._bench.interval_ms)]
            self._ledger(name).touch()
            self._running[name] = await self._python(programs, name, "hil.glue.board", *argv)
            await wait_until(board.exists)
            weather = [option for kind in self._bench.fault if isinstance(kind, LineWeather) for option in kind.options()]
            argv = ["--board", str(board), "--port", str(port), "--seed", f"{self._bench.seed}/{name}", *weather]
            self._wires[name] = await self._python(programs, f"wire-{name}", "hil.wire", *argv)
            await wait_until(port.is_symlink)
        await self._start_gateway(programs)
        await self._start_collector(programs)
        await asyncio.sleep(UP_S)
        for name in self._plan.readings:
            os.kill(self._running[name].pid, signal.SIGUSR2)

    async def _python(self, programs: Children, name: str, module: str, *argv: str) -> Child:
        return await programs.start(name, [sys.executable, "-m", module, *argv])

    async def _start_gateway(self, programs: Children) -> None:
        config = self._folder / "mosquitto.conf"
        place = f"persistence true\npersistence_location {self._folder}/\n"
        config.write_text(f"listener {self._port} 127.0.0.1\nallow_anonymous true\nuser {_user()}\n{place}")
        self._running["broker"] = await programs.start("broker", ["/usr/sbin/mosquitto", "-c", str(config)])
        for name in self._plan.readings:
            argv = ["--port", str(self._folder / "ports" / name), "--name", name, "--broker", str(self._port)]
            self._running[f"publish-{name}"] = await self._python(programs, f"publish-{name}", "hil.glue.publish", *argv)

    async def _start_collector(self, programs: Children) -> None:
        argv = ["--folder", str(self._folder / "files"), "--broker", str(self._port)]
        self._running["collect"] = await self._python(programs, "collect", "hil.glue.collect", *argv)

    async def _lane(self, faults: list[Fault], programs: Children) -> None:
        for fault in faults:
            await wait_until(lambda fault=fault: self._count(fault) >= fault.at, 0.02)  # type: ignore[misc]
            match fault.kind:
                case "board-power-cut":
                    os.kill(self._running[fault.target].pid, signal.SIGUSR1)
                case "gateway-kill":
                    await asyncio.gather(*(child.kill() for name, child in self._running.items() if name.startswith(("broker", "publish"))))
                    await asyncio.sleep(DOWN_S)
                    await self._start_gateway(programs)
                case "uplink-kill":
                    await self._running["collect"].kill()
                    await asyncio.sleep(DOWN_S)
                    await self._start_collector(programs)
            self._history.add(fault.target, "happened", fault=fault.id, kind=fault.text, evidence="")

    def _count(self, fault: Fault) -> int:
        """The glue keeps no count of what it has committed; what was sampled stands for it."""
        return self._sampled(fault.target) if fault.target in self._plan.readings else sum(map(self._sampled, self._plan.readings))

    def _ledger(self, name: str) -> Path:
        return self._folder / f"{name}.ledger"

    def _sampled(self, name: str) -> int:
        return self._ledger(name).read_bytes().count(b"\n")

    async def _settle(self) -> None:
        before: set[Path] | None = None

        def still() -> bool:
            nonlocal before
            last, before = before, set((self._folder / "files").iterdir())
            return last == before

        await wait_until(still, SETTLE_S)

    def _enter(self) -> None:
        """Truth and claim, in the form of any history: the boot stands for the incarnation."""
        for name in self._plan.readings:
            for line in self._ledger(name).read_text().splitlines():
                said = json.loads(line)
                key = {"device": name, "incarnation": said["boot"], "sequence": said["n"]}
                self._history.add("board", "publication", **key, kind="reading", records=[[f"{name}:v", said["v"], None]])
        position = 0
        for path in sorted((self._folder / "files").glob("*.jsonl")):
            for line in path.read_text().splitlines():
                position += 1
                self._history.add("batch", "publication", **claimed(json.loads(line)), origin="glue", position=position)
        for hop in ("board", "batch"):
            self._history.add(hop, "complete")
        self._history.add("rig", "end")


def claimed(row: dict[str, Any]) -> dict[str, Any]:
    """Identity and payload of a row in the files; a line that lost its identity on the way is a publication of nobody."""
    said: Any = json.loads(row["line"])
    said = said if isinstance(said, dict) else {}
    boot, number = (value if isinstance(value, int) else 0 for value in (said.get("boot"), said.get("n")))
    payload = cbor2.dumps([{-2: f"{row['device']}:", 0: "v", 2: said.get("v")}])
    return {"device": row["device"], "incarnation": boot, "sequence": number, "payload": payload.hex()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _user() -> str:
    """Whom mosquitto shall be when it is started by root: the one who can write its store here."""
    return "root" if os.geteuid() == 0 else str(os.environ.get("USER", "nobody"))
