"""Radio boards: a listener that opens the modem at a serial port whenever the port exists, and runs
a `Station` on it.

In: a path and the legal limits. Out: a `Transport` for each session of a board, handed to `accept`.
A thread writes the record of airtime. Sessions outlive the modem: a board retries until it gets an
answer, so a modem that is soon plugged in again breaks no connection.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway.errors import OncewayError
from gateway.links.faults import blame
from gateway.links.lora.airtime import Modulation
from gateway.links.lora.exchange import Radio as Kind
from gateway.links.lora.kiss import KissModem
from gateway.links.lora.ledger_file import Ledgers, read, read_count, write
from gateway.links.lora.plan import most_heard
from gateway.links.lora.radio import Heard, Radio
from gateway.links.lora.rylr998 import Rylr998
from gateway.links.lora.station import Event, RadioFailed, RadioReady, Station
from gateway.links.lora.status import BoardSignal, Overheard, RadioStatus
from gateway.links.lora.transports import Transports
from gateway.links.lora.turns import Others, TurnLink
from gateway.links.transport import Accept
from gateway.links.tty import Tty
from gateway.system.causes import cause
from gateway.system.logs import about
from gateway.system.regions import Region

log = logging.getLogger(__name__)

_RECORD = "the record of airtime"

RETRY_S = 5.0
"""Seconds between two attempts to open a missing or failed modem."""

NUMBERS = range(1, 255)
"""Numbers that a board may have (FORMAT.md, Frame)."""

NEAR, CALM = 0.8, 0.7
"""A warning is logged when the used share of a limit reaches NEAR. The next warning is possible
after the share has fallen below CALM.
"""

HOUR = 3600.0

_BAUD = 115_200
_READ_SIZE = 4096
_TIMER_STEP = 0.001
_OUTGOING_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a radio. frequency: Hz. factor: spreading factor. power: dBm. network:
    network number of the site.
    """

    port: str
    modem: Kind
    region: Region
    frequency: int
    factor: int
    power: int
    network: int


def _radio(settings: Settings) -> tuple[Radio, Callable[[int], float]]:
    """Return the configured radio, and a function from the length of a board's frame in bytes to
    its airtime in seconds.
    """
    boards = Modulation(settings.factor)
    if settings.modem is Kind.RYLR998:
        radio = Rylr998(settings.frequency, boards, settings.power)
        return radio, radio.airtime
    return KissModem(settings.frequency, boards, settings.power), boards.airtime


class Limit:
    """Decides when to warn that a quantity comes near its limit. near: whether it is near now."""

    def __init__(self) -> None:
        self.near = False

    def comes_near(self, share: float) -> bool:
        """Update `near`. share: quantity divided by limit. Return whether a warning is due now."""
        before, self.near = self.near, share >= (CALM if self.near else NEAR)
        return self.near and not before


