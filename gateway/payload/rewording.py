"""Duplicates with a changed payload: whether the second payload means the same as the first.

In: two payloads with one identity. Out: whether both state the same reading. A board builds a
payload from its journal at each transmission. Between two transmissions the board may have learned
or lost the time, and a status describes the board at the time of sending. The gateway and the
centre both use this code, so they agree on payload conflicts.
"""

from gateway.payload.loss import LOST
from gateway.payload.senml import NotSenml, Record, decode, time_errors

DRIFT_S = 18
"""Tolerance for a time without a stated error, in seconds: half a percent of an hour. A board's
resonator may be off by this much while the board gets no time (`firmware/README.md`)."""

PASSING = frozenset({"denied", "worn", "life", "aside", "bad", "again"})
"""Records of a status that may change between two transmissions of the same status, because they
describe the board at the time of sending (`firmware/README.md`).
"""

_STATUS = "boot"
"""Name of the first record of a status."""


def says_the_same(first: bytes, second: bytes) -> bool:
    """Whether both payloads state the same reading, or one payload is LOST: the report that the
    publication is lost. Payloads that are not SenML must have the same bytes. In SenML, names,
    units and values must be equal, and two stated times may differ by their possible errors.
    """
    if first == second or LOST in (first, second):
        return True
    try:
        one, other = _lasting(first), _lasting(second)
    except NotSenml:
        return False
    return len(one) == len(other) and all(map(_alike, one, other))


def _lasting(payload: bytes) -> list[tuple[Record, int | None]]:
    """Return the records that a later transmission must repeat. With each record comes the possible
    error of its time, in seconds; None if the payload does not state the error. Raises NotSenml.
    """
    records = decode(payload)
    timed = list(zip(records, time_errors(payload, len(records)), strict=True))
    if not records or _ending(records[0]) != _STATUS:
        return timed
    return [one for one in timed if _ending(one[0]) not in PASSING]


def _ending(record: Record) -> str:
    return record.name.rpartition(":")[2]


def _alike(one: tuple[Record, int | None], other: tuple[Record, int | None]) -> bool:
    (first, first_error), (second, second_error) = one, other
    if first._replace(time=second.time, relative=second.relative) != second:
        return False
    if first.relative or second.relative:  # relative to the sending, or unknown
        return True
    wrong = sum(DRIFT_S if error is None else error for error in (first_error, second_error))
    return abs(first.time - second.time) <= wrong
