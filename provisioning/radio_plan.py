"""What the identity page says of a board's radio. In: channel, spreading factor, power, and the law
that holds there. Out: the bytes behind the name and key in its flash page (firmware/README.md), and
the text that the device registry keeps.
"""

import json
import struct
from binascii import crc_hqx
from dataclasses import dataclass
from math import ceil

from gateway.config.regions import EU868, REGIONS, Region
from gateway.errors import OncewayError
from gateway.links.lora.airtime import FACTORS, Modulation
from gateway.links.lora.duty import silence_factor
from gateway.links.lora.frames import LONGEST_NAME
from provisioning.identity import Identity

AT = 48
"""Where it stands in the page."""

SIZE = 17

LONGEST_FRAME = 103
"""Bytes that a board sends at most: 96 of content, header and tag (firmware/src/ow_turn.h)."""

POWER = 14
"""dBm where nobody chooses another."""

POWERS = range(2, 18)
"""dBm that an RFM95 sends with at its PA_BOOST pin (SX1276 data sheet, 5.4.2)."""

_MAGIC = b"OWLR"
_VERSION = 1
_FIELDS = struct.Struct(">4sBBBBBHI")
_STEP = 32_000_000 / (1 << 19)
"""Hz (SX1276 data sheet, 4.1.4)."""


@dataclass(frozen=True, slots=True)
class RadioPlan:
    """Raises OncewayError: the law does not allow it. ValueError: a board cannot do it."""

    network: int
    """Of the site, 0…255."""

    device: int
    """Its number there, 1…254."""

    factor: int = 9
    """Spreading factor, 7…12."""

    frequency: int = EU868.frequency
    """Hz of the channel, 125 kHz wide."""

    power: int = POWER
    """dBm into an antenna without gain."""

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
        """So many times a frame's airtime the board sends nothing after it."""
        band = self.region.band(self.frequency)
        longest = Modulation(self.factor).airtime(LONGEST_FRAME)
        try:
            return ceil(silence_factor(longest, band.duty, self.region.hour))
        except ValueError as error:
            raise OncewayError(f"{error} ({band.rule})") from None

    def to_bytes(self) -> bytes:
        """The 17 bytes at `AT`."""
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
        """What `to_json` gave."""
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
    """Raise OncewayError if a reading of a board with this name would not fit a frame."""
    if len(name) > LONGEST_NAME:
        raise OncewayError(
            f"{name!r} has {len(name)} characters: a board by radio could not send all"
            " its readings",
            hint=f"Choose a name of {LONGEST_NAME} characters at most",
        )


def page(identity: Identity, plan: RadioPlan | None) -> bytes:
    """The identity page as far as it is not 0xFF. plan: of a board with a radio."""
    return radio_page(identity, plan) if plan else identity.to_bytes()


def radio_page(identity: Identity, plan: RadioPlan) -> bytes:
    """The same of a board that has one."""
    return identity.to_bytes().ljust(AT, b"\xff") + plan.to_bytes()
