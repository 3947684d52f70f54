"""Kinds of faults. A kind is a class: how it stands in a bench (`[[fault]]`), where its places are, how it is carried out and seen."""

from typing import Annotated

from pydantic import Field

from hil.faults.base import Evidence, Fault, Kind
from hil.faults.board import BoardPowerCut, BoardPowerCutInExchange
from hil.faults.gateway import GatewayKill, UplinkKill
from hil.faults.ingest import IngestKill
from hil.faults.landing import BatchTwice, LandingUnwritable
from hil.faults.line import LineNoise

AnyKind = Annotated[
    BoardPowerCut | BoardPowerCutInExchange | LineNoise | GatewayKill | UplinkKill | LandingUnwritable | BatchTwice | IngestKill,
    Field(discriminator="kind"),
]
"""One `[[fault]]` table."""

__all__ = ["AnyKind", "Evidence", "Fault", "Kind"]
