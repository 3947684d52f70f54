"""Who hears what. Sans-IO.

In: radios that listen, sleep and send, with the time. Out: when a frame ends, the radios that have
heard it, with RSSI and SNR.

A frame is heard by a radio that listens on its channel from the last symbols of the preamble to the
end (so it does not send meanwhile), if the signal is strong enough, if no other frame on that
channel is nearly as strong at that place, and if the link's recording does not lose it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hil.air.law import Judge
from hil.air.physics import (
    CAPTURE,
    LOWEST_SNR,
    NEEDED_PREAMBLE,
    NOISE,
    Channel,
    airtime,
    received,
)

INJECTED = 14.0
"""dBm of a foreign radio."""

Place = tuple[float, float]


@dataclass(eq=False, slots=True)
class Radio:
    """place: metres."""

    name: str
    place: Place
    channel: Channel | None = None
    """Where it listens; None: it sleeps or sends."""
    since: float = 0.0
    """When it began to."""
    sending: "Frame | None" = None
    counts: Counter[str] = field(default_factory=Counter)
    """Frames: sent, heard; not heard, by reason."""
    airtime: float = 0.0
    """Seconds sent."""


@dataclass(eq=False, slots=True)
class Frame:
    """One that is or was on the air. power: dBm. start, end: seconds."""

    sender: Radio
    data: bytes
    channel: Channel
    preamble: int
    power: float
    start: float
    end: float
    cut: bool = False
    """The sender lost its power meanwhile."""


@dataclass(frozen=True, slots=True)
class Heard:
    """rssi: dBm. snr: dB."""

    radio: Radio
    data: bytes
    rssi: float
    snr: float


class Ether:
    """loses: whether a link (sender, receiver) loses a frame that begins at this time."""

    def __init__(
        self,
        judge: Judge,
        loses: Callable[[str, str, float], bool] = lambda sender, receiver, now: False,
    ) -> None:
        self.judge = judge
        self.radios: dict[str, Radio] = {}
        self._loses = loses
        self._recent: list[Frame] = []
        """On the air, or over so lately that they may have met one that still is."""

    def join(self, name: str, place: Place) -> Radio:
        """Raises ValueError: there is one of this name."""
        if name in self.radios:
            raise ValueError(f"two radios called {name}")
        radio = self.radios[name] = Radio(name, place)
        return radio

    def carry(self, name: str, place: Place) -> None:
        """The radio is there from now on. Raises ValueError: there is none of this name."""
        if name not in self.radios:
            raise ValueError(f"no radio called {name}")
        self.radios[name].place = place

    def listen(self, radio: Radio, channel: Channel | None, now: float) -> None:
        """Listen there from now on; None: sleep. Raises ValueError: it sends."""
        if radio.sending is not None:
            raise ValueError(f"{radio.name} listens while it sends")
        if radio.channel != channel:
            radio.channel, radio.since = channel, now

    def send(
        self,
        radio: Radio,
        data: bytes,
        channel: Channel,
        now: float,
        *,
        coding: int = 1,
        preamble: int = 8,
        power: float = 14.0,
    ) -> Frame:
        """Begin a frame; call `end` at its end. Raises ValueError: it sends already, or cannot send
        that.
        """
        if radio.sending is not None:
            raise ValueError(f"{radio.name} sends two frames at once")
        if not 1 <= len(data) <= 255 or channel.factor not in LOWEST_SNR:
            raise ValueError(f"{radio.name} sends {len(data)} bytes at SF{channel.factor}")
        end = now + airtime(channel, coding, preamble, len(data))
        frame = Frame(radio, data, channel, preamble, power, now, end)
        radio.channel, radio.sending = None, frame
        oldest = min((each.start for each in self._recent if each.end > now), default=now)
        self._recent = [each for each in self._recent if each.end > oldest]
        self._recent.append(frame)
        return frame

    def inject(self, radio: Radio, data: bytes, now: float) -> list[Heard]:
        """A frame of a foreign radio that takes no time and meets no other, on the channel where it
        listens: return who has heard it. They count it as `foreign`.
        """
        if radio.channel is None:
            raise ValueError(f"{radio.name} listens nowhere")
        found = []
        for other in self.radios.values():
            meets = other.channel is not None and other.channel.meets(radio.channel)
            if other is not radio and meets and other.since <= now:
                rssi = received(INJECTED, radio.place, other.place)
                found.append(Heard(other, data, rssi, rssi - NOISE))
                other.counts["foreign"] += 1
        return found

    def end(self, frame: Frame) -> list[Heard]:
        """The frame is over: return who has heard it. The sender sleeps until it says more."""
        sender = frame.sender
        sender.sending = None
        sender.counts["sent"] += 1
        sender.airtime += frame.end - frame.start
        channel = frame.channel
        self.judge.sent(
            sender.name, channel.frequency, channel.bandwidth, frame.power, frame.start, frame.end
        )
        found = []
        for radio in self.radios.values():
            if radio is not sender and not frame.cut:
                result = self._at(frame, radio)
                if isinstance(result, Heard):
                    found.append(result)
                radio.counts["heard" if isinstance(result, Heard) else result] += 1
        return found

    def _at(self, frame: Frame, radio: Radio) -> Heard | str:
        """What becomes of it there; a reason when it is not heard."""
        needed = frame.start + (frame.preamble - NEEDED_PREAMBLE) * frame.channel.symbol
        if radio.channel is None or not radio.channel.meets(frame.channel) or radio.since > needed:
            return "deaf"
        rssi = received(frame.power, frame.sender.place, radio.place)
        if rssi - NOISE < LOWEST_SNR[frame.channel.factor]:
            return "too weak"
        for other in self._recent:
            meets = other.start < frame.end and other.end > frame.start
            if other is not frame and meets and other.channel.meets(frame.channel):
                theirs = received(other.power, other.sender.place, radio.place)
                if rssi - theirs < CAPTURE:
                    return "collided"
        if self._loses(frame.sender.name, radio.name, frame.start):
            return "lost"
        return Heard(radio, frame.data, rssi, rssi - NOISE)
