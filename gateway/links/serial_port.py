"""MQTT over serial ports: a listener that watches a path or a pattern and runs the reliable link on
each port that appears.

In: a path such as /dev/serial/by-id/usb-… or a glob pattern, and a baud rate. Out: a `Transport`
for each session of a device, handed to `accept` with the identity from its HELLO. Each port has one
file descriptor reader, no thread and no task.
"""

import asyncio
import glob
import logging
import os
import shlex
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from gateway.access.peer import DeviceIdentity, Peer
from gateway.errors import OncewayError
from gateway.links.diagnosis import Diagnosis, PrintedText, Restarts
from gateway.links.faults import blame
from gateway.links.greeter import Greeter, Refusal
from gateway.links.handshake import KEYED, PLAIN, Hello
from gateway.links.holders import holders
from gateway.links.keys import NO_KEY, cmac
from gateway.links.reliable import (
    Event,
    OtherVersion,
    Received,
    Refused,
    Session,
    SessionEnded,
    SessionStarted,
    Unheard,
)
from gateway.links.roles import GatewayLink
from gateway.links.statistics import LinkStatistics
from gateway.links.transport import Accept, Receiver
from gateway.links.tty import PortBusy, Tty
from gateway.mqtt.errors import quote
from gateway.system.log_throttle import LogThrottle
from gateway.system.logs import about

log = logging.getLogger(__name__)

SCAN_INTERVAL = 0.5
"""Seconds between two searches for ports that were plugged in."""

LENT = "in use by a command that writes to its board"
"""The problem of a port that another process uses with the gateway's consent."""

_MOST_SAID = 64
"""Largest number of different sentences about a port that are remembered, so that each sentence is
logged once.
"""
_READ_SIZE = 4096
_TIMER_STEP = 0.001
_OUTGOING_LIMIT = 4096
"""Largest number of bytes kept for a port that accepts no bytes. Later bytes are lost, and the link
repairs the loss.
"""


class SerialTransport:
    """The `Transport` of one session of one device."""

    high_water = 4096

    receiver: Receiver

    def __init__(self, port: "SerialPort", session: Session, peer: Peer) -> None:
        self.peer = peer
        self.session = session
        self.closed = False
        self._port = port
        self._above_high_water = False

    def write(self, data: bytes) -> None:
        self._port.write(self.session, data)
        self._above_high_water |= self.unsent > self.high_water

    def close(self) -> None:
        self.closed = True
        self._port.close_session(self.session)

    def abort(self) -> None:
        self.closed = True
        self._port.abort_session(self.session)

    def pause_reading(self) -> None:
        self.session.receiving.paused = True

    def resume_reading(self) -> None:
        self._port.resume(self.session)

    @property
    def unsent(self) -> int:
        return self.session.sending.unsent

    undelivered = unsent

    def lose(self, reason: str) -> None:
        """Tell the broker that the session has ended, unless the broker closed it."""
        if not self.closed:
            self.closed = True
            self.receiver.lost(reason)

    def deliver(self, data: bytes) -> None:
        """Hand bytes to the broker. An exception in the broker's code ends only this session."""
        if self.closed:
            return
        try:
            self.receiver.receive(data)
        except Exception as error:
            blame(self.peer.address, error)
            self._port.abort_session(self.session)
            self.lose("internal error")

    def report_writable(self) -> None:
        if self._above_high_water and self.unsent <= self.high_water // 4 and not self.closed:
            self._above_high_water = False
            self.receiver.writable()


@dataclass(frozen=True, slots=True)
class PortStatus:
    """The status of a port, for users. device: name of the device in session. refused: name of a
    device that is not admitted. problem: the last warning about the port, until its cause is gone.
    statistics: the port's counters, which continue to count.
    """

    path: str
    is_open: bool
    device: str | None
    refused: str | None
    problem: str | None
    statistics: LinkStatistics
    unheard: bool = False
    """Whether a device sends HELLO and does not hear the gateway's answers."""
    starts: int = 0
    """Number of the device's starts since the port was opened."""
    refusal: Refusal | None = field(default=None, kw_only=True)
    """Reason why the board named in `refused` is refused."""


