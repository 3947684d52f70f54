"""Kinds of faults. The class of a kind defines its table in a bench (`[[fault]]`), the places of
its faults, and how they are caused and observed.
"""

from typing import Annotated, get_args

from pydantic import Field

from hil.faults.base import Kind
from hil.faults.board import (
    BoardBrownOut,
    BoardEepromWorn,
    BoardPowerCut,
    BoardPowerCutInExchange,
    BoardPowerCutInTurn,
    BoardReset,
    BoardSwapped,
    BoardSwitchedOff,
    BoardWatchdog,
)
from hil.faults.fault import Evidence, Fault
from hil.faults.gateway import (
    GatewayKill,
    GatewayKillAtRelease,
    GatewayPause,
    GatewayPowerCut,
    GatewayRestored,
    LandingPowerCut,
    PublicationRefused,
    UplinkKill,
)
from hil.faults.ingest import (
    CentrePowerCut,
    CheckpointLost,
    IngestKill,
    IngestStop,
    IngestTwice,
)
from hil.faults.landing import (
    BatchDamaged,
    BatchForged,
    BatchReworded,
    BatchTwice,
    LandingUnwritable,
    NumberTaken,
    OtherBrokerRestart,
)
from hil.faults.line import (
    LineBursts,
    LineCut,
    LineDelay,
    LineDuplicate,
    LineFlood,
    LineForge,
    LineHalfOpen,
    LineNoise,
    LineStall,
    LineTrace,
    LineWrongBaud,
    PortUnplugged,
)
from hil.faults.machine import (
    ClockJump,
    ClockUnknown,
    DiskFull,
    DiskSlow,
    LandingRefuses,
    LandingSlow,
    UploadCut,
)
from hil.faults.sensor import BusContention, SensorOpen, SensorShorted, SensorSwapped
from hil.faults.site import (
    BoardReplugged,
    BoardRoams,
    ClientMoves,
    CrowdMoves,
    GatewayDies,
    MemberSlow,
    Partition,
    RollingRestart,
)
from hil.faults.sweep import (
    BoardPowerCutAtEachByte,
    BoardPowerCutAtEachWrite,
    GatewayKillAtEachStep,
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
    | LineForge
    | PortUnplugged
)
OfBoard = (
    BoardPowerCut
    | BoardPowerCutInExchange
    | BoardPowerCutInTurn
    | BoardSwitchedOff
    | BoardBrownOut
    | BoardReset
    | PublicationRefused
    | BoardWatchdog
    | BoardEepromWorn
    | BoardSwapped
    | SensorOpen
    | SensorShorted
    | SensorSwapped
    | BusContention
)
OfGateway = (
    GatewayKill
    | GatewayKillAtRelease
    | GatewayPause
    | GatewayPowerCut
    | GatewayRestored
    | DiskFull
    | DiskSlow
    | ClockJump
    | ClockUnknown
    | OtherBrokerRestart
)
OfUplink = (
    UplinkKill
    | LandingPowerCut
    | LandingUnwritable
    | LandingSlow
    | LandingRefuses
    | UploadCut
    | BatchTwice
    | BatchDamaged
    | BatchForged
    | BatchReworded
    | NumberTaken
)
OfIngest = IngestKill | CentrePowerCut | IngestStop | IngestTwice | CheckpointLost
SiteFault = (
    BoardReplugged
    | BoardRoams
    | ClientMoves
    | CrowdMoves
    | GatewayDies
    | MemberSlow
    | Partition
    | RollingRestart
)
OfExchange = BoardPowerCutAtEachByte | BoardPowerCutAtEachWrite | GatewayKillAtEachStep

AnyKind = Annotated[
    OfLine | OfBoard | OfExchange | OfGateway | SiteFault | OfUplink | OfIngest,
    Field(discriminator="kind"),
]
"""A `[[fault]]` table."""

KINDS: dict[str, type[Kind]] = {
    get_args(one.model_fields["kind"].annotation)[0]: one for one in get_args(get_args(AnyKind)[0])
}
"""Kinds of faults by their name in a bench."""

__all__ = ["KINDS", "AnyKind", "Evidence", "Fault", "Kind", "OfExchange"]
