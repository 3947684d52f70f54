"""What one reading costs on the air: the board's frame and the gateway's answer (README.md, Cost).

In: bytes of payload, spreading factor, the gateway's radio. Out: seconds of both frames.
"""

from dataclasses import dataclass
from enum import StrEnum

from gateway.links.lora.airtime import Modulation

FRAME = 3 + 4
"""Bytes of header and tag around what a frame holds."""

PUBLISH = 1 + 2
"""Bytes before the payload of a packed PUBLISH, a PUBREL ahead of it included: what it is, and the
packet identifier.
"""

ANSWER = 1
"""Bytes of an answer that says nothing but "all that you asked for is done"."""


class Radio(StrEnum):
    """What the gateway has; what it does to the frames."""

    SX127X = "sx127x"
    """Frames as they are."""

    KISS = "kiss"
    """A modem whose firmware chooses the preamble of what it sends."""

    RYLR998 = "rylr998"
    """A modem that adds bytes of its own. Its peers must be such modems, too."""


_RYLR998_BYTES = 8


def preamble(radio: Radio, factor: int) -> int:
    """Return the symbols of the preamble of what the gateway sends."""
    if radio is Radio.KISS:
        return 32 if factor <= 8 else 16
    return 8


def extra(radio: Radio) -> int:
    """Return the bytes that the modem adds to each frame."""
    return _RYLR998_BYTES if radio is Radio.RYLR998 else 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """Airtime of one reading that is lost neither way, in seconds: PUBREL of the one before and
    PUBLISH, then PUBCOMP and PUBREC.
    """

    up: float
    down: float

    @property
    def airtime(self) -> float:
        """Of both."""
        return self.up + self.down


def exchange(payload: int, factor: int, radio: Radio = Radio.SX127X) -> Exchange:
    """Return what a reading costs.

    payload: bytes of the PUBLISH's payload; it has QoS 2 and a topic alias. factor: spreading
    factor; 125 kHz, 4/5. Raises ValueError: no such factor, or a frame that is too long.
    """
    up = Modulation(factor).airtime(FRAME + PUBLISH + payload + extra(radio))
    answers = Modulation(factor, preamble=preamble(radio, factor))
    return Exchange(up, answers.airtime(FRAME + ANSWER + extra(radio)))