class SerialPort:
    """One serial port: its path, the terminal while it exists, and the link on it. device: the
    device file to which the path pointed when it was last opened.
    """

    device = ""

    def __init__(
        self, path: str, baud: int, listener: str, accept: Accept, greeter: Greeter
    ) -> None:
        self.path = path
        self.link = GatewayLink(greeter, baud)
        self._baud = baud
        self._listener = listener
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._tty: Tty | None = None
        self._transport: SerialTransport | None = None
        self._diagnosis = Diagnosis(baud)
        self._prints = PrintedText()
        self._restarts = Restarts()
        self._logged: dict[str, None] = {}
        """The last sentences in the log about this port, oldest first."""
        self._throttle = LogThrottle(time.monotonic)
        self._session_throttle = LogThrottle(time.monotonic)
        self._problem: str | None = None
        self._refused: str | None = None
        self._unheard = False
        self._greeting: Hello | None = None
        """The last HELLO that `_restarts` has counted."""
        self._told_restarts = False
        """Whether the problem that `_restarts` reports now has been logged."""
        self._speaks = False
        """Whether an intact frame has arrived since the port was opened."""
        self._refusal: Refusal | None = None
        self._outgoing = b""
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """Time at which the timer fires, or 0 if there is none. Kept here because a handle of
        uvloop does not expose it.
        """

    @property
    def is_open(self) -> bool:
        return self._tty is not None

    def open(self) -> None:
        """Open the port if possible; otherwise log the reason, each reason once."""
        try:
            self._tty = Tty(self.path, self._baud)
        except OncewayError as error:
            hint = f"{error.hint} " if error.hint else ""
            self._warn(
                f"{error.what}. {hint}The gateway tries again until the port opens.",
                self._held_by if isinstance(error, PortBusy) else str,
            )
            return
        self._logged.clear()
        self._restarts = Restarts()
        self._told_restarts = False
        self._problem = None
        self._speaks = False
        self._unheard = False
        self._diagnosis = Diagnosis(self._baud)
        self._prints = PrintedText()
        log.info("%s: opened at %d baud", self.path, self._baud, extra=about(port=self.path))
        self._loop.add_reader(self._tty.fd, self._do, self._on_readable, self._tty)
        self.link.open(self._loop.time())
        self._flush()

    def close(self, reason: str) -> None:
        """Close the port; a session on it is lost."""
        tty, self._tty = self._tty, None
        if tty is None:
            return
        self._loop.remove_reader(tty.fd)
        self._loop.remove_writer(tty.fd)
        tty.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._due = 0.0
        self._outgoing = b""
        self._refused = None
        self._handle(self.link.lose(reason))

    def lend(self) -> None:
        """Close the port for another process."""
        if self.is_open:
            log.info("%s: %s", self.path, LENT, extra=about(port=self.path, reason="lent"))
        self.close(LENT)
        self._problem = LENT

    @property
    def status(self) -> PortStatus:
        device = (
            self._transport.peer.device
            if self._transport is not None and not self._transport.closed
            else None
        )
        name = device.name if device else None
        return PortStatus(
            self.path,
            self.is_open,
            name,
            self._refused,
            (self.is_open and self._restarts.verdict(self._loop.time())) or self._problem,
            self.link.statistics,
            self._unheard,
            self._restarts.count,
            refusal=self._refusal,
        )

    def write(self, session: Session, data: bytes) -> None:
        self.link.write(session, data, self._loop.time())
        self._flush()

    def close_session(self, session: Session) -> None:
        self._handle(self.link.close(session, self._loop.time()))

    def abort_session(self, session: Session) -> None:
        self.link.abort(session, self._loop.time())
        self._flush()

    def resume(self, session: Session) -> None:
        # not inside the call: the broker may be in the middle of its work
        self._loop.call_soon(self._do, self._resume, session)

    def _resume(self, session: Session) -> None:
        self._handle(self.link.resume(session, self._loop.time()))

    def _do(self, call: Callable[..., None], *args: object) -> None:
        """Run a callback of the event loop. An internal error ends the session and closes the port;
        the next scan opens the port again.
        """
        try:
            call(*args)
        except Exception as error:
            blame(self.path, error, "port closed and opened again after an internal error")
            try:
                self.close("internal error")
            except Exception as other:
                blame(self.path, other, "the session of this port cannot be ended")

    def _on_readable(self, tty: Tty) -> None:
        try:
            data = tty.read(_READ_SIZE)
        except OSError as error:
            self._on_port_lost(error)
            return
        intact, damaged = self.link.statistics.frames_received, self._damaged
        now = self._loop.time()
        events = self.link.receive(data, now)
        if (hello := self.link.greeting) is not None and hello is not self._greeting:
            self._greeting = hello
            self._restarts.started(hello.boot, hello.power_on, now)
            self._tell_restarts(now)
        if self.link.statistics.frames_received != intact:
            self._diagnosis.intact_frame()
            self._speaks = True
        if self._speaks:
            verdict = self._prints.bytes_received(data, self._damaged != damaged)
        else:
            verdict = self._diagnosis.bytes_received(data, now)
        if verdict is not None:
            self._warn(verdict)
        self._handle(events)

    @property
    def _damaged(self) -> int:
        return self.link.statistics.crc_errors + self.link.statistics.malformed_frames

    def _on_writable(self, tty: Tty) -> None:
        self._loop.remove_writer(tty.fd)
        self._flush()

    def _on_timer(self) -> None:
        self._timer = None
        self._due = 0.0
        self._handle(self.link.tick(self._loop.time()))

    def _on_port_lost(self, error: OSError) -> None:
        if self.is_open:
            self._problem = "gone"
            log.warning(
                "%s: gone (%s). Waiting for it to come back",
                self.path,
                error.strerror,
                extra=about(port=self.path, reason="gone"),
            )
            self.close("the serial port is gone")

    def _handle(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Received(session, data):
                    if self._unheard:
                        self._problem, self._unheard = None, False
                    if self._transport is not None and self._transport.session is session:
                        self._transport.deliver(data)
                case SessionStarted():
                    self._on_started(event)
                case SessionEnded(session, reason):
                    if self._transport is not None and self._transport.session is session:
                        self._on_ended(reason)
                        self._transport.lose(reason)
                case Refused(name, reason) if self.link.session is not None:
                    # The connected device continues, so the refusal is not its problem.
                    problem = self._problem
                    self._warn(_why_refused(name, reason, self.path))
                    self._problem = problem
                case Refused(name, reason):
                    self._refused, self._refusal = name, reason
                    self._warn(_why_refused(name, reason, self.path))
                case Unheard(name):
                    self._unheard = True
                    self._warn(f"{UNHEARD.format(quote(name))}. {WHERE_UNHEARD}")
                case OtherVersion(version):
                    self._warn(_other_version(version, self.path))
        self._flush()

    def _on_ended(self, reason: str) -> None:
        if self._session_throttle.has_room():
            fields = about(port=self.path, reason=reason)
            log.info("%s: connection lost: %s", self.path, reason, extra=fields)

    def _on_started(self, event: SessionStarted) -> None:
        hello, proved = event.hello, event.proved
        text = "%s: %s greets%s, boot %d, next sequence %d"
        if self._session_throttle.has_room():
            log.info(
                text,
                self.path,
                hello.name,
                "" if proved else " without a key",
                hello.boot,
                hello.next_sequence,
                extra=about(port=self.path, device=hello.name),
            )
        if proved or not self._unheard:  # without a key a greeting begins a session
            self._problem, self._refused = self._prints.verdict, None
            self._unheard = False
        device = DeviceIdentity(hello.name, event.welcome.incarnation, hello.next_sequence, proved)
        self._begin(SerialTransport(self, event.session, Peer(self._listener, self.path, device)))

    def _begin(self, transport: SerialTransport) -> None:
        try:
            transport.receiver = self._accept(transport)
        except Exception as error:
            blame(self.path, error)
            transport.abort()
        self._transport = transport

    def _flush(self) -> None:
        """Write the link's queued bytes, and set the timer. If the link was full, and has room
        again, tell the broker.
        """
        if self._tty is None:
            return
        outgoing = self._outgoing + self.link.take()
        if outgoing:
            try:
                written = self._tty.write(outgoing)
            except OSError as error:
                self._loop.call_soon(self._do, self._on_port_lost, error)
                return
            self._outgoing = outgoing[written : written + _OUTGOING_LIMIT]
            if self._outgoing:
                self._loop.add_writer(self._tty.fd, self._do, self._on_writable, self._tty)
        if self._transport is not None:
            self._transport.report_writable()
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the link's next deadline."""
        deadline = self.link.deadline
        # uvloop counts whole milliseconds: add one step, so that the timer does not fire just
        # before the deadline and spin.
        due = 0.0 if deadline is None else deadline + _TIMER_STEP
        if due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._do, self._on_timer) if due else None

    def _tell_restarts(self, now: float) -> None:
        text = self._restarts.verdict(now)
        if text and not self._told_restarts:
            log.warning("%s: %s", self.path, text, extra=about(port=self.path))
        self._told_restarts = text is not None

    def _warn(self, text: str, detail: Callable[[], str] = str) -> None:
        """Keep a sentence as the port's problem. Log it once after each opening of the port, unless
        other sentences flood the log. detail: returns more text for the log; called only if the
        sentence is logged, because it takes time.
        """
        self._problem = text
        if text not in self._logged and self._throttle.has_room():
            self._logged[text] = None
            if len(self._logged) > _MOST_SAID:
                del self._logged[next(iter(self._logged))]
            log.warning(
                "%s: %s%s",
                self.path,
                text,
                detail(),
                extra=about(port=self.path, device=self._refused),
            )

    def _held_by(self) -> str:
        held_by = " and ".join(holders(self.path))
        return f" It is {held_by}." if held_by else ""


