"""Faults of the line between a board and the gateway. The wire carries them out (hil/wire.py); here they are placed and seen to happen."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from hil.counters import wait_until
from hil.faults.base import Evidence, Fault, Kind
from hil.noise import KINDS

if TYPE_CHECKING:
    from hil.rig import Rig


class LineNoise(Kind):
    """Bytes corrupted, lost and inserted on every line for the whole run. rate: share of bytes harmed in each direction."""

    text: ClassVar[str] = "line noise"
    part: ClassVar[str] = "line"
    kind: Literal["line-noise"]
    between: tuple[float, float] = (0, 0.01)
    rate: float = Field(gt=0, le=0.1)

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        device = rig.device(fault)
        await wait_until(lambda: all(device.harmed[kind] for kind in KINDS))
        return Evidence("first bytes corrupted, lost and inserted", dict(device.harmed))
