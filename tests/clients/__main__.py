"""Try clients that people use with Onceway and with mosquitto (`python -m tests.clients`). The
program leaves out clients that are not installed.

In: `--install` first installs and builds the clients of npm, cargo, go and Home Assistant. `--only
NAME` tries only clients whose names contain NAME, and keeps the results of all others. Out:
`build/clients/cells.json`, from which `make docs` writes the page. The exit code is 1 if a result
with Onceway has become worse than in the committed file.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.clients import probes
from tests.clients.brokers import Broker, Ours, Theirs, broker
from tests.clients.clients import Client, clients, install
from tests.clients.page import BROKERS, CELLS, COLUMNS, RUN, Cells, page, read, worse, write
from tests.clients.probes import Where
from tests.links.certificates import Authority

AT_ONCE = 5
VERSIONS = {4: "3.1.1", 5: "5"}
REASONS = (*probes.REASONS, None)
PROBES = dict(
    zip(
        BROKERS[1:],
        (
            *map(probes.by, ("tcp", "tls", "ws", "wss")),
            *(probes.restart, probes.cut_publisher, probes.cut_subscriber),
        ),
        strict=True,
    )
)
ALONE = "restart"
"""The probe that restarts the brokers. No other probe runs at the same time."""

Work = Coroutine[Any, Any, str]


class Run:
    """The results of all probes, and the coroutines that produce them."""

    def __init__(self, tried: list[Client], cells: Cells) -> None:
        self._tried = tried
        self.cells = cells
        self._turns = asyncio.Semaphore(AT_ONCE)
        names = {name for client in tried for name in client.names.values()}
        for rows in cells.values():
            for row in [row for row in rows if row.partition("|")[0] in names]:
                del rows[row]

    async def fill(self, both: tuple[Broker, Broker], ca: Path) -> None:
        number = itertools.count()

        def work(client: Client, version: int, column: str) -> list[Work]:
            topic = f"t{next(number)}"
            at = [Where(one, ca, version, topic) for one in both]
            return [PROBES[column](client, one) for one in at]

        async with asyncio.TaskGroup() as group:

            def cell(kind: str, row: str, column: str, *works: Work) -> None:
                self.cells[kind].setdefault(row, {})
                group.create_task(self._cell(kind, row, column, *works))

            for client in self._tried:
                self._plain(client, cell)
                for version, name in client.names.items():
                    for column in PROBES:
                        if column != ALONE:
                            row = f"{name}|{VERSIONS[version]}"
                            cell("brokers", row, column, *work(client, version, column))
        for client in self._tried:
            for version, name in client.names.items():
                row = f"{name}|{VERSIONS[version]}"
                await self._cell("brokers", row, ALONE, *work(client, version, ALONE))

    def _plain(self, client: Client, cell: Callable[..., None]) -> None:
        """Run the probes that use the test's own server, which speaks MQTT 5."""
        name = client.names[5]
        for qos in (1, 2):
            for column, reason in zip(COLUMNS["refused"][1:], REASONS, strict=True):
                cell("refused", f"{name}|{qos}", column, probes.refused(client, reason, qos))
        most, alive = COLUMNS["limits"]
        cell("limits", name, most, probes.most_in_flight(client))
        cell("limits", name, alive, probes.keep_alive(client))

    async def _cell(self, kind: str, row: str, column: str, *works: Work) -> None:
        found = []
        for one in works:
            async with self._turns:
                try:
                    found.append(await one)
                except Exception as error:
                    found.append(f"**{type(error).__name__}**")
        self.cells[kind][row][column] = found
        print(kind, row, column, *found, sep=" | ", file=sys.stderr, flush=True)
        write(self.cells, RUN)


async def main(only: str) -> int:
    nothing: Cells = {kind: {} for kind in COLUMNS}
    before = read(CELLS) if CELLS.exists() else nothing
    tried = [one for one in clients() if any(only in name for name in one.names.values())]
    found = read(RUN) if only and RUN.exists() else before if only else nothing
    run = Run(tried, found)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = Authority(folder)
        own, other = Ours(folder, authority), Theirs(folder, authority)
        async with broker(own), broker(other):
            await run.fill((own, other), authority.path)
    print(page(run.cells))
    if found := worse(before, run.cells):
        print("worse than in the tree:", *found, sep="\n  ", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if arguments.install:
        install()
    sys.exit(asyncio.run(main(arguments.only)))
