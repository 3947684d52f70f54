"""Hands and eyes on a run, for the faults: what there is to break, and how to see that it broke."""

from dataclasses import dataclass
from typing import cast

from hil.checkpoint import IngestProgress
from hil.commander import Commander
from hil.counters import Counters
from hil.device import Device
from hil.display import Display
from hil.faults import Fault
from hil.history import History
from hil.hops import LandingHop, SpoolHop
from hil.real import RealBoard
from hil.site import Site


@dataclass(frozen=True, slots=True)
class Rig:
    counters: Counters
    history: History
    display: Display
    site: Site
    devices: dict[str, Device | RealBoard]
    spool: SpoolHop
    landing: LandingHop
    progress: IngestProgress
    commander: Commander

    def device(self, fault: Fault) -> Device:
        """The device that a fault of a board or a line is for. A bench plans for a real one only
        what it can do, too (hil/bench.py).
        """
        return cast(Device, self.devices[fault.target])
