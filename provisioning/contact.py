"""First contact: waits until a board greets on its port over the reliable link, as it will greet
the gateway.

In: a port and the expected identity. Out: the board's greeting, or an OncewayError.
`await_greeting` gives an incarnation to a board that has none, and sets its interval.
"""

import asyncio
import select
import time
from contextlib import suppress
from dataclasses import dataclass

from gateway.access.peer import DeviceIdentity
from gateway.errors import OncewayError
from gateway.links.diagnosis import BY_WATCHDOG
from gateway.links.frames import (
    HANDSHAKE_TYPE,
    FrameDecoder,
    FrameError,
    frame_type,
    handshake_from_body,
)
from gateway.links.greeter import Greeter
from gateway.links.handshake import KEYED, Hello
from gateway.links.serial_port import UNHEARD, WHERE_UNHEARD, SerialListener
from gateway.links.statistics import LinkStatistics
from gateway.links.transport import Receiver, Transport
from gateway.links.tty import Tty
from provisioning.boards import Board
from provisioning.first_session import FirstSession
from provisioning.identity import Identity
from provisioning.interval import Interval

WAIT_S = 15.0
_AT_ONCE = 4096
_LOOPS = 3
"""If no session begins, a board that has started this many times counts as restarting in a loop."""


def hear(port: str, identity: Identity, board: Board, wait_s: float = WAIT_S) -> None:
    """Wait until a board greets under this name, and with this key if its firmware has keys. Sends
    no answer: the board gets no incarnation and begins no session. Raises OncewayError if no such
    greeting comes.
    """
    try:
        with Tty(port, board.link_baud) as line:
            hello = _first_hello(line, time.monotonic() + wait_s)
    except OSError as error:
        raise OncewayError(f"the port has failed ({error.strerror})", port) from error
    if hello is None:
        raise _no_greeting(port, board, wait_s)
    _check_name(hello.name, identity.name, port, board)
    if hello.version == KEYED and not hello.proves(identity.key):
        raise _other_key(identity, port)


def _first_hello(line: Tty, end: float) -> Hello | None:
    decoder = FrameDecoder(LinkStatistics())
    while (remaining := end - time.monotonic()) > 0:
        select.select([line.fd], [], [], remaining)
        for body in decoder.feed(line.read(_AT_ONCE)):
            if frame_type(body) == HANDSHAKE_TYPE and (opened := handshake_from_body(body)):
                kind, payload = opened
                with suppress(FrameError):
                    if kind == Hello.KIND:
                        return Hello.from_payload(payload)
    return None


@dataclass(slots=True)
class _IgnoredSession:
    """Accepts a session and ignores its data."""

    def receive(self, data: bytes) -> None: ...

    def lost(self, reason: str) -> None: ...

    def writable(self) -> None: ...


def await_greeting(
    port: str,
    identity: Identity,
    board: Board,
    wait_s: float = WAIT_S,
    *,
    interval: Interval | None = None,
    forced: bool = False,
) -> DeviceIdentity:
    """Answer a board's HELLO and wait for the first frame of its session. Return the board's
    identity. Raises OncewayError if no HELLO or no such frame comes, or if another device greets.

    interval: the interval that the board shall use and acknowledge; None leaves its interval as it
    is. forced: set the interval even if the EEPROM then lasts less than a year.
    """
    try:
        return asyncio.run(_greeting(port, identity, board, wait_s, interval, forced))
    except TimeoutError:
        raise _no_greeting(port, board, wait_s) from None


def _no_greeting(port: str, board: Board, wait_s: float) -> OncewayError:
    return OncewayError(
        f"the board was flashed and read back, but no greeting came within {wait_s:.0f} s",
        port,
        f"Is this firmware made for {board.title}, and does it speak the reliable link at"
        f" {board.link_baud} baud? Then run the same command again",
    )


def _other_key(identity: Identity, port: str) -> OncewayError:
    return OncewayError(
        f"the board was flashed as {identity.name!r}, but greets with another key",
        port,
        "Is another board on this port?",
    )


def _check_name(greeted: str, name: str, port: str, board: Board) -> None:
    if not greeted:
        raise OncewayError(
            f"the board was flashed as {name!r}, but greets without a name: its firmware looks for"
            " the identity page elsewhere",
            port,
            f"{board.title} needs a firmware that reads the identity page at 0x{board.identity:X}",
        )
    if greeted != name:
        raise OncewayError(
            f"the board was flashed as {name!r}, but greets as {greeted!r}",
            port,
            "Is another board on this port?",
        )


async def _greeting(
    port: str,
    identity: Identity,
    board: Board,
    wait_s: float,
    interval: Interval | None,
    forced: bool,
) -> DeviceIdentity:
    loop = asyncio.get_running_loop()
    met: asyncio.Future[DeviceIdentity] = loop.create_future()
    obeyed: asyncio.Future[None] = loop.create_future()
    command = interval.command + " force" * forced if interval else ""

    def accept(transport: Transport) -> Receiver:
        device = transport.peer.device
        if device is not None and not met.done():
            met.set_result(device)
        if interval is None or device is None or device.name != identity.name:
            return _IgnoredSession()
        if not forced and interval.is_short(device.next_sequence):
            return _IgnoredSession()
        return FirstSession(transport, identity.name, command, obeyed)

    # A board with a wrong name is answered, too: the error names both.
    greeter = Greeter(gateway_boot=0, key=lambda name: identity.key)
    listener = SerialListener(accept, port, greeter, baud=board.link_baud)
    await listener.start()
    try:
        found = await asyncio.wait_for(met, wait_s)
        _check_name(found.name, identity.name, port, board)
        if interval is not None:
            if not forced:
                interval.check(found.next_sequence)
            await _acknowledged(obeyed, wait_s, port)
        return found
    except TimeoutError:
        if any(found.refused == identity.name for found in listener.ports):
            raise _other_key(identity, port) from None
        if any(found.starts >= _LOOPS for found in listener.ports):
            text = f"the board {identity.name!r} starts again and again"
            raise OncewayError(f"{text}. It was flashed and read back", port, BY_WATCHDOG) from None
        if any(found.unheard for found in listener.ports):
            text = f"{UNHEARD.format(repr(identity.name))}. It was flashed and read back"
            raise OncewayError(text, port, WHERE_UNHEARD) from None
        raise
    finally:
        await listener.close()


async def _acknowledged(obeyed: asyncio.Future[None], wait_s: float, port: str) -> None:
    try:
        await asyncio.wait_for(obeyed, wait_s)
    except TimeoutError:
        raise OncewayError(
            f"the board greets, but has accepted no command within {wait_s:.0f} s, so its interval"
            " has not changed",
            port,
            "Only the sensor example accepts commands. Without --interval, the board is added with"
            " its present interval",
        ) from None