class LoraListener:
    """The listener of one radio. key, name: return the key and the name of a board by its number,
    or None for a board that is not admitted. utc: returns seconds since 1970, 0 while unknown.
    machine: identifies this start of the machine. record: the file with the airtime. disk: executor
    that writes this file. overhear: called with each received frame. others: other gateways of the
    site; None if no site is configured.
    """

    def __init__(
        self,
        accept: Accept,
        settings: Settings,
        *,
        key: Callable[[int], bytes | None],
        name: Callable[[int], str | None],
        utc: Callable[[], float],
        machine: str,
        record: Path,
        disk: Executor,
        overhear: Callable[[Overheard], None] = lambda overheard: None,
        others: Others | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._name = name
        self._overhear = overhear
        self._workable = most_heard(settings.factor, settings.modem) * HOUR
        self._budget, self._load = Limit(), Limit()
        """Limits of airtime in an hour. Each causes a warning in the log when it is nearly reached.
        `_budget`: the airtime that the radio may send. `_load`: the airtime that it can receive.
        """
        self._file = record
        self._disk = disk
        self._band = settings.region.band(settings.frequency)
        self._modem, boards = _radio(settings)
        self._link = TurnLink(
            settings.network,
            key,
            utc=utc,
            airtime=self._modem.airtime,
            longest=self._modem.longest,
            others=others,
        )
        self._ledgers = Ledgers(
            settings.region, machine, _read(record), self._loop.time(), _read_count(record)
        )
        self._station = Station(
            self._modem, self._link, self._ledgers, self._band.name, boards, self._on_heard
        )
        self._transports = Transports(
            self._link, accept, name, listener=settings.port, path=settings.port, wake=self._wake
        )
        self._tty: Tty | None = None
        self._model = ""
        self._problem: str | None = None
        self._outgoing = b""
        self._awake = False
        self._timer: asyncio.Handle | None = None
        self._again: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open the modem if its port exists, and keep trying until it opens."""
        self._open()

    async def close(self) -> None:
        """Close the port. Sessions that the broker has not closed are lost."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._close_port()
        self._transports.lose("the gateway closes the radio")

    @property
    def status(self) -> RadioStatus:
        now = self._loop.time()
        ledger = self._ledgers.ledger(self._band.name)
        boards = [
            BoardSignal(
                name, now - signal.at, signal.rssi, signal.snr, self._station.heard(number, now)
            )
            for number, signal in sorted(self._station.signals.items())
            if (name := self._name(number)) is not None
        ]
        return RadioStatus(
            self._settings.port,
            self._tty is not None and self._problem is None,
            self._model,
            self._problem,
            self._band.rule,
            ledger.used(now),
            ledger.limit,
            dict(self._link.counts + self._station.counts + self._modem.counts),
            self._transports.names,
            boards,
            self._settings.region.name,
            self._settings.frequency,
            self._settings.factor,
            self._settings.network,
            {number: name for number in NUMBERS if (name := self._name(number)) is not None},
            self._band.name,
            self._station.heard_s,
            self._station.sent_s,
            self._station.load(now),
            self._workable,
            self._warnings(now),
        )

    def _on_heard(self, heard: Heard, result: str) -> None:
        frame = heard.frame
        ours = len(frame) > 1 and frame[0] == self._settings.network
        name = self._name(frame[1]) if ours else None
        fields = frame.hex(), heard.rssi, heard.snr, name, result
        self._overhear(Overheard(self._settings.port, *fields))

    def _look_at_limits(self, now: float) -> None:
        """Log a warning if the sent airtime comes near the legal limit, or if the received airtime
        comes near the largest airtime that a working channel can carry.
        """
        ledger = self._ledgers.ledger(self._band.name)
        if self._budget.comes_near(ledger.used(now) / ledger.limit):
            self._say(self._budget_is_near(now))
        if self._load.comes_near(self._station.load(now) / self._workable):
            self._say(self._load_is_near(now))

    def _warnings(self, now: float) -> list[str]:
        """Return a warning for each limit that is nearly reached: the budget of airtime, and the
        load.
        """
        self._look_at_limits(now)
        limits = (self._budget, self._budget_is_near), (self._load, self._load_is_near)
        return [text(now) for limit, text in limits if limit.near]

    def _budget_is_near(self, now: float) -> str:
        ledger = self._ledgers.ledger(self._band.name)
        return (
            f"the radio has used {ledger.used(now):.0f} of the {ledger.limit:.0f} s that it may"
            f" send in an hour ({self._band.rule}): boards will soon have to wait. `onceway radio"
            " plan` says what this site can carry"
        )

    def _load_is_near(self, now: float) -> str:
        return (
            f"the radio has heard {self._station.load(now):.0f} s of frames within an hour, of the"
            f" {self._workable:.0f} s that a full channel carries at SF{self._settings.factor}:"
            " soon most frames collide. `onceway radio plan` says what this site can carry"
        )

    def _open(self) -> None:
        self._again = None
        try:
            self._tty = Tty(self._settings.port, _BAUD)
        except OncewayError as error:
            self._warn(f"{error.what}. {error.hint or ''}".strip())
            self._try_again()
            return
        self._loop.add_reader(self._tty.fd, self._do, self._on_readable, self._tty)
        self._station.open(self._loop.time())
        self._flush([])

    def _try_again(self) -> None:
        if self._again is None:
            self._again = self._loop.call_later(RETRY_S, self._do, self._open)

    def _close_port(self) -> None:
        tty, self._tty = self._tty, None
        if tty is None:
            return
        self._loop.remove_reader(tty.fd)
        self._loop.remove_writer(tty.fd)
        tty.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._outgoing = b""

    def _do(self, call: Callable[..., None], *args: object) -> None:
        """Run a callback of the event loop. After an internal error the modem is opened again."""
        try:
            call(*args)
        except Exception as error:
            blame(self._settings.port, error, "radio closed and opened again: internal error")
            try:
                self._fail("internal error. Trying again until it works")
            except Exception as other:
                blame(self._settings.port, other, "radio not closed: internal error")

    def _fail(self, reason: str) -> None:
        self._try_again()
        self._warn(reason)
        self._close_port()

    def _on_port_lost(self, tty: Tty, error: OSError) -> None:
        if tty is self._tty:
            self._fail(f"gone ({error.strerror}). Waiting for it to come back")

    def _on_readable(self, tty: Tty) -> None:
        try:
            data = tty.read(_READ_SIZE)
        except OSError as error:
            self._on_port_lost(tty, error)
            return
        self._flush(self._station.receive(data, self._loop.time()))

    def _on_writable(self, tty: Tty) -> None:
        self._loop.remove_writer(tty.fd)
        self._flush([])

    def _on_timer(self) -> None:
        self._timer = None
        self._flush([])

    def _wake(self) -> None:
        """Schedule a call of `_flush`. The broker calls this after a write, so the work must not
        run inside the call.
        """
        if not self._awake:
            self._awake = True
            self._loop.call_soon(self._do, self._on_wake)

    def _on_wake(self) -> None:
        self._awake = False
        self._flush([])

    def _flush(self, events: Iterable[Event]) -> None:
        """Handle the station's events and deadlines, write its bytes, and set the timer."""
        self._transports.go_on()
        self._handle(events)
        if self._tty is None:
            return
        now = self._loop.time()
        self._handle(self._station.tick(now))
        if self._tty is None:  # the modem has failed
            return
        if (data := self._station.record(now)) is not None:
            writing = self._loop.run_in_executor(
                self._disk, write, self._file, data, self._ledgers.count
            )
            writing.add_done_callback(partial(self._do, self._on_recorded))
        self._transports.go_on()
        self._look_at_limits(now)
        self._write(self._tty)
        self._arm()

    def _handle(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case RadioReady(told):
                    self._model, self._problem = told, None
                    log.info(
                        "%s: %s, %g MHz, SF%d, %d dBm. %s",
                        self._settings.port,
                        told,
                        self._settings.frequency / 1e6,
                        self._settings.factor,
                        self._settings.power,
                        self._band.rule,
                        extra=about(port=self._settings.port),
                    )
                case RadioFailed(reason):
                    self._fail(f"{reason}. Trying again until it works")
                case _:
                    self._transports.handle(event)

    def _on_recorded(self, writing: "asyncio.Future[None]") -> None:
        if writing.cancelled():
            return
        if (error := writing.exception()) is not None:
            why = cause(error).reason
            self._warn(f"{_RECORD} cannot be written: {why} ({error}). Nothing more is sent")
            self._station.not_recorded()
            self._loop.call_later(RETRY_S, self._wake)
            return
        if self._problem is not None and self._problem.startswith(_RECORD):
            self._problem = None
            self._say(f"{_RECORD} can be written again, so the radio may send")
        self._station.recorded()
        self._flush([])

    def _write(self, tty: Tty) -> None:
        outgoing = self._outgoing + self._station.take()
        if not outgoing:
            return
        try:
            written = tty.write(outgoing)
        except OSError as error:
            self._loop.call_soon(self._do, self._on_port_lost, tty, error)
            return
        self._outgoing = outgoing[written : written + _OUTGOING_LIMIT]
        if self._outgoing:
            self._loop.add_writer(tty.fd, self._do, self._on_writable, tty)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline := self._station.deadline) is not None:
            # uvloop counts whole milliseconds: add one step, so that the timer does not fire early
            # and spin
            self._timer = self._loop.call_at(deadline + _TIMER_STEP, self._do, self._on_timer)

    def _warn(self, text: str) -> None:
        """Keep a sentence as the radio's problem, and log it if it differs from the last one."""
        if text != self._problem:
            self._problem = text
            self._say(text)

    def _say(self, text: str) -> None:
        port = self._settings.port
        log.warning("%s: %s", port, text, extra=about(port=port))


def _read(file: Path) -> bytes | None:
    """Return the contents of the record of airtime; None if the record does not exist. If the
    record is unreadable, return contents with which the whole hour counts as used.
    """
    try:
        return read(file)
    except OSError as error:
        log.warning("%s: cannot be read (%s)", file, error.strerror)
        return b""


def _read_count(file: Path) -> int:
    """Return the number of the newest record, 0 if it is unknown or unreadable."""
    try:
        return read_count(file)
    except OSError as error:
        log.warning("%s: cannot read the number of the newest record (%s)", file, error.strerror)
        return 0
