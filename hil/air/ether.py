"""Decide which radios hear a frame. No I/O.

In: radios that listen, sleep and send, with the time. Out: when a frame ends, the radios that heard
it, with RSSI and SNR.

A radio hears a frame if it listens on its channel from the last symbols of the preamble to the end.
The signal must be strong enough. No other frame on that channel may be nearly as strong at the
receiver. If the run replays a recorded link, this link must not lose the frame. A radio that sends
does not listen.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hil.air.law import Judge
from hil.air.physics import CAPTURE, LOWEST_SNR, NEEDED_PREAMBLE, NOISE, Channel, airtime, received

INJECTED = 14.0
"""Power with which a radio that does not belong to the run sends (`Ether.inject`), in dBm."""

Place = tuple[float, float]


@dataclass(eq=False, slots=True)
class Radio:
    """A radio, with its position and counts. place: x and y in metres."""

    name: str
    place: Place
    channel: Channel | None = None
    """Channel of the receiver; None while the radio sleeps or sends."""
    since: float = 0.0
    """Time at which the radio began to listen on `channel`, in seconds of the ether."""
    sending: "Frame | None" = None
    counts: Counter[str] = field(default_factory=Counter)
    """Frames by outcome: `sent`, `heard`, `foreign`, or the reason why a frame was not heard."""
    airtime: float = 0.0
    """Airtime of the frames sent, in seconds."""


@dataclass(eq=False, slots=True)
class Frame:
    """A transmitted frame. preamble: symbols. power: dBm. start, end: seconds of the ether."""

    sender: Radio
    data: bytes
    channel: Channel
    preamble: int
    power: float
    start: float
    end: float
    cut: bool = False
    """Whether the sender lost power during the frame."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A frame as one radio heard it. rssi: dBm. snr: dB."""

    radio: Radio
    data: bytes
    rssi: float
    snr: float


class Ether:
    """The simulated air of a run. loses: called with sender, receiver and the start of a frame in
    seconds; returns whether this receiver loses the frame.
    """

    def __init__(
        self,
        judge: Judge,
        loses: Callable[[str, str, float], bool] = lambda sender, receiver, now: False,
    ) -> None:
        self.judge = judge
        self.radios: dict[str, Radio] = {}
        self._loses = loses
        self._recent: list[Frame] = []
        """Frames on the air, and ended frames that overlap with one of them."""

    def join(self, name: str, place: Place) -> Radio:
        """Add a radio, which sleeps at first. Raises ValueError if the name is in use."""
        if name in self.radios:
            raise ValueError(f"two radios called {name}")
        radio = self.radios[name] = Radio(name, place)
        return radio

    def carry(self, name: str, place: Place) -> None:
        """Move a radio to a place. Raises ValueError for an unknown name."""
        if name not in self.radios:
            raise ValueError(f"no radio called {name}")
        self.radios[name].place = place

    def listen(self, radio: Radio, channel: Channel | None, now: float) -> None:
        """Let a radio listen on a channel, or sleep (None). Raises ValueError while it sends."""
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
        """Begin to send a frame. The caller must call `end` at the time `Frame.end`. coding: 1…4
        for 4/5…4/8. preamble: symbols. power: dBm. Raises ValueError while the radio sends, and if
        no frame can have this length or spreading factor.
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
        """Send a frame of a foreign radio on the channel on which `radio` listens. The frame takes
        no time and overlaps with no other frame. Return each radio that heard it; its count
        `foreign` grows. Raises ValueError if `radio` does not listen.
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
        """End the transmission of a frame. Return the radios that heard the frame. The radio that
        sent it sleeps from now on.
        """
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
        """Return the frame as this radio heard it, or the reason why it was not heard."""
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
