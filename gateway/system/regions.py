"""Legal limits of radio transmission, by region.

In: a frequency. Out: its sub-band, with the rules. Only regions whose rules are enforced here can
be chosen; a new region is a new entry in `REGIONS`.

EU868 is ETSI EN 300 220-2 V3.2.1, table B.1; the sub-bands have the table's letters. Countries may
differ (ERC/REC 70-03, appendix 1 and 3): the radio's owner must check. The standard itself was not
at hand for the verification. All edges, duty cycles and powers, and the letters K to P, agree with
The Things Network's list of the standard's pages 21 and 22; K and N also with a quotation of page
22 (LoRaMac-node, pull request 750). That list calls the last sub-band Q.
"""

from dataclasses import dataclass

from gateway.errors import OncewayError


@dataclass(frozen=True, slots=True)
class SubBand:
    """A frequency range with its own legal rules. low, high: its edges in Hz."""

    name: str
    low: int
    high: int

    duty: float
    """Duty cycle: the share of each hour in which one radio may send (EN 300 220-1, 5.4)."""

    power: int
    """Highest radiated power, in dBm e.r.p., which is relative to a dipole: e.i.r.p. minus 2.15
    dB.
    """

    rule: str
    """The legal rule as words for error messages, with the name of the sub-band."""

    def holds(self, frequency: int, bandwidth: int) -> bool:
        """Return whether a whole channel lies in this sub-band. frequency: centre of the channel.
        bandwidth: its width. Both are in Hz.
        """
        return self.low <= frequency - bandwidth // 2 and frequency + bandwidth // 2 <= self.high


@dataclass(frozen=True, slots=True)
class Region:
    """The legal rules of a region: its sub-bands, and the window of the duty cycle."""

    name: str
    bands: tuple[SubBand, ...]

    frequency: int
    """Default frequency of the channel, in Hz."""

    hour: float = 3600.0
    """Length of the duty cycle's sliding window, in seconds."""

    def band(self, frequency: int, bandwidth: int = 125_000) -> SubBand:
        """Return the sub-band of a channel. Raises OncewayError if the channel lies in no
        sub-band.
        """
        for band in self.bands:
            if band.holds(frequency, bandwidth):
                return band
        allowed = ", ".join(
            f"{band.low / 1e6:g}…{band.high / 1e6:g} ({band.name})" for band in self.bands
        )
        raise OncewayError(
            f"{frequency / 1e6:g} MHz with {bandwidth // 1000} kHz lies in no sub-band of"
            f" {self.name}",
            hint=f"The whole channel must lie in one of: {allowed} MHz",
        )


def _eu868(name: str, low: float, high: float, duty: float, power: int) -> SubBand:
    rule = f"EN 300 220-2 band {name}: duty cycle {duty:.1%}, {power} dBm e.r.p."
    return SubBand(name, round(low * 1e6), round(high * 1e6), duty, power, rule)


EU868 = Region(
    "EU868",
    (
        _eu868("K", 863.0, 865.0, 0.001, 14),
        _eu868("L", 865.0, 868.0, 0.01, 14),
        _eu868("M", 868.0, 868.6, 0.01, 14),
        _eu868("N", 868.7, 869.2, 0.001, 14),
        _eu868("P", 869.4, 869.65, 0.1, 27),
        _eu868("R", 869.7, 870.0, 0.01, 14),
    ),
    869_525_000,
)

REGIONS = {region.name: region for region in (EU868,)}
