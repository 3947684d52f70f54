"""First contact: wait until a board greets on its port over the reliable link, as it will greet the
gateway.

In: a port and the identity that is expected. Out: what the board said, or an OncewayError. A board
without an incarnation gets one here.
"""

import asyncio
import select
import time
from contextlib import suppress
from dataclasses import dataclass

from gateway.broker.peer import DeviceIdentity
from gateway.errors import OncewayError
from gateway.links.carrier import Carrier
from gateway.links.frames import (
    HANDSHAKE_TYPE,
    FrameDecoder,
    FrameError,
    frame_type,
    handshake_from_body,
)
from gateway.links.greeter import Greeter
from gateway.links.handshake import KEYED, Hello
from gateway.links.serial_port import SerialListener
from gateway.links.statistics import LinkStatistics
from gateway.links.tty import Tty
from provisioning.boards import Board
from provisioning.identity import Identity

WAIT_S = 15.0
_AT_ONCE = 4096


def hear(port: str, identity: Identity, board: Board, wait_s: float = WAIT_S) -> None:
    """Wait until a board greets under this name, and with this key if its firmware has keys; and do
    not answer: it gets no incarnation here, and begins no session. Raises OncewayError if it does
    not.
    """
    try:
        with Tty(port, board.link_baud) as line:
            said = _first_hello(line, time.monotonic() + wait_s)
    except OSError as error:
        raise OncewayError(f"the port has failed ({error.strerror})", port) from error
    if said is None:
        raise _silent(port, board, wait_s)
    _check_name(said.name, identity.name, port, board)
    if said.version == KEYED and not said.proves(identity.key):
        raise _other_key(identity, port)


def _first_hello(line: Tty, end: float) -> Hello | None:
    decoder = FrameDecoder(LinkStatistics())
    while (left := end - time.monotonic()) > 0:
        select.select([line.fd], [], [], left)
        for body in decoder.feed(line.read(_AT_ONCE)):
            if frame_type(body) == HANDSHAKE_TYPE and (opened := handshake_from_body(body)):
                kind, payload = opened
                with suppress(FrameError):
                    if kind == Hello.KIND:
                        return Hello.from_payload(payload)
    return None


@dataclass(slots=True)
class _Silent:
    """Takes a session and lets nothing happen on it."""

    def receive(self, data: bytes) -> None: ...

    def lost(self, reason: str) -> None: ...

    def writable(self) -> None: ...


def await_greeting(
    port: str, identity: Identity, board: Board, wait_s: float = WAIT_S
) -> DeviceIdentity:
    """Answer a board's HELLO and wait for the first frame of its session. Raises OncewayError if
    none comes, or another device greets.
    """
    try:
        met = asyncio.run(_greeting(port, identity, board.link_baud, wait_s))
    except TimeoutError:
        raise _silent(port, board, wait_s) from None
    _check_name(met.name, identity.name, port, board)
    return met


def _silent(port: str, board: Board, wait_s: float) -> OncewayError:
    return OncewayError(
        f"the board was flashed and read back, but no greeting came within {wait_s:.0f} s",
        port,
        f"Is this firmware made for {board.title}, and does it speak the reliable link at"
        f" {board.link_baud} baud? The same command tries again",
    )


def _other_key(identity: Identity, port: str) -> OncewayError:
    return OncewayError(
        f"the board was flashed as {identity.name!r}, but greets with another key",
        port,
        "Is another board on this port?",
    )


def _check_name(said: str, name: str, port: str, board: Board) -> None:
    if not said:
        raise OncewayError(
            f"the board was flashed as {name!r}, but greets without a name: its firmware looks for"
            " the identity page elsewhere",
            port,
            f"{board.title} needs a firmware that reads it at 0x{board.identity:X}",
        )
    if said != name:
        raise OncewayError(
            f"the board was flashed as {name!r}, but greets as {said!r}",
            port,
            "Is another board on this port?",
        )


async def _greeting(port: str, identity: Identity, baud: int, wait_s: float) -> DeviceIdentity:
    met: asyncio.Future[DeviceIdentity] = asyncio.get_running_loop().create_future()

    def accept(carrier: Carrier) -> _Silent:
        if carrier.peer.device is not None and not met.done():
            met.set_result(carrier.peer.device)
        return _Silent()

    # Whatever name it gives: a wrong one shall be told.
    greeter = Greeter(gateway_boot=0, key=lambda name: identity.key)
    listener = SerialListener(accept, port, greeter, baud=baud)
    await listener.start()
    try:
        return await asyncio.wait_for(met, wait_s)
    except TimeoutError:
        if any(found.refused == identity.name for found in listener.ports):
            raise _other_key(identity, port) from None
        raise
    finally:
        await listener.close()
