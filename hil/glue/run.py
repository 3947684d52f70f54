"""One run of the glue, with the plan of Onceway's run of the same bench. In: a bench. Only its
boards, readings, noise, power cuts and kills are used. Out: a history with the hops board, batch
(the files) and table, and the checker's results for files and table. A kill of the gateway kills
the broker and the scripts at the ports, because they run there.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
from deltalake import DeltaTable

from gateway import __version__
from gateway.errors import OncewayError
from gateway.ingest.command import build
from hil.bench.bench import Bench
from hil.bench.plan import Plan
from hil.faults import Fault
from hil.faults.line import LineWeather
from hil.glue.evidence import harmed, newest_start
from hil.judge.checker import Result, check
from hil.observe.counters import wait_until
from hil.observe.history import History, read
from hil.observe.ingest_progress import IngestProgress
from hil.programs.process import Child, Children, children, free_port
from hil.programs.site import SHORT_LIVED_JAVA

CAN = {
    "line-noise",
    "line-bursts",
    "line-trace",
    "board-power-cut",
    "gateway-kill",
    "uplink-kill",
    "ingest-kill",
    "checkpoint-lost",
}
"""Kinds of faults that mean the same for the glue as for Onceway."""

SCRIPT = Path(__file__).with_name("stream.py")
DOWN_S = 0.5  # from a kill to the restart, as for Onceway
UP_S = 3.0  # until the scripts have connected
LOG_EVERY = 0.5  # s between looks at the log of a wire
SETTLE_S = 8.0  # time without a new row after which the run is over
SPARK_WITHIN = 300.0  # s until Spark must have read all files, and met its faults


class GlueRun:
    """A run of the glue. Use: `await GlueRun(…).go()`, once, in an empty folder. Raises
    OncewayError for a bench with parts that the glue does not support.
    """

    def __init__(self, bench: Bench, plan: Plan, folder: Path) -> None:
        if strange := [kind.kind for kind in bench.fault if kind.kind not in CAN]:
            raise OncewayError(
                f"the glue does not support the fault {strange[0]}",
                bench.title,
                f"It supports {', '.join(sorted(CAN))}",
            )
        if bench.board or bench.client:
            raise OncewayError(
                "the glue supports only simulated boards: leave out [[board]] and [[client]]",
                bench.title,
            )
        self._bench = bench
        self._plan = plan
        self._folder = folder
        self._port = free_port()
        self._history = History(folder / "history.jsonl")
        self._to_table = bench.until == "table"
        self._table, self._checkpoint = folder / "table", folder / "checkpoint"
        self._progress = IngestProgress(self._checkpoint, self._table)
        self._running: dict[str, Child] = {}
        self._wires: dict[str, Child] = {}

    async def go(self) -> dict[str, Result]:
        """Run the glue, and return the judge's result by claim: `batch` (the files), and `table` if
        the bench has a table.
        """
        for name in ("files", "ports"):
            (self._folder / name).mkdir()
        self._history.add(
            "rig",
            "run",
            version=__version__,
            bench=self._bench.model_dump(),
            plan=self._plan.to_json(),
            hops=("board", "batch", "table"),
        )
        async with children(self._folder / "logs") as programs:
            await self._start(programs)
            lanes = [
                asyncio.create_task(self._lane(faults, programs))
                for faults in self._plan.lanes().values()
            ]
            try:
                await wait_until(
                    lambda: all(
                        self._sampled(name) >= count for name, count in self._plan.readings.items()
                    ),
                    0.1,
                )
                with suppress(TimeoutError):
                    async with asyncio.timeout(SPARK_WITHIN if self._to_table else SETTLE_S):
                        await wait_until(lambda: all(lane.done() for lane in lanes))
                await self._settle()
                for lane in lanes:
                    if lane.done():
                        lane.result()  # raises its error
            finally:
                for lane in lanes:
                    lane.cancel()  # the checker reports faults that did not happen
                # otherwise a lane could start a program after all programs have ended
                await asyncio.gather(*lanes, return_exceptions=True)
        self._enter()
        self._history.close()
        run, *events = read(self._folder / "history.jsonl")
        claims = ("batch", "table") if self._to_table else ("batch",)
        bench = run.data["bench"]
        return {
            claim: check(
                [replace(run, data={**run.data, "bench": {**bench, "until": claim}}), *events]
            )
            for claim in claims
        }

    async def _start(self, programs: Children) -> None:
        for name, readings in self._plan.readings.items():
            board, port = self._folder / "ports" / f"{name}-board", self._folder / "ports" / name
            argv = [
                "--port",
                str(board),
                "--ledger",
                str(self._ledger(name)),
                "--readings",
                str(readings),
            ]
            argv += ["--interval-ms", str(self._bench.interval_ms)]
            self._ledger(name).touch()
            self._running[name] = await self._python(programs, name, "hil.glue.board", *argv)
            await wait_until(board.exists)
            weather = [
                option
                for kind in self._bench.fault
                if isinstance(kind, LineWeather) and kind.breaks(name)
                for option in kind.options()
            ]
            argv = [
                "--board",
                str(board),
                "--port",
                str(port),
                "--seed",
                f"{self._bench.seed}/{name}",
                *weather,
            ]
            self._wires[name] = await self._python(programs, f"wire-{name}", "hil.wire", *argv)
            await wait_until(port.is_symlink)
        if self._to_table:
            await self._start_stream(programs)  # Spark starts slowly
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
        config.write_text(
            f"listener {self._port} 127.0.0.1\nallow_anonymous true\nuser {_user()}\n{place}"
        )
        self._running["broker"] = await programs.start(
            "broker", ["/usr/sbin/mosquitto", "-c", str(config)]
        )
        for name in self._plan.readings:
            argv = [
                "--port",
                str(self._folder / "ports" / name),
                "--name",
                name,
                "--broker",
                str(self._port),
            ]
            self._running[f"publish-{name}"] = await self._python(
                programs, f"publish-{name}", "hil.glue.publish", *argv
            )

    async def _start_collector(self, programs: Children) -> None:
        argv = ["--folder", str(self._folder / "files"), "--broker", str(self._port)]
        self._running["collect"] = await self._python(
            programs, "collect", "hil.glue.collect", *argv
        )

    async def _start_stream(self, programs: Children) -> None:
        command = build(
            str(SCRIPT),
            [str(self._folder / "files"), str(self._table), str(self._checkpoint)],
            memory="1g",
        ).submitted()
        self._running["stream"] = await programs.start(
            "stream", command.arguments, env={**command.environment, **SHORT_LIVED_JAVA}
        )

    async def _restart_stream(self, programs: Children, *, forget: bool) -> str:
        """Kill the stream with SIGKILL, in a micro-batch if one begins in time, and restart it.
        forget: whether its checkpoint is removed. Return the evidence, or "" if the stream did not
        run.
        """
        if forget:
            await wait_until(lambda: self._progress.ended >= 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await wait_until(lambda: self._progress.in_batch)
        within = "in" if self._progress.in_batch else "behind"
        killed = await self._kill("stream")
        ended = self._progress.ended + 1
        await asyncio.sleep(DOWN_S)
        if forget:
            shutil.rmtree(self._checkpoint)
        await self._start_stream(programs)
        lost = f"; a checkpoint of {ended} micro-batches removed" if forget else ""
        return f"{killed} {within} micro-batch {self._progress.begun}{lost}" if killed else ""

    async def _kill(self, *names: str) -> str:
        """Kill all programs whose names begin with one of `names`, with SIGKILL. Return a text that
        names the programs that it ended.
        """
        victims = [child for name, child in self._running.items() if name.startswith(names)]
        alive = [child for child in victims if child.running]
        await asyncio.gather(*(child.kill() for child in victims))
        killed = [child for child in alive if child.process.returncode == -signal.SIGKILL]
        return ", ".join(f"{child.name} ({child.pid}) killed" for child in killed)

    async def _lane(self, faults: list[Fault], programs: Children) -> None:
        for fault in faults:
            await wait_until(lambda fault=fault: self._count(fault) >= fault.at, 0.02)  # type: ignore[misc]
            if evidence := await self._inject(fault, programs):
                self._history.add(
                    fault.target, "happened", fault=fault.id, kind=fault.text, evidence=evidence
                )

    async def _inject(self, fault: Fault, programs: Children) -> str:
        """Cause a fault. Return its evidence, or "" if the fault did not happen."""
        match fault.kind:
            case "board-power-cut":
                return await self._cut(fault.target)
            case "gateway-kill":
                killed = await self._kill("broker", "publish")
                await asyncio.sleep(DOWN_S)
                await self._start_gateway(programs)
                return killed
            case "uplink-kill":
                killed = await self._kill("collect")
                await asyncio.sleep(DOWN_S)
                await self._start_collector(programs)
                return killed
            case "ingest-kill" | "checkpoint-lost":
                return await self._restart_stream(programs, forget=fault.kind == "checkpoint-lost")
            case _:
                return await self._weather(fault)

    async def _cut(self, name: str) -> str:
        """Cut the power of a board, and return the evidence: the number of its next start."""
        before = newest_start(self._ledger(name))
        os.kill(self._running[name].pid, signal.SIGUSR1)
        await wait_until(lambda: newest_start(self._ledger(name)) > before)
        return f"the board samples in start {newest_start(self._ledger(name))}"

    async def _weather(self, fault: Fault) -> str:
        """Wait until a fault of the whole run has done each kind of harm. Return the counts."""
        [harms] = [
            kind.harms()
            for kind in self._bench.fault
            if isinstance(kind, LineWeather)
            and (kind.kind, kind.table) == (fault.kind, fault.table)
        ]
        log = self._wires[fault.target].log
        await wait_until(lambda: all(harmed(log)[harm] for harm in harms), LOG_EVERY)
        return ", ".join(f"{harm}: {harmed(log)[harm]}" for harm in harms)

    def _count(self, fault: Fault) -> int:
        """Return the present count for a fault's place: appends to the table, or samples. The
        samples of the target board count, or those of all boards. They stand for spooled rows.
        """
        if fault.counter == "appends":
            return self._progress.appends
        return (
            self._sampled(fault.target)
            if fault.target in self._plan.readings
            else sum(map(self._sampled, self._plan.readings))
        )

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
        if self._to_table:
            with suppress(TimeoutError):
                async with asyncio.timeout(SPARK_WITHIN):
                    await wait_until(self._all_ingested, 0.5)

    def _all_ingested(self) -> bool:
        """Return whether the stream has read every file, and has ended the micro-batch with the
        last file. Spark writes three things to the checkpoint, in this order: a numbered list of
        files; a micro-batch with its last list's number; the end of the micro-batch.
        """
        logs = {
            int(path.name.removesuffix(".compact")): path
            for path in (self._checkpoint / "sources" / "0").glob("[0-9]*")
        }
        if not logs or self._progress.ended < 0 or self._progress.in_batch:
            return False
        read = {
            name
            for path in logs.values()
            for name in re.findall(r"part-\d+\.jsonl", path.read_text())
        }
        whole = {path.name for path in (self._folder / "files").glob("*.jsonl")}
        offset = json.loads(
            (self._checkpoint / "offsets" / str(self._progress.ended)).read_text().splitlines()[-1]
        )
        return read >= whole and int(offset["logOffset"]) >= max(logs)

    def _enter(self) -> None:
        """Record the samples of the boards, and the rows of the files and of the table. The number
        of a board's start stands for the incarnation.
        """
        for name in self._plan.readings:
            for line in self._ledger(name).read_text().splitlines():
                fields = json.loads(line)
                key = {"device": name, "incarnation": fields["boot"], "sequence": fields["n"]}
                self._history.add(
                    "board",
                    "publication",
                    **key,
                    kind="reading",
                    records=[[f"{name}:v", fields["v"], None]],
                )
        position = 0
        for path in sorted((self._folder / "files").glob("*.jsonl")):
            for line in path.read_text().splitlines():
                position += 1
                self._history.add(
                    "batch",
                    "publication",
                    **claimed(json.loads(line)),
                    origin="glue",
                    position=position,
                )
        if self._to_table:
            for row in DeltaTable(str(self._table)).to_pyarrow_table().to_pylist():
                self._history.add("table", "publication", **claimed(row), origin="glue", position=0)
        for hop in ("board", "batch", "table"):
            self._history.add(hop, "complete")
        self._history.add("rig", "end")


def claimed(row: dict[str, Any]) -> dict[str, Any]:
    """Return the identity and payload of a row that the glue has written. If `boot` or `n` in the
    row's line is not an integer, the incarnation or the sequence is 0.
    """
    fields: Any = json.loads(row["line"])
    fields = fields if isinstance(fields, dict) else {}
    boot, number = (
        value if isinstance(value, int) else 0 for value in (fields.get("boot"), fields.get("n"))
    )
    payload = cbor2.dumps([{-2: f"{row['device']}:", 0: "v", 2: fields.get("v")}])
    return {
        "device": row["device"],
        "incarnation": boot,
        "sequence": number,
        "payload": payload.hex(),
    }


def _user() -> str:
    """Return the user for mosquitto: the rig's own, who can write in the folder of the run."""
    return "root" if os.geteuid() == 0 else str(os.environ.get("USER", "nobody"))
