"""A client as the rig sees it: its table in a bench, its process, its journal. In: a `[[client]]`
table, the port of the gateway's listener. Out: events of hop `board` in the history, as from a
board's ledger.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gateway.errors import OncewayError
from hil.bench.tables import ClientTable
from hil.clients.telling import INCARNATION, heard, topic_of
from hil.observe.history import History
from hil.programs.process import Child, Children

LONGEST_QUOTE = 200  # characters of a line that an error quotes
PROGRAMS = {"paho": "clients.publisher", "publisher": "devices.kept", "strict": "clients.strict"}


class Client:
    """A client of a run. journalled: number of messages that its program has reported as published.
    waiting: number of messages that the gateway must still acknowledge. acknowledged: time of
    publication of each acknowledged message, by sequence. gateway: name of its present gateway.
    """

    def __init__(
        self,
        name: str,
        table: ClientTable,
        seed: int,
        children: Children,
        history: History,
        gateway: str = "",
    ) -> None:
        self.name = name
        self.gateway = gateway
        self.strict = table.program == "strict"
        self.connections = 0
        self.journalled = 0
        self.sent: set[int] = set()
        """Sequences, modulo 2^16, of the published messages with an identity, at QoS 1 or 2."""
        self._table = table
        self._seed = seed
        self._children = children
        self._history = history
        self.topics: dict[int, str] = {}
        self.acknowledged: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._heard = False
        self._moves: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._moving: int | None = None
        self._names: dict[int, str] = {}

    def move_at(self, message: int) -> None:
        self._moves[message] = asyncio.get_running_loop().create_future()

    async def moved(self, message: int) -> dict[str, Any]:
        return await self._moves[message]

    def move(self) -> None:
        with suppress(ProcessLookupError):
            self._child.process.send_signal(signal.SIGUSR1)

    @property
    def done(self) -> bool:
        """Whether the client has published all messages, and all are acknowledged."""
        return self.journalled >= self._table.messages and not self._open

    @property
    def accepted(self) -> set[int]:
        return {sequence & 0xFFFF for sequence in self.acknowledged}

    @property
    def waiting(self) -> int:
        return len(self._open)

    def look(self) -> int:
        """Return the number of messages reported so far."""
        return self.journalled

    async def start(self, ports: Mapping[str, int]) -> None:
        """Start the client. ports: port of each gateway's listener, by the gateway's name."""
        names = list(ports)
        at = names.index(self.gateway)
        self._names = {ports[name]: name for name in names[at:] + names[:at]}
        table = self._table
        argv = list(table.command) or self._own_program()
        env = {
            "ONCEWAY_PORT": ports[self.gateway],
            "ONCEWAY_NAME": self.name,
            "ONCEWAY_TOPIC": topic_of(self.name),
            "ONCEWAY_INCARNATION": INCARNATION,
            "ONCEWAY_QOS": table.qos,
            "ONCEWAY_MESSAGES": table.messages,
            "ONCEWAY_PER_S": table.per_s,
            "ONCEWAY_SEED": self._seed,
        }
        strings = {name: str(value) for name, value in env.items()}
        self._before = time.monotonic_ns()
        self._child: Child = await self._children.start(self.name, argv, pipe=True, env=strings)

    def _own_program(self) -> list[str]:
        table = self._table
        options = {
            "name": self.name,
            "messages": table.messages,
            "payload": table.payload,
            "payload-bytes": table.payload_bytes,
            "qos": table.qos,
            "per-s": table.per_s,
            "seed": f"{self._seed}/{self.name}",
        }
        if table.program == "strict":
            options["in-flight"] = table.in_flight
            options["identifiers"] = table.identifiers
            options["first-identifier"] = table.first_identifier
        if table.program == "publisher":
            options["kills"] = table.kills
        argv = [sys.executable, "-m", f"hil.{PROGRAMS[table.program]}"]
        for name, value in options.items():
            argv += [f"--{name}", str(value)]
        for port in list(self._names)[: None if self.strict else 1]:
            argv += ["--port", str(port)]
        argv += ["--hops"] * table.hops + ["--no-identity"] * (not table.identity)
        argv += ["--retain"] * table.retain
        for message in self._moves:
            argv += ["--move", str(message)]
        return argv

    async def follow(self) -> None:
        """Record the client's reports in the history until the client ends. Raises OncewayError if
        a line breaks the protocol, or the client ended by itself before its last acknowledgement.
        """
        number, line = 1, b""
        try:
            async for line in self._child.lines():
                report = heard(line)
                report.setdefault("t", self._before)
                self._take(report)
                self._before = time.monotonic_ns()
                number, line = number + 1, b""
        except ValueError as error:
            raise OncewayError(
                f"{self.name}: line {number} of its standard output is not of the line protocol:"
                f" {error}",
                line.decode(errors="replace").strip()[:LONGEST_QUOTE],
                "The protocol is in hil/README.md, section `Your own program`",
            ) from error
        self._heard = True
        await self._child.process.wait()
        if self.journalled < self._table.messages or self._open:
            self._child.check()

    async def disconnect(self) -> None:
        await self._child.stop()

    def close(self) -> bool:
        """Record the messages that are not acknowledged. Return whether all reports were read."""
        for sequence in sorted(self._open):
            self._enter("waiting", sequence)
        return self._heard

    def _take(self, report: dict[str, Any]) -> None:
        if report["event"] == "unasked":
            answer = {"packet": report["packet"], "id": report["id"]}
            self._history.add("board", "unasked", report["t"], device=self.name, **answer)
            return
        if report["event"] == "contradiction":
            text = report["text"]
            self._history.add("board", "contradiction", report["t"], device=self.name, text=text)
            return
        if report["event"] == "connected":
            self._connected(report)
            return
        sequence, t = int(report["sequence"]), int(report["t"])
        if (report["event"] == "publication") == (sequence in self.topics):
            twice = sequence in self.topics
            raise ValueError(f"sequence {sequence} was {'already' if twice else 'never'} published")
        match report["event"]:
            case "publication":
                self.topics[sequence] = report["topic"]
                self.journalled += 1
                if self._table.qos:
                    self._open[sequence] = t
                if self._table.qos and self._table.identity:
                    self.sent.add(sequence & 0xFFFF)
                self._enter(
                    "publication",
                    sequence,
                    t,
                    kind="message",
                    qos=self._table.qos,
                    topic=report["topic"],
                    payload=report["payload"],
                )
            case "acknowledged" if sequence not in self._open:
                raise ValueError(f"sequence {sequence} waits for no acknowledgement")
            case "acknowledged":
                self.acknowledged[sequence] = self._open.pop(sequence)
                self._enter("acknowledged", sequence, t)
            case "again" | "resent" | "forgotten" as event:
                self._enter(event, sequence, t)
            case "moving":
                self._moving = sequence

    def _connected(self, report: dict[str, Any]) -> None:
        self.gateway = self._names[report["port"]]
        self.connections += 1
        where = {"gateway": self.gateway, "session_present": report["session_present"]}
        self._history.add("board", "connected", report["t"], device=self.name, **where)
        if self._moving in self._moves and not self._moves[self._moving].done():
            self._moves[self._moving].set_result(where)

    def _enter(self, event: str, sequence: int, t: int | None = None, **data: object) -> None:
        self._history.add(
            "board", event, t, device=self.name, incarnation=INCARNATION, sequence=sequence, **data
        )
