"""Access to a run for the faults: parts to break, and ways to see the effects."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from hil.devices.by_air import DeviceByAir
from hil.devices.client import Client
from hil.devices.commander import Commander
from hil.devices.other_broker import OtherBroker
from hil.devices.real_board import RealBoard
from hil.devices.sensor import SensorBoard
from hil.devices.simulated import SimulatedDevice
from hil.faults import Fault
from hil.faults.under_test import Publisher
from hil.faults.windows import AFTER_SYNC, BEFORE_ACK, BEFORE_SYNC, BEFORE_WRITE
from hil.observe.counters import Counters
from hil.observe.history import History
from hil.observe.ingest_progress import IngestProgress
from hil.observe.landing import LandingHop
from hil.observe.spool import SpoolHop, holds_publication
from hil.programs.site import Member
from hil.run.display import Display

Device = SimulatedDevice | RealBoard
"""A simulated or real board of the run."""


@dataclass(frozen=True, slots=True)
class System:
    """A run as faults see it. site: the gateway that a fault strikes, with its uplink. spool: the
    observer of its store. members, spools: all gateways, and all such observers, by gateway.
    """

    counters: Counters
    history: History
    display: Display
    site: Member
    devices: dict[str, Device]
    spool: SpoolHop
    landing: LandingHop
    progress: IngestProgress
    commander: Commander
    clients: dict[str, Client]
    members: dict[str, Member]
    spools: dict[str, SpoolHop]
    other_broker: OtherBroker | None = None
    """Broker at the other end of the gateway's bridge."""

    def at(self, fault: Fault) -> "System":
        """Return a copy whose `site` and `spool` belong to the gateway that the fault strikes."""
        name = fault.where or fault.target
        if name in self.publishers:
            name = self.gateway_of(name)
        if name not in self.members:
            return self
        return replace(self, site=self.members[name], spool=self.spools[name])

    @property
    def alive(self) -> dict[str, Member]:
        return {name: one for name, one in self.members.items() if not one.dead}

    def boards_at(self, gateway: str) -> list[SimulatedDevice]:
        """Return the boards at one of several gateways. All boards are simulated then."""
        return [
            cast(SimulatedDevice, device)
            for device in self.devices.values()
            if device.gateway == gateway
        ]

    @property
    def movers(self) -> list[Client]:
        return [client for client in self.clients.values() if client.strict]

    def next_gateway(self, gateway: str) -> str:
        names = list(self.members)
        at = names.index(gateway) + 1
        return next(name for name in names[at:] + names[:at] if name in self.alive)

    def client(self, name: str) -> Client:
        return self.clients[name]

    def roamer(self, name: str) -> DeviceByAir:
        return cast(DeviceByAir, self.devices[name])

    def sensor(self, fault: Fault) -> SensorBoard:
        return cast(SensorBoard, self.devices[fault.target])

    def gateway_of(self, publisher: str) -> str:
        return self.publishers[publisher].gateway

    def device(self, fault: Fault) -> SimulatedDevice:
        """Return the device that a fault of a board or line strikes. A real board lacks some
        methods, so benches plan for it only faults that do without them (hil/bench/bench.py).
        """
        return cast(SimulatedDevice, self.devices[fault.target])

    @property
    def publishers(self) -> Mapping[str, Publisher]:
        return {**self.devices, **self.clients}

    def look(self) -> int:
        """Read all commits and batches so far. Return the monotonic time after the read, in ns."""
        for spool in self.spools.values():
            spool.look()
        self.landing.look()
        return time.monotonic_ns()

    def is_at(self, window: int) -> bool:
        """Return whether a publication of this gateway is in the state of the window. BEFORE_WRITE,
        BEFORE_SYNC: sent, but not in the store. AFTER_SYNC: in the newest commit. BEFORE_ACK: in
        the store, but its publisher has not shown that it knows this. Other windows: always True.
        """
        if window == AFTER_SYNC:
            return holds_publication(self.site.folder.database)
        self.spool.look()
        stored = self.spool.stored
        publishers = [
            (name, source)
            for name, source in self.publishers.items()
            if source.gateway == self.site.name
        ]
        if window == BEFORE_ACK:
            return any(one.sent & stored[name] - one.accepted for name, one in publishers)
        return window not in (BEFORE_WRITE, BEFORE_SYNC) or any(
            one.sent - stored[name] for name, one in publishers
        )

    def say(self, text: str) -> None:
        self.display.say(f"  {text}", "red")
