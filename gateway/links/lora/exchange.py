"""Airtime of one reading: the board's frame and the gateway's answer (README.md, Cost).

In: bytes of payload, spreading factor, the gateway's radio. Out: seconds of the two frames.
"""

from dataclasses import dataclass
from enum import StrEnum

from gateway.links.lora.airtime import Modulation

FRAME = 3 + 4
"""Number of bytes of a frame besides its content: header and tag."""

PUBLISH = 1 + 2
"""Number of bytes of a packed PUBLISH before its payload: type and packet identifier. The type also
stands for the PUBREL of the previous PUBLISH.
"""

ANSWER = 1
"""Number of bytes of an answer that only confirms the packets of the turn."""


class Radio(StrEnum):
    """The kinds of a gateway's radio, which differ in the frames that they send."""

    SX127X = "sx127x"
    """A radio that sends each frame unchanged."""

    KISS = "kiss"
    """A KISS modem, whose firmware chooses the preamble of each frame."""

    RYLR998 = "rylr998"
    """A modem that adds bytes of its own to each frame. Its peers must be modems of the same kind.
    """


_RYLR998_BYTES = 8


def preamble(radio: Radio, factor: int) -> int:
    """Return the number of preamble symbols of the gateway's frames."""
    if radio is Radio.KISS:
        return 32 if factor <= 8 else 16
    return 8


def extra(radio: Radio) -> int:
    """Return the number of bytes that the radio adds to each frame."""
    return _RYLR998_BYTES if radio is Radio.RYLR998 else 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """Airtime of one reading without loss, in seconds. up: the board's frame, with a PUBLISH and
    the previous reading's PUBREL. down: the gateway's frame, with PUBREC for this reading and
    PUBCOMP for the previous one.
    """

    up: float
    down: float

    @property
    def airtime(self) -> float:
        """Airtime of the two frames, in seconds."""
        return self.up + self.down


def exchange(payload: int, factor: int, radio: Radio = Radio.SX127X) -> Exchange:
    """Return the airtime of a reading, which is sent at QoS 2 with a topic alias. payload: length
    of the PUBLISH's payload, in bytes. factor: spreading factor, at 125 kHz and coding rate 4/5.
    Raises ValueError for an unknown factor, or a frame that is too long.
    """
    up = Modulation(factor).airtime(FRAME + PUBLISH + payload + extra(radio))
    answers = Modulation(factor, preamble=preamble(radio, factor))
    return Exchange(up, answers.airtime(FRAME + ANSWER + extra(radio)))
