"""What a LoRa signal costs, and how far it reaches. In: how and where somebody sends. Out: seconds,
dBm, dB. The rig has its own formulas, so that it does not judge the gateway by the gateway's.

Airtime: Semtech's LoRa modem calculator (SX1276 data sheet, 4.1.1.6 and 4.1.1.7), counted in chips.
Demodulation limits: the data sheet's table 13. Range: a path loss of 31.2 dB in the first metre
(free space at 868 MHz), then 29 dB a decade, as in a suburb.
"""

from dataclasses import dataclass
from math import hypot, log10

NOISE = -117.0
"""dBm in 125 kHz: thermal noise, and 6 dB of the receiver."""

CAPTURE = 6.0
"""dB by which one of two signals must be stronger to be heard in spite of the other."""

LOWEST_SNR = {7: -7.5, 8: -10.0, 9: -12.5, 10: -15.0, 11: -17.5, 12: -20.0}
"""dB, by spreading factor."""

NEEDED_PREAMBLE = 5
"""Symbols of it that a receiver must have heard."""

_FIRST_METRE, _DECADE = 31.2, 29.0


@dataclass(frozen=True, slots=True)
class Channel:
    """frequency, bandwidth: Hz. factor: the spreading factor, 7…12."""

    frequency: int
    bandwidth: int
    factor: int

    @property
    def symbol(self) -> float:
        """Seconds."""
        return float(1 << self.factor) / self.bandwidth

    def meets(self, other: "Channel") -> bool:
        """Whether a radio that listens on one hears what is sent on the other: it finds a signal
        that is a quarter of the bandwidth beside its frequency (SX1276 data sheet, 4.1.5).
        """
        return (
            self.bandwidth == other.bandwidth
            and self.factor == other.factor
            and abs(self.frequency - other.frequency) <= self.bandwidth // 4
        )


def airtime(channel: Channel, coding: int, preamble: int, length: int) -> float:
    """Return the seconds of a frame of so many bytes with explicit header and CRC. coding: 1…4 of
    4/5…4/8. preamble: symbols ahead of the synchronisation word.
    """
    slow = channel.symbol > 0.016  # low data rate optimisation: two bits of each symbol are idle
    nibbles = 2 * length + 4 + 5  # CRC, header
    nibbles_first = channel.factor - 2  # of the header's block, which is always of eight symbols
    left = max(nibbles - nibbles_first, 0)
    per_block = channel.factor - 2 * slow
    blocks = -(-left // per_block)
    symbols = preamble + 4.25 + 8 + blocks * (4 + coding)
    return symbols * channel.symbol


def received(power: float, place: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the dBm that arrive at `other` (metres) of what is sent with this power."""
    distance = max(hypot(place[0] - other[0], place[1] - other[1]), 1.0)
    return power - _FIRST_METRE - _DECADE * log10(distance)


def reach(power: float, factor: int) -> float:
    """Return the metres within which a frame of this power and spreading factor is heard."""
    return float(10 ** ((power - _FIRST_METRE - NOISE - LOWEST_SNR[factor]) / _DECADE))
