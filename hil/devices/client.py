"""A client as the rig sees it: its table in a bench, its process, its journal.

In: a `[[client]]` table, the port of the gateway's listener. Out: events of hop `board` in the
history, as those of a board's ledger.
"""

import json
import sys

from hil.bench.bench import ClientTable
from hil.clients.publisher import INCARNATION
from hil.observe.history import History
from hil.programs.process import Child, Children


class Client:
    """journalled: messages that it has told; waiting: those of them that the gateway must
    acknowledge and has not yet.
    """

    def __init__(
        self, name: str, table: ClientTable, seed: int, children: Children, history: History
    ) -> None:
        self.name = name
        self.journalled = 0
        self._table = table
        self._seed = seed
        self._children = children
        self._history = history
        self._open: set[int] = set()

    @property
    def waiting(self) -> int:
        return len(self._open)

    async def start(self, port: int) -> None:
        """port: of the gateway's listener."""
        table = self._table
        argv = [
            sys.executable,
            "-m",
            "hil.clients.publisher",
            "--port",
            str(port),
            "--name",
            self.name,
            "--messages",
            str(table.messages),
        ]
        argv += [
            "--payload-bytes",
            str(table.payload_bytes),
            "--qos",
            str(table.qos),
            "--per-s",
            str(table.per_s),
        ]
        self._child: Child = await self._children.start(
            self.name, [*argv, "--seed", f"{self._seed}/{self.name}"], pipe=True
        )

    async def follow(self) -> None:
        """Enter what it says in the history, until it ends. Raises OncewayError if it ended by
        itself and had not said all.
        """
        async for line in self._child.lines():
            self._take(json.loads(line))
        await self._child.process.wait()
        if self.journalled < self._table.messages or self._open:
            self._child.check()

    async def disconnect(self) -> None:
        await self._child.stop()

    def close(self) -> None:
        """Enter what it holds still."""
        for sequence in sorted(self._open):
            self._enter("waiting", sequence)

    def _take(self, said: dict[str, object]) -> None:
        sequence, t = int(str(said["sequence"])), int(str(said["t"]))
        match said["event"]:
            case "publication":
                self.journalled += 1
                if self._table.qos:
                    self._open.add(sequence)
                self._enter(
                    "publication",
                    sequence,
                    t,
                    kind="message",
                    qos=self._table.qos,
                    payload=said["payload"],
                )
            case "again":
                self._enter("again", sequence, t)
            case "acknowledged":
                self._open.discard(sequence)

    def _enter(self, event: str, sequence: int, t: int | None = None, **data: object) -> None:
        self._history.add(
            "board", event, t, device=self.name, incarnation=INCARNATION, sequence=sequence, **data
        )
