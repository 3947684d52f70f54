"""First contact: wait until a board greets on its port over the reliable link, as it will greet the
gateway.

In: a port and the name that is expected. Out: what the board said, or an OncewayError. A board
without an incarnation gets one here.
"""

import asyncio
from dataclasses import dataclass

from gateway.broker.peer import DeviceIdentity
from gateway.errors import OncewayError
from gateway.links.carrier import Carrier
from gateway.links.handshake import Greeter
from gateway.links.serial_port import SerialListener
from provisioning.boards import Board

WAIT_S = 15.0


@dataclass(slots=True)
class _Silent:
    """Takes a session and lets nothing happen on it."""

    def receive(self, data: bytes) -> None: ...

    def lost(self, reason: str) -> None: ...

    def writable(self) -> None: ...


def await_greeting(port: str, name: str, board: Board, wait_s: float = WAIT_S) -> DeviceIdentity:
    """Wait for a board's HELLO. Raises OncewayError if none comes, or another device greets."""
    try:
        met = asyncio.run(_greeting(port, board.link_baud, wait_s))
    except TimeoutError:
        raise OncewayError(
            f"the board was flashed and read back, but no greeting came within {wait_s:.0f} s",
            port,
            f"Is this firmware made for {board.title}, and does it speak the reliable link at"
            f" {board.link_baud} baud? One that does not is entered by `onceway device provision`",
        ) from None
    if not met.name:
        raise OncewayError(
            f"the board was flashed as {name!r}, but greets without a name: its firmware looks for"
            " the identity page elsewhere",
            port,
            f"{board.title} needs a firmware that reads it at 0x{board.identity:X}",
        )
    if met.name != name:
        raise OncewayError(
            f"the board was flashed as {name!r}, but greets as {met.name!r}",
            port,
            "Is another board on this port?",
        )
    return met


async def _greeting(port: str, baud: int, wait_s: float) -> DeviceIdentity:
    met: asyncio.Future[DeviceIdentity] = asyncio.get_running_loop().create_future()

    def accept(carrier: Carrier) -> _Silent:
        if carrier.peer.device is not None and not met.done():
            met.set_result(carrier.peer.device)
        return _Silent()

    listener = SerialListener(accept, port, Greeter(gateway_boot=0), baud=baud)
    await listener.start()
    try:
        return await asyncio.wait_for(met, wait_s)
    finally:
        await listener.close()
