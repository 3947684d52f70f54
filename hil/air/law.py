"""Checks the legal limit of each radio's airtime in each sliding hour. A board does not count an
hour: it must be silent after each frame. In: transmissions, in seconds of the ether's clock. Out:
the worst hour of each radio in each sub-band, and breaches in words. The sub-bands are those of EN
300 220-2 table B.1. The rig has its own table of them, so that the gateway is not checked with its
own table.
"""

from collections import deque
from dataclasses import dataclass

HOUR = 3600.0
SILENT = 0.98
"""Part of a board's silence that it must keep by the ether's clock: its own clock may be wrong by
half a percent."""
STALLED = 1.0
"""Further tolerance in s: a simulated board that a busy machine has stopped makes up for it."""
TOLERANCE = 0.001
"""Tolerance in seconds, because clocks are read in milliseconds."""


@dataclass(frozen=True, slots=True)
class SubBand:
    """A sub-band. low, high: Hz. duty: limit, as a share of an hour. power: limit, dBm e.r.p."""

    name: str
    low: int
    high: int
    duty: float
    power: float


EU868 = (
    SubBand("K", 863_000_000, 865_000_000, 0.001, 14),
    SubBand("L", 865_000_000, 868_000_000, 0.01, 14),
    SubBand("M", 868_000_000, 868_600_000, 0.01, 14),
    SubBand("N", 868_700_000, 869_200_000, 0.001, 14),
    SubBand("P", 869_400_000, 869_650_000, 0.1, 27),
    SubBand("R", 869_700_000, 870_000_000, 0.01, 14),
)


class Judge:
    """The airtimes of all radios, compared with the law. hour: seconds of the ether that count as
    the law's hour; a bench may shorten it. boards: how the names of boards begin: after a frame of
    t seconds, a board must be silent for t * (1 / duty - 1) (gateway/links/lora/FORMAT.md). None:
    no radio must.
    """

    def __init__(self, hour: float = HOUR, boards: str | None = None) -> None:
        self._boards = boards
        self.breaches: list[str] = []
        self.worst: dict[tuple[str, str], float] = {}
        """Longest airtime in any hour, in seconds, by radio and sub-band."""
        self._hour = hour
        self._sent: dict[tuple[str, str], deque[tuple[float, float]]] = {}

    def sent(
        self, radio: str, frequency: int, bandwidth: int, power: float, start: float, end: float
    ) -> None:
        """Add a transmission that has ended. Call this in order of time for each radio. frequency,
        bandwidth: Hz. power: dBm. start, end: seconds.
        """
        low, high = frequency - bandwidth // 2, frequency + bandwidth // 2
        band = next((band for band in EU868 if band.low <= low and high <= band.high), None)
        if band is None:
            self.breaches.append(f"{radio}: {frequency / 1e6:g} MHz is outside of all sub-bands")
            return
        if power > band.power:
            self.breaches.append(f"{radio}: {power:g} dBm, but {band.name} allows {band.power:g}")
        hour = self._sent.setdefault((radio, band.name), deque())
        if hour and self._boards is not None and radio.startswith(self._boards):
            first, last = hour[-1]
            due = (last - first) * (1 / band.duty - 1)
            if start - last < SILENT * due - STALLED:
                self.breaches.append(
                    f"{radio}: silent for {start - last:.2f} s after a frame of {last - first:.3f}"
                    f" s at {start:.3f} s, but must be for {due:.2f} s"
                )
        hour.append((start, end))
        while hour[0][1] <= end - self._hour:
            hour.popleft()
        used = sum(last - max(first, end - self._hour) for first, last in hour)
        key = radio, band.name
        self.worst[key] = max(self.worst.get(key, 0.0), used)
        if used > band.duty * self._hour + TOLERANCE:
            self.breaches.append(
                f"{radio}: sent {used:.3f} s in the {self._hour:g} s up to {end:.3f} s, but band"
                f" {band.name} allows {band.duty * self._hour:g} s"
            )