def _why_refused(name: str, reason: Refusal | None, path: str) -> str:
    """Return a text with the reason and the command to type. name: as the device states it, without
    proof.
    """
    quoted = shlex.quote(name)
    if not name:
        return (
            "a board greets without a name: it was never provisioned."
            f" `onceway device add NAME --port {path}` gives it a name"
        )
    match reason:
        case Refusal.WRONG_KEY:
            return (
                f"the device {name!r} greets with a key other than the one in the registry. If it"
                f" is the right board, `onceway device rekey {quoted} --port {path}` gives it a new"
                " key"
            )
        case Refusal.UNKNOWN_KEY:
            return (
                f"the device {name!r} has a key that is not in the registry. Restore the registry"
                " that has it with `onceway registry import`; or give the board a new key, and keep"
                f" its readings: `onceway device admit {quoted}`, then `onceway device rekey"
                f" {quoted} --board KIND --port {path}`"
            )
        case Refusal.NO_PROOF:
            return (
                f"the device {name!r} greets without a key, as older firmware does."
                f" `onceway device flash {quoted} --port {path}` writes firmware that uses a key;"
                " `open = true` in this port's [[serial]] section accepts the device without a key"
            )
    return (
        f"the device {name!r} is not admitted, or was revoked. If it may connect,"
        f" `onceway device admit {quoted}` admits it"
    )


