"""A publication as the judge sees it: its identity, where it was seen, and its outcome."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hil.judge.senml import Record


class Outcome(StrEnum):
    OK = "ok"
    LOST = "lost"
    DUPLICATE = "duplicate"
    PHANTOM = "phantom"
    ALTERED = "altered"
    OUT_OF_ORDER = "out of order"
    LEFT = "left behind"
    """The publication is only in the EEPROM of a replaced board, and can be read there. So it is
    not lost, although it is missing at the hop of the claim."""
    UNDELIVERED = "not delivered"
    """A publication at QoS 0 did not reach the gateway's store. QoS 0 allows that."""
    DIED = "died with its card"
    """A gateway acknowledged the publication, and was gone for good before it landed the row."""
    GAVE_WAY = "refused and dropped"
    """The gateway refused the publication for good. The board kept it until it needed the slot for
    a later publication (firmware/README.md)."""
    UNKNOWN = "unknown"
    """The publication is on its way: the hop where it was seen last must still deliver it."""


HARMLESS = (Outcome.OK, Outcome.LEFT, Outcome.UNDELIVERED, Outcome.DIED, Outcome.GAVE_WAY)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Identity of a publication."""

    device: str
    incarnation: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.device} {self.incarnation:08x} {self.sequence}"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A publication seen at a hop. records: its content, None if it cannot be decoded. payload: its
    bytes, None if only the records are known, as for a simulated board. status: whether it is a
    status of the board, and no reading. sampled: time of the sample, if the rig knows it; the time
    in the content must match it. origin: `GATEWAY/EPOCH` of the store; "" at the hop `board`.
    position: order of arrival in this store; 0 at the hop `board`.
    """

    t: int
    records: tuple[Record, ...] | None
    payload: bytes | None = None
    status: bool = False
    qos: int = 2
    origin: str = ""
    position: int = 0
    sampled: int | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    """Other columns of the row. At the hop `board`: the topic, if it is known."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication. hop: None if the outcome is ok. If the outcome is unknown, the hop that still
    has to deliver the publication. Otherwise, the first hop with the mistake. way: sightings at
    each hop. why: the mistake in words, if more is known than the outcome; otherwise empty.
    """

    key: Key
    outcome: Outcome
    hop: str | None
    way: dict[str, list[Sighting]]
    why: str = ""
