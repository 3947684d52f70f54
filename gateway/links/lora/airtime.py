"""Airtime of a LoRa frame, and how long a board keeps silent after the frame.

In: spreading factor, bandwidth, coding rate, preamble, and the length of a frame. Out: seconds. The
formula is Semtech's (AN1200.13, "LoRa Modem Designer's Guide", section 4; the SX1276 data sheet has
the same formula in 4.1.1.6 and 4.1.1.7).
"""

from dataclasses import dataclass
from math import ceil

FACTORS = range(7, 13)
"""Spreading factors of the turn link. (SF6 would need frames without a header.)"""

BANDWIDTHS = (125_000, 250_000, 500_000)
"""Bandwidths in Hz."""

LONGEST = 255
"""Longest frame that the radios accept, in bytes."""

_SLOW_SYMBOL = 0.016
"""Symbol time in seconds above which the radio must use the low data rate optimisation, which costs
two bits of each symbol.
"""


@dataclass(frozen=True, slots=True)
class Modulation:
    """The LoRa parameters that sender and receiver share. Raises ValueError for a value that LoRa
    does not have.
    """

    factor: int
    """Spreading factor, 7…12: the bits of one symbol, which takes 2^factor chips."""

    bandwidth: int = 125_000
    """Bandwidth in Hz; also the chips per second."""

    coding: int = 1
    """The coding rate is 4/(4 + coding); coding is 1…4."""

    preamble: int = 8
    """Symbols ahead of the synchronisation word, 6…65535."""

    header: bool = True
    """Whether each frame contains its length and coding rate (explicit header)."""

    crc: bool = True
    """Whether the radio appends two bytes of CRC to the frame."""

    def __post_init__(self) -> None:
        if self.factor not in FACTORS:
            raise ValueError(f"spreading factor {self.factor}: not 7…12")
        if self.bandwidth not in BANDWIDTHS:
            raise ValueError(f"bandwidth {self.bandwidth} Hz: not 125000, 250000 or 500000")
        if not 1 <= self.coding <= 4:
            raise ValueError(f"coding rate 4/{4 + self.coding}: not 4/5…4/8")
        if not 6 <= self.preamble <= 0xFFFF:
            raise ValueError(f"preamble of {self.preamble} symbols: not 6…65535")

    @property
    def symbol(self) -> float:
        """Duration of one symbol, in seconds."""
        return (1 << self.factor) / self.bandwidth

    @property
    def slow(self) -> bool:
        """Whether the low data rate optimisation is on: at 125 kHz, from SF11 on."""
        return self.symbol > _SLOW_SYMBOL

    def symbols(self, length: int) -> int:
        """Return how many symbols header, frame and CRC take, without the preamble. length: bytes
        of the frame, 0…255. Raises ValueError if the frame is longer than a radio sends.
        """
        if not 0 <= length <= LONGEST:
            raise ValueError(f"a frame of {length} bytes: not 0…{LONGEST}")
        bits = 8 * length - 4 * self.factor + 28 + 16 * self.crc - 20 * (not self.header)
        block = 4 * (self.factor - 2 * self.slow)
        return 8 + max(ceil(bits / block) * (self.coding + 4), 0)

    def airtime(self, length: int) -> float:
        """Return the seconds from a frame's first preamble symbol to its end, rounded to whole
        microseconds. length: bytes of the frame, 0…255. Raises ValueError if the frame is longer
        than a radio sends.
        """
        quarters = 4 * (self.preamble + self.symbols(length)) + 17
        return (quarters * (1_000_000 << self.factor) // (4 * self.bandwidth)) / 1e6


def silence_factor(longest: float, duty: float, hour: float = 3600.0) -> float:
    """Return the silence that a board keeps after a frame, as a multiple of the frame's airtime.

    longest: airtime of the board's longest frame, in seconds. duty: the legal limit, as a share of
    the time, 0…1. hour: seconds.

    If frames are much shorter than an hour, the silence is nearly 1/duty − 1. A silence of exactly
    1/duty − 1 would be a little too short: the worst hour begins with one frame and ends with
    another, and so contains almost one frame too many. The formula leaves room for the last frame.

    Raises ValueError if the longest frame alone exceeds the limit.
    """
    rest = duty * hour - longest
    if rest <= 0:
        raise ValueError(f"a frame of {longest:.3f} s is more than {duty:.1%} of {hour:g} s")
    return (hour - longest) / rest - 1
