"""Encoding of the data that two gateways exchange in addition to ordinary publications.

In: the session that a publication is for, and notices about sessions that move. Out: their encoding
as bytes, and back.

A publication for one session carries Subscription Identifiers. Clients may not send Subscription
Identifiers [MQTT-3.3.4-6], so only a gateway can address a session. One identifier means a shared
subscription, three mean a session, and four mean a shared subscription of a session. Notices are
publications on `gateway.broker.publish_run.NOTICES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from hashlib import sha256
from secrets import randbelow
from struct import Struct
from typing import NamedTuple

from gateway.mqtt.errors import MalformedPacket
from gateway.mqtt.topics import SHARE_PREFIX
from gateway.mqtt.wire import MAX_VARINT, encode_varint
from gateway.store.move_rows import HALF, MOST_MOVES, MOVING_IDS

OWN_STAGES = 1 << 32
"""Lowest moving id of a session. A lower id belongs to no session: it stands for all new
subscriptions since one start of a gateway (`new_subscriptions.py`). The answer to an ASK with a
lower id goes only to the sender of the ASK.
"""
AT_ONCE = 32
"""Largest number of notices in one publication."""
NOTICE_BYTES = 512
"""Upper bound of the size of a publication with notices, in bytes."""
ADDRESS_BYTES = 32
"""Upper bound of the size of an address in a publication, in bytes."""
_NOTICE = Struct(">BQI")


class Stage(NamedTuple):
    """The identity of a moving session between two moves: its moving id, and the number of its
    moves.
    """

    moving_id: int
    """Number of a session from its first move until all its moves are finished: at least
    `OWN_STAGES`, and below `MOVING_IDS`. A number below `OWN_STAGES` belongs to no session.
    """
    moves: int
    """Number of times that the session has moved."""


class Address(NamedTuple):
    stage: Stage
    share: int
    """Number of the shared subscription that the publication is for (`share_number`), 0 for none.
    """


class Kind(IntEnum):
    CUT = 1
    """Messages that the sender forwarded before this notice are for the session at its old gateway.
    Later ones are for the session at the stage in the notice, at its new gateway.
    """
    ASK = 2
    """A CUT that also asks the receiver for a CUT: to all other gateways, or only to the sender if
    the moving id is below OWN_STAGES.
    """
    END = 3
    """The sender has no more messages for the session at this stage."""
    HERE = 4
    """The sender asks whether the receiver has the session at this stage. The receiver answers ASK
    if it has the session or a forwarder for it, else GONE.
    """
    GONE = 5
    TAIL = 6
    """The sender asks whether the receiver still has messages for the session at this stage. The
    receiver answers END if it has none.
    """


class Notice(NamedTuple):
    kind: Kind
    stage: Stage


def new_moving_id() -> int:
    return randbelow(MOVING_IDS - OWN_STAGES) + OWN_STAGES


def share_number(topic_filter: str) -> int:
    """Return the Subscription Identifier by which members name a shared subscription to each other;
    0 for any other filter.
    """
    if not topic_filter.startswith(SHARE_PREFIX):
        return 0
    return int.from_bytes(sha256(topic_filter.encode()).digest()[:8]) % MAX_VARINT + 1


def address(stage: Stage, share: str) -> bytes:
    """Return the address of one session, as encoded Subscription Identifiers of a publication.
    share: filter of the shared subscription that the publication is from, or "".
    """
    high, low = divmod(stage.moving_id, 1 << HALF)
    numbers = [high + 1, low + 1, stage.moves]
    if share:
        numbers.append(share_number(share))
    return b"".join(b"\x0b" + encode_varint(number) for number in numbers)


def read_address(identifiers: Sequence[int]) -> Address | None:
    """Return the address in a publication's Subscription Identifiers, or None if the publication is
    not for a single session. Raises MalformedPacket.
    """
    if len(identifiers) < 2:
        return None
    if len(identifiers) not in (3, 4) or max(identifiers[:2]) > 1 << HALF:
        raise MalformedPacket("PUBLISH: the address in it names an impossible session")
    high, low, moves = identifiers[:3]
    moving_id = (high - 1 << HALF) + low - 1
    return Address(Stage(moving_id, moves), identifiers[3] if len(identifiers) > 3 else 0)


def encode_notices(kind: Kind, stages: Iterable[Stage]) -> bytes:
    """Return the payload of notices of one kind. stages: at most AT_ONCE."""
    return b"".join(_NOTICE.pack(kind, *stage) for stage in stages)


def read_notices(payload: bytes) -> Iterator[Notice]:
    """Yield the notices of a payload. Raises MalformedPacket."""
    if len(payload) % _NOTICE.size or len(payload) > AT_ONCE * _NOTICE.size:
        raise MalformedPacket("PUBLISH: the session-move notices in it have an impossible length")
    for kind, moving_id, moves in _NOTICE.iter_unpack(payload):
        if not (1 <= kind <= len(Kind) and 0 < moving_id < MOVING_IDS and 0 < moves <= MOST_MOVES):
            raise MalformedPacket("PUBLISH: a notice has an impossible kind or number")
        yield Notice(Kind(kind), Stage(moving_id, moves))
