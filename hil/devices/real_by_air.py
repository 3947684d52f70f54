"""A real board with a radio, flashed by cable. The rig reads its frames at the gateway's modem
(hil/air/modem_tap.py), and knows nothing else of it. In: the board's table in a bench, and its
number in the network. Out: its publications, in the history.
"""

import asyncio
import os
import time
from typing import Any

from hil.air.tap import AirTap
from hil.bench.bench import Bench
from hil.bench.tables import AirTable
from hil.devices.commander import Commander
from hil.devices.real_board import SAMPLING_OFF, RealBoard
from hil.formats.keys import key_on_board
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Children
from hil.programs.site import COMMAND_WITHIN, onceway
from hil.wire.ports import open_board

GREETS_WITHIN = 120.0
"""Longest time, in seconds, from a start to a HELLO that the gateway hears."""
DTR_S = 0.1


class RealBoardByAir(RealBoard):
    """A real board with a radio. number: its number in the network of the run."""

    def __init__(
        self,
        name: str,
        number: int,
        air: AirTable,
        folder: Folder,
        bench: Bench,
        children: Children,
        history: History,
        commander: Commander,
    ) -> None:
        super().__init__(name, folder, bench, children, history, commander)
        self._number = number
        self._air = air
        self.tap: AirTap | None = None
        """Reader of the board's frames."""

    @property
    def waiting(self) -> int:
        """Return the number of publications for which the rig has seen no PUBREC. A PUBREL may be
        missing: the board sends it with its next reading, and at the end of a run no reading
        follows.
        """
        recorded = self.tap.recorded if self.tap else set()
        return self._sent.waiting - len(
            {one for one in self._sent.open if one & 0xFFFF in recorded}
        )

    def key(self) -> bytes:
        """Return the key that was written into the board's flash."""
        return key_on_board(self._page, 0)

    def heard(self, event: str, data: dict[str, Any]) -> None:
        super().heard(event, data)
        if event == "publish" and not self._interval_told:  # a board subscribes first
            self._interval_told = True
            self._commander.send(self.name, f"interval {self._bench.interval_ms} force")

    async def provision(self) -> None:
        """Write firmware, identity, channel and an empty EEPROM. Raises OncewayError."""
        argv = [onceway(), "device", "add", self.name, "--empty"]
        argv += ["--port", str(self.port), "--board", self._board.name]
        argv += ["--network", str(self._air.network), "--number", str(self._number)]
        argv += ["--sf", str(self._air.spreading_factor)]
        argv += ["--registry", str(self._folder.registry)]
        await self._children.run(f"add-{self.name}", argv, COMMAND_WITHIN)
        await asyncio.to_thread(self._keep_key)

    async def connect(self) -> None:
        """Do nothing: a radio board has no line to connect."""

    async def disconnect(self) -> None:
        """Do nothing: a radio board has no line to disconnect."""

    async def follow_wire(self) -> None:
        """Do nothing: there is no wire."""

    async def stop_sampling(self) -> None:
        """Let the board stop sampling and send everything. Reset it to learn its next sequence."""
        command = f"interval {SAMPLING_OFF}"
        self._commander.send(self.name, command)
        await wait_until(lambda: command in self._sent.obeyed)
        await wait_until(lambda: not self.waiting)
        before = self._sent.boot
        await asyncio.to_thread(self._pull_dtr)
        async with asyncio.timeout(GREETS_WITHIN):
            await wait_until(lambda: self._sent.boot != before)
        report = self._sent.next  # each start has a status
        await wait_until(lambda: self._sent.journalled >= report and not self.waiting)
        self._next = self._sent.journalled + 1

    def _pull_dtr(self) -> None:
        """Reset the board by opening the cable's port."""
        fd = open_board(self.port, self._board.link_baud)
        time.sleep(DTR_S)
        os.close(fd)
