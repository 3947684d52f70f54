"""One simulated board with a radio: an Uno with an SX1276, in the ether of the run. In: a name, a
number in its network, a folder, a bench. Out: the events of the board's ledger in the history, and
ways to move the board from one gateway to the next. The board has no wire; the rig reads its frames
in the ether (hil/programs/air.py).
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from intelhex import IntelHex

from gateway.errors import OncewayError
from hil.air.ether import Place
from hil.air.places import Places
from hil.bench.bench import Bench
from hil.bench.tables import AirTable
from hil.boards.simulator import BUILD, Air, SimulatedBoard
from hil.devices.simulated import SimulatedDevice
from hil.formats.keys import key_on_board
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Children
from hil.programs.site import COMMAND_WITHIN
from provisioning.boards import board as kind_of
from provisioning.identity import Identity
from provisioning.radio_plan import RadioPlan, radio_page

HEX = BUILD / "uno" / "sensor-lora.hex"
KIND = "uno"


class DeviceByAir(SimulatedDevice):
    """A board with a radio. number: its number in the network of the run. The board starts at a
    place where its gateway and the next one hear it.
    """

    def __init__(
        self,
        name: str,
        number: int,
        air: AirTable,
        folder: Folder,
        bench: Bench,
        children: Children,
        history: History,
    ) -> None:
        self._identity = Identity.create(name)
        self._plan = RadioPlan(air.network, number, factor=air.spreading_factor)
        self._number = number
        self._places = Places(bench.gateways, air.spreading_factor)
        self._air = Air(folder.air, name, self._places.between(bench.homes[name], number))
        self._offered_by = bench.homes[name]
        self._turns = 0
        """Publications plus frames without a session, since the last WELCOME."""
        self._wanted = air.turns
        super().__init__(name, folder, bench, children, history)
        self.has_turns = not air.turns

    def _simulator(self, place: Path, adc_from: int) -> SimulatedBoard:
        """Make the board, with firmware and identity page as if written by cable."""
        if not HEX.is_file():
            raise OncewayError("the firmware is not built", str(HEX), "Run `make firmware`")
        image = IntelHex(str(HEX))
        image.puts(kind_of(KIND).identity, radio_page(self._identity, self._plan))
        place.mkdir(parents=True, exist_ok=True)
        firmware = place / "firmware.hex"
        image.write_hex_file(str(firmware))
        return SimulatedBoard(
            place,
            firmware=firmware,
            seed=self._bench.seed,
            adc_from=adc_from,
            drift=self._drift(place),
            port=False,
            air=self._air,
        )

    async def provision(self) -> None:
        """Add the board's key to the gateway's registry."""
        registry = self._folder.of(self._bench.gateways[0]).registry
        argv = [sys.executable, "-m", "hil.programs.enter_board", str(registry), self.name]
        argv += [self._identity.key.hex(), KIND, str(self._folder.air)]
        await self._children.run(f"provision-{self.name}", argv, COMMAND_WITHIN)

    async def connect(self) -> None:
        """Do nothing: the air needs no connection."""

    async def disconnect(self) -> None:
        """Record the board's own time. If its clock is behind, the judge accepts times in its
        publications that are wrong by as much. The board's radio stays in contact.
        """
        cycle = (await self.board.stats()).cycle
        self._history.add("board", "clock", device=self.name, cycle=cycle)

    async def follow_wire(self) -> None:
        """Do nothing: there is no wire."""

    def heard(self, event: str, data: dict[str, Any]) -> None:
        """Handle an event of the ether about the board and a gateway."""
        super().heard(event, data)
        if event == "welcome":
            self._offered_by = data["at"]
            self._turns = 0
        elif event in ("publish", "strange"):  # `strange`: will never fit a session
            self._turns += 1
            self.has_turns |= self._turns >= self._wanted
        elif event == "connack" and not data["reason"]:
            self.gateway = self._offered_by

    async def met(self) -> None:
        await wait_until(lambda: self.sessions)

    async def roam(self, gateway: str, within: float) -> bool:
        sessions = len(self.sessions)
        await self._carry(self._places.beside(gateway, self._number))
        try:
            async with asyncio.timeout(within):
                await wait_until(lambda: len(self.sessions) > sessions and self.gateway == gateway)
        finally:
            await self._carry(self._places.between(gateway, self._number))
        return self.sessions[-1]

    async def _carry(self, place: Place) -> None:
        reader, writer = await asyncio.open_unix_connection(self._folder.air)
        writer.write(f"carry {self.name} {place[0]} {place[1]}\n".encode())
        reply = await reader.readline()
        writer.close()
        if reply != b"carried\n":
            raise OncewayError("the ether does not accept the radio of a board", reply.decode())

    def key(self) -> bytes:
        return key_on_board(self.board.flash_image)

    @property
    def waiting(self) -> int:
        """Return the number of publications that the gateway has not acknowledged. A publication
        that waits only for its PUBCOMP does not count: the board would send the PUBREL with its
        next reading, and at the end of a run no reading follows (gateway/links/lora/FORMAT.md).
        """
        states = map(self.ledger.state, self.ledger.waiting())
        return sum(not released for released, _ in states)
