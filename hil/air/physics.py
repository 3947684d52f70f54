"""Airtime and range of a LoRa signal.

In: parameters and places of a transmission. Out: seconds, dBm, dB. The rig has its own formulas, so
that the gateway is not checked with its own formulas.

Airtime: Semtech's LoRa modem calculator (SX1276 data sheet, 4.1.1.6 and 4.1.1.7), counted in chips.
Demodulation limits: the data sheet's table 13. Range: a path loss of 31.2 dB in the first metre
(free space at 868 MHz), then 29 dB a decade, as in a suburb.
"""

from dataclasses import dataclass
from math import hypot, log10

NOISE = -117.0
"""Noise power in 125 kHz, in dBm: thermal noise, and 6 dB for the receiver."""

CAPTURE = 6.0
"""Number of dB by which a signal must exceed another signal to be received despite it."""

LOWEST_SNR = {7: -7.5, 8: -10.0, 9: -12.5, 10: -15.0, 11: -17.5, 12: -20.0}
"""Lowest SNR in dB at which a frame can be received, by spreading factor."""

NEEDED_PREAMBLE = 5
"""Number of preamble symbols that a receiver needs."""

_FIRST_METRE, _DECADE = 31.2, 29.0


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel. frequency, bandwidth: Hz. factor: the spreading factor, 7…12."""

    frequency: int
    bandwidth: int
    factor: int

    @property
    def symbol(self) -> float:
        """Length of a symbol in seconds."""
        return float(1 << self.factor) / self.bandwidth

    def meets(self, other: "Channel") -> bool:
        """Return whether a radio that listens on one channel hears a frame on the other. A radio
        finds signals that are off by up to a quarter of the bandwidth (SX1276 data sheet, 4.1.5).
        """
        return (
            self.bandwidth == other.bandwidth
            and self.factor == other.factor
            and abs(self.frequency - other.frequency) <= self.bandwidth // 4
        )


def airtime(channel: Channel, coding: int, preamble: int, length: int) -> float:
    """Return the airtime in seconds of a frame of `length` bytes with explicit header and CRC.
    coding: 1…4 for 4/5…4/8. preamble: symbols before the synchronisation word.
    """
    slow = channel.symbol > 0.016  # low data rate optimisation: two bits of each symbol are idle
    nibbles = 2 * length + 4 + 5  # CRC, header
    nibbles_first = channel.factor - 2  # in the header's block, always of eight symbols
    nibbles_left = max(nibbles - nibbles_first, 0)
    per_block = channel.factor - 2 * slow
    blocks = -(-nibbles_left // per_block)
    symbols = preamble + 4.25 + 8 + blocks * (4 + coding)
    return symbols * channel.symbol


def received(power: float, place: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the power in dBm at the receiver. power: power of the sender in dBm. place: position
    of the sender. other: position of the receiver. Both are in metres.
    """
    distance = max(hypot(place[0] - other[0], place[1] - other[1]), 1.0)
    return power - _FIRST_METRE - _DECADE * log10(distance)


def reach(power: float, factor: int) -> float:
    """Return the range in metres of a frame with this power and spreading factor."""
    return float(10 ** ((power - _FIRST_METRE - NOISE - LOWEST_SNR[factor]) / _DECADE))
