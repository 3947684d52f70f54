"""Hands and eyes on a run, for the faults: what there is to break, and how to see that it broke."""

from dataclasses import dataclass
from typing import cast

from hil.devices.commander import Commander
from hil.devices.real_board import RealBoard
from hil.devices.simulated import Device
from hil.faults import Fault
from hil.observe.counters import Counters
from hil.observe.history import History
from hil.observe.hops import LandingHop, SpoolHop
from hil.observe.ingest_progress import IngestProgress
from hil.programs.site import Site
from hil.run.display import Display


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
        what it can do, too (hil/bench/bench.py).
        """
        return cast(Device, self.devices[fault.target])