UNHEARD = "the board {} greets, but does not hear the gateway"
WHERE_UNHEARD = (
    "Check the wire from the gateway's TX to the board's RX pin, a level shifter between them, and"
    " what else is on that pin, such as a shield on D0. A sketch that reads Serial itself takes the"
    " answers away, too"
)


def _other_version(version: int, path: str) -> str:
    return (
        f"the device speaks version {version} of the link, this gateway"
        f" {PLAIN} and {KEYED}: `onceway device read --port {path}` says which board it is, and"
        f" `onceway device flash NAME --port {path}` writes this release's firmware"
    )


class SerialListener:
    """A listener that opens the ports of a path or pattern whenever they exist, and hands each
    device's session to `accept`. path: a device file, preferably one of /dev/serial/by-id, or a
    pattern with *, ? or [ ]. baud: rate of all ports. lent: device files that other processes use
    with the gateway's consent. The caller changes this set, and calls `lend` for each added device
    file.
    """

    def __init__(
        self,
        accept: Accept,
        path: str,
        greeter: Greeter,
        *,
        baud: int = 115200,
        name: str = "serial",
        lent: Set[str] = frozenset(),
    ) -> None:
        self._accept = accept
        self._lent = lent
        self._path = path
        self._greeter = greeter
        self._baud = baud
        self._name = name
        self._ports: dict[str, SerialPort] = {}
        self._scan_timer: asyncio.TimerHandle | None = None
        self._scanned = 0.0

    async def start(self) -> None:
        """Open the ports that exist, and keep looking for further ones. A missing port is not
        reported: it may be plugged in later.
        """
        cmac(NO_KEY, b"")  # load the library before the first greeting
        self._scan()

    async def close(self) -> None:
        """Close all ports. For the broker, the connections that it has not closed are lost."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        for port in self._ports.values():
            port.close("the gateway closes the port")

    def lend(self, device: str) -> None:
        """If this listener has opened a device, close its port, so that another process can use it.
        device: the device file to which the port's path points.
        """
        for port in self._ports.values():
            if port.device == device:
                port.lend()

    @property
    def ports(self) -> list[PortStatus]:
        """The status of each port seen since the start."""
        return [port.status for port in self._ports.values()]

    @property
    def stalled_s(self) -> float:
        """Seconds since the last search for ports. The watchdog checks this number."""
        return asyncio.get_running_loop().time() - self._scanned

    def _scan(self) -> None:
        loop = asyncio.get_running_loop()
        self._scan_timer = loop.call_later(SCAN_INTERVAL, self._scan)
        # Two names of one device (by-id and by-path, both matched by a pattern) make one port.
        in_use = {port.device for port in self._ports.values() if port.is_open} | self._lent
        paths = glob.glob(self._path) if glob.has_magic(self._path) else [self._path]
        for path in paths:
            port = self._ports.get(path)
            if (port is not None and port.is_open) or (device := os.path.realpath(path)) in in_use:
                continue
            if port is None:
                port = self._ports[path] = SerialPort(
                    path, self._baud, self._name, self._accept, self._greeter
                )
            port.device = device
            try:
                port.open()
            except Exception as error:
                blame(path, error, "cannot be opened: internal error")
            in_use.add(device)
        self._scanned = loop.time()
