"""Kinds of faults. A kind is a class: how it stands in a bench (`[[fault]]`), where its places are, how it is carried out and seen."""

from typing import Annotated

from pydantic import Field

from hil.faults.base import Evidence, Fault, Kind
from hil.faults.board import BoardBrownOut, BoardPowerCut, BoardPowerCutInExchange, BoardReset
from hil.faults.gateway import ClockJump, DiskFull, DiskSlow, GatewayKill, GatewayPause, UplinkKill
from hil.faults.ingest import CheckpointLost, IngestKill
from hil.faults.landing import BatchDamaged, BatchTwice, LandingUnwritable
from hil.faults.line import (
    LineBursts,
    LineCut,
    LineDelay,
    LineDuplicate,
    LineFlood,
    LineHalfOpen,
    LineNoise,
    LineStall,
    LineTrace,
    LineWrongBaud,
    PortUnplugged,
)

OfLine = (
    LineNoise
    | LineBursts
    | LineTrace
    | LineDuplicate
    | LineDelay
    | LineStall
    | LineHalfOpen
    | LineCut
    | LineFlood
    | LineWrongBaud
    | PortUnplugged
)
OfBoard = BoardPowerCut | BoardPowerCutInExchange | BoardBrownOut | BoardReset
OfGateway = GatewayKill | GatewayPause | DiskFull | DiskSlow | ClockJump
OfWayUp = UplinkKill | LandingUnwritable | BatchTwice | BatchDamaged | IngestKill | CheckpointLost

AnyKind = Annotated[OfLine | OfBoard | OfGateway | OfWayUp, Field(discriminator="kind")]
"""One `[[fault]]` table."""

__all__ = ["AnyKind", "Evidence", "Fault", "Kind"]
