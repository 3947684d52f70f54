"""One publication that came twice: does the second payload say the same as the first?

In: two payloads with one identity. Out: whether they tell one reading, maybe in other words. A
board makes a payload again from its journal each time it sends it. Meanwhile it may have learned
the time, or lost it; and a status tells how the board is when it is sent. Gateway and centre both
ask here, so that neither calls a conflict what the other takes for a repetition.
"""

from gateway.payload.loss import LOST
from gateway.payload.senml import NotSenml, Record, decode, time_errors

DRIFT_S = 18
"""How far a time may be wrong that does not say it: half a percent of an hour. A board's resonator
may be off by so much while nobody tells it the time (`firmware/README.md`).
"""

PASSING = frozenset({"denied", "worn", "life", "aside", "bad", "again"})
"""Records of a status that tell how the board is when it is sent (`firmware/README.md`)."""

_STATUS = "boot"
"""The first record of a status."""


def says_the_same(first: bytes, second: bytes) -> bool:
    """Whether both payloads are one reading, or one of them reports the other's loss. What is no
    SenML must be the same bytes; in SenML names, units and values must be alike, and times that
    both tell may differ by what they may be wrong by.
    """
    if first == second or LOST in (first, second):
        return True
    try:
        one, other = _lasting(first), _lasting(second)
    except NotSenml:
        return False
    return len(one) == len(other) and all(map(_alike, one, other))


def _lasting(payload: bytes) -> list[tuple[Record, int | None]]:
    """Each record that does not change from one sending to the next, and by how many seconds its
    time may be wrong. Raises NotSenml.
    """
    records = decode(payload)
    told = list(zip(records, time_errors(payload, len(records)), strict=True))
    if not records or _ending(records[0]) != _STATUS:
        return told
    return [one for one in told if _ending(one[0]) not in PASSING]


def _ending(record: Record) -> str:
    return record.name.rpartition(":")[2]


def _alike(one: tuple[Record, int | None], other: tuple[Record, int | None]) -> bool:
    (first, first_error), (second, second_error) = one, other
    if first._replace(time=second.time, relative=second.relative) != second:
        return False
    if first.relative or second.relative:  # it counts from the sending, or nobody knows it
        return True
    wrong = sum(DRIFT_S if error is None else error for error in (first_error, second_error))
    return abs(first.time - second.time) <= wrong
