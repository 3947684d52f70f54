"""Radio settings in a board's identity page. In: channel, spreading factor, power, and the law of
the region. Out: the bytes after name and key in its flash page (firmware/JOURNAL.md), and the text
for the device registry.
"""

import json
import struct
from binascii import crc_hqx
from dataclasses import dataclass
from math import ceil

from gateway.errors import OncewayError
from gateway.links.lora.airtime import FACTORS, Modulation, silence_factor
from gateway.links.lora.frames import LONGEST_NAME
from gateway.system.regions import EU868, REGIONS, Region
from provisioning.identity import Identity

AT = 48
"""Offset of the radio settings in the flash page that begins with the identity, in bytes."""

SIZE = 17

LONGEST_FRAME = 103
"""Longest frame of a board, in bytes: 96 of content, header and tag (firmware/src/ow_turn.h)."""

POWER = 14
"""Default power, in dBm."""

POWERS = range(2, 18)
"""Powers, in dBm, of an RFM95 at its PA_BOOST pin (SX1276 data sheet, 5.4.2)."""

_MAGIC = b"OWLR"
_VERSION = 1
_FIELDS = struct.Struct(">4sBBBBBHI")
_STEP = 32_000_000 / (1 << 19)
"""Step of the frequency register, in Hz (SX1276 data sheet, 4.1.4)."""


@dataclass(frozen=True, slots=True)
class RadioPlan:
    """The radio settings of one board. Raises OncewayError if the law does not allow them, and
    ValueError if a board cannot do them.
    """

    network: int
    """Number of the radio network, 0…255."""

    device: int
    """Number of the board in its network, 1…254."""

    factor: int = 9
    """Spreading factor, 7…12."""

    frequency: int = EU868.frequency
    """Centre frequency of the channel, in Hz. The channel is 125 kHz wide."""

    power: int = POWER
    """Transmit power into an antenna without gain, in dBm."""

    region: Region = EU868

    def __post_init__(self) -> None:
        if not 0 <= self.network <= 255 or not 1 <= self.device <= 254:
            raise ValueError(f"network {self.network}, device {self.device}")
        if self.factor not in FACTORS or self.power not in POWERS:
            raise ValueError(f"SF{self.factor}, {self.power} dBm")
        band = self.region.band(self.frequency)
        if self.power > band.power:
            raise OncewayError(f"{self.power} dBm are too much: {band.rule}")

    @property
    def silence(self) -> int:
        """Pause that the law demands after each frame, as a multiple of the frame's airtime."""
        band = self.region.band(self.frequency)
        longest = Modulation(self.factor).airtime(LONGEST_FRAME)
        try:
            return ceil(silence_factor(longest, band.duty, self.region.hour))
        except ValueError as error:
            raise OncewayError(f"{error} ({band.rule})") from None

    def to_bytes(self) -> bytes:
        """Return the 17 bytes at `AT`."""
        channel = round(self.frequency / _STEP)
        body = _FIELDS.pack(
            _MAGIC,
            _VERSION,
            self.network,
            self.device,
            self.factor,
            self.power,
            self.silence,
            channel,
        )
        return body + crc_hqx(body, 0xFFFF).to_bytes(2, "big")

    @classmethod
    def from_json(cls, text: str) -> "RadioPlan":
        """Parse the output of `to_json`."""
        fields = json.loads(text)
        return cls(**fields | {"region": REGIONS[fields["region"]]})

    def to_json(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields | {"region": self.region.name})

    def __str__(self) -> str:
        return (
            f"number {self.device} of network {self.network}, {self.frequency / 1e6:g} MHz,"
            f" SF{self.factor}, {self.power} dBm"
        )


def check_radio_name(name: str) -> None:
    """Raise OncewayError if some readings of a board with this name would not fit into a frame."""
    if len(name) > LONGEST_NAME:
        raise OncewayError(
            f"{name!r} has {len(name)} characters: with a name of this length, some readings of a"
            " radio board do not fit into a frame",
            hint=f"Choose a name of {LONGEST_NAME} characters at most",
        )


def page(identity: Identity, plan: RadioPlan | None) -> bytes:
    """Return the identity page up to its last used byte. plan: settings of a board with a radio."""
    return radio_page(identity, plan) if plan else identity.to_bytes()


def radio_page(identity: Identity, plan: RadioPlan) -> bytes:
    """Return the identity page of a board with a radio, up to its last used byte."""
    return identity.to_bytes().ljust(AT, b"\xff") + plan.to_bytes()
