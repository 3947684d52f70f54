"""A publication as the judge sees it: who it is, where it was seen, what became of it."""

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
    """In the EEPROM of a board that was swapped before it could send it, and there to be read: no
    harm, but not in the claim either."""
    UNDELIVERED = "not delivered"
    """Published at QoS 0, and not in the gateway's store: QoS 0 promises no more."""
    DIED = "died with its card"
    """Acknowledged by a gateway that was gone for good before it had landed."""
    UNKNOWN = "unknown"
    """Still under way: the hop where it was seen last holds it, and owes it to the next one."""


HARMLESS = (Outcome.OK, Outcome.LEFT, Outcome.UNDELIVERED, Outcome.DIED)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Publication identity."""

    device: str
    incarnation: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.device} {self.incarnation:08x} {self.sequence}"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A publication seen at a hop. records: what it says, None if it does not decode; payload: its
    bytes, None where only the records are known, as of a simulated board. status: told by the board
    about itself, no reading. qos: at which it was published. sampled: the rig knows when, and so
    which time it must tell. origin, position: the gateway's store and the order of arrival in it;
    the board has neither.
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
    """What else stands in its row. Of what was published: what is known of it (topic)."""


@dataclass(frozen=True, slots=True)
class Publication:
    """hop: the first at which it went wrong, or the one that holds an unknown one; None if ok. way:
    what was seen at each hop. why: what is altered, in words; else empty.
    """

    key: Key
    outcome: Outcome
    hop: str | None
    way: dict[str, list[Sighting]]
    why: str = ""
