"""One radio of a gateway: its turn link, its modem, and the duty cycle. Sans-IO.

In: bytes of the modem's port, MQTT for boards (through `link.write`), the time. Out: events of the
link, bytes for the port, and the record of airtime, which must be on disk before more is sent
(`record`, `recorded`). If the legal limit, the record or the modem delays a frame for longer than
its board listens, the frame is only counted, and the board asks again.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from gateway.links.lora import radio, turns
from gateway.links.lora.duty import Ledger
from gateway.links.lora.frames import HEADER_SIZE
from gateway.links.lora.ledger_file import Ledgers
from gateway.links.lora.turns import Outgoing, TurnLink


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal of a board's last frame. at: time of the frame's end, in seconds. rssi: dBm. snr: dB.
    None if the radio does not report it.
    """

    at: float
    rssi: float | None
    snr: float | None


@dataclass(frozen=True, slots=True)
class RadioReady:
    """Event: the radio is ready. description: the modem's description of itself."""

    description: str


@dataclass(frozen=True, slots=True)
class RadioFailed:
    """Event: the radio does not work until its port is opened again, and `open` is called. reason:
    a text for the log.
    """

    reason: str


Event = turns.Event | RadioReady | RadioFailed


class Station:
    """A radio with the link that runs on it. band: the sub-band of its channel, a name in
    `ledgers`. boards: returns the airtime, in seconds, of a board's frame by its length in bytes.
    overhear: called with each received frame, of any station, and the outcome (`TurnLink.result`).
    """

    def __init__(
        self,
        modem: radio.Radio,
        link: TurnLink,
        ledgers: Ledgers,
        band: str,
        boards: Callable[[int], float],
        overhear: Callable[[radio.Heard, str], None] = lambda heard, result: None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Number of frames for boards by outcome: `sent`, or the reason why the frame was not
        sent.
        """
        self.heard_s = self.sent_s = 0.0
        """Airtime since the start, in seconds: `heard_s` of received frames, `sent_s` of sent
        frames.
        """
        self.signals: dict[int, Signal] = {}
        """Signal of the last frame of each device, by device number, also of devices of other
        networks.
        """
        self._channel = Ledger(1.0)
        """Airtime of all received frames, of any station, within the last hour."""
        self._heard: dict[int, Ledger] = {}
        """Airtime of received frames within the last hour, by device number."""
        self.link = link
        self._boards = boards
        self._overhear = overhear
        self._modem = modem
        self._ledgers = ledgers
        self._band = band
        self._queue: list[Outgoing] = []
        self._retry: float | None = None
        self._recording = False

    def open(self, now: float) -> None:
        """Set up the modem. Call this when the port is open."""
        self._modem.open(now)

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Handle bytes from the port, which may begin and end anywhere. Return the events."""
        return self._on_events(self._modem.receive(data, now), now)

    def tick(self, now: float) -> list[Event]:
        """Handle deadlines that have passed, and return the events. Call this at `deadline`, and
        after `link.write` and `recorded`.
        """
        return self._on_events(self._modem.tick(now), now)

    def take(self) -> bytes:
        """Return the queued bytes to write to the port, and empty the queue."""
        return self._modem.take()

    def record(self, now: float) -> bytes | None:
        """Return new contents for the record of airtime, or None if it need not be written now.
        Call `recorded` when the contents are on disk, or `not_recorded` if writing them failed.
        Meanwhile, airtime that was granted earlier may be used.
        """
        longest = max((self._airtime(out) for out in self._queue), default=0.0)
        short = longest > self._ledgers.granted(self._band)
        if self._recording or not (short or self._ledgers.low(self._band)):
            return None
        self._recording = True
        return self._ledgers.ask(self._band, longest, now)

    def recorded(self) -> None:
        self._ledgers.grant()
        self._recording = False

    def not_recorded(self) -> None:
        """Note that the record could not be written. The airtime that it was to reserve is not
        granted. From now on, `record` may return new contents.
        """
        self._recording = False

    def load(self, now: float) -> float:
        """Return the airtime, in seconds, of all frames received in the hour that ends now."""
        return self._channel.used(now)

    def heard(self, device: int, now: float) -> float:
        """Return the airtime, in seconds, of a device's frames received in the hour that ends
        now.
        """
        return self._heard[device].used(now) if device in self._heard else 0.0

    @property
    def deadline(self) -> float | None:
        """Time of the next call of `tick`; None if no call is needed."""
        moments = [self._modem.deadline, self._retry]
        return min((moment for moment in moments if moment is not None), default=None)

    def _on_events(self, found: list[radio.Event], now: float) -> list[Event]:
        events: list[Event] = []
        for event in found:
            match event:
                case radio.Heard(frame, at, rssi, snr):
                    events += self.link.receive(frame, at)
                    self._overhear(event, self.link.result)
                    airtime = self._boards(len(frame))
                    self.heard_s += airtime
                    self._channel.add(airtime, at - airtime)
                    if len(frame) >= HEADER_SIZE:
                        self.signals[frame[1]] = Signal(at, rssi, snr)
                        self._heard.setdefault(frame[1], Ledger(1.0)).add(airtime, at - airtime)
                case radio.Sent(_, done):
                    self.counts["sent" if done else "failed"] += 1
                case radio.Ready(told):
                    events.append(RadioReady(told))
                case radio.Failed(reason):
                    events.append(RadioFailed(reason))
        self._queue += self.link.take(now)
        self._send(now)
        return events

    def _send(self, now: float) -> None:
        """Send the frame whose board stops listening first, if the radio and the limits allow it.
        Drop each frame that can no longer begin in time.
        """
        self._retry = None
        self._queue.sort(key=lambda out: out.until)
        while self._queue:
            out = self._queue[0]
            airtime = self._airtime(out)
            wait = self._ledgers.ledger(self._band).wait(airtime, now)
            if now + wait > out.until:
                self._queue.pop(0)
                self.counts["law" if wait else "late"] += 1
                continue
            blocked = airtime > self._ledgers.granted(self._band) or not self._modem.idle
            if wait or blocked:
                self._retry = now + wait if wait else out.until
                return
            self._queue.pop(0)
            self._ledgers.spend(self._band, airtime, now)
            self.sent_s += airtime
            self._modem.send(out.frame, now)

    def _airtime(self, out: Outgoing) -> float:
        return self._modem.airtime(len(out.frame))
