"""The interfaces of a run for faults. The run implements them (hil/run/system.py). Faults import no
devices, programs or runs.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hil.boards.ledger import Ledger
from hil.boards.simulator import Event, SimulatedBoard
from hil.faults.fault import Evidence, Fault
from hil.faults.landing_place import LandingPlace
from hil.faults.loop_disk import LoopDisk
from hil.faults.preload import Machine
from hil.observe.counters import Counters
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.observe.ingest_progress import IngestProgress
from hil.observe.landing import LandingHop
from hil.observe.spool import SpoolHop


class ProgramUnderTest(Protocol):
    """A process: gateway, uplink or ingest."""

    name: str
    pid: int

    @property
    def paused(self) -> bool:
        """Whether the kernel shows the process as stopped (SIGSTOP)."""
        ...

    def check(self) -> None:
        """Raise OncewayError if the program has ended, unless a fault ended it."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def reload(self) -> None: ...
    async def kill(self) -> None: ...
    async def stop(self) -> int: ...
    async def finish(self, script: str, within: float) -> int | None:
        """Ask the program that runs `script` to end. Return its exit code. If it has not ended
        `within` seconds later, kill it and return None.
        """
        ...


class LinksUnderTest(Protocol):
    """The network between the gateways of a site."""

    async def order(self, do: str, member: str, **more: float) -> dict[str, Any]:
        """Order `cut`, `slow` (by `seconds`) or `mend` for all links of a member. Return the
        numbers of bytes on these links since the last order: `passed` and `held`.
        """
        ...


class SiteUnderTest(Protocol):
    """Gateway, uplink, ingest and landing place."""

    name: str
    """Name of the gateway, if there are several."""
    folder: Folder
    disk: LoopDisk | None
    """Disk of the gateway's data, if the bench cuts the gateway's power."""
    landing_disk: LoopDisk | None
    """Disk of the landing place, if the bench cuts its power."""
    centre_disk: LoopDisk | None
    """Disk of the tables and the checkpoint, if the bench cuts its power."""
    process_lock: asyncio.Lock
    """Lock that a fault holds while it restarts processes, or works on the gateway's disk."""
    landing: LandingPlace

    @property
    def copied(self) -> bool:
        """Whether acknowledged publications are also on the disk of another gateway."""
        ...

    @property
    def links(self) -> LinksUnderTest: ...

    @property
    def running(self) -> Mapping[str, ProgramUnderTest]: ...

    def machine(self, program: str) -> Machine: ...

    async def store(self, *words: str) -> None:
        """Run `onceway store …` on the gateway's store, as a user does. Raises OncewayError."""
        ...

    async def start_gateway(self) -> None: ...
    async def die(self, *, card_too: bool) -> Path:
        """Kill gateway and uplink for good. card_too: whether the gateway's data are lost, too;
        then only the rig still reads them. Return the path of the data."""
        ...

    async def land(self, data: Path) -> None:
        """Run `onceway spool land …` on a dead gateway's data, as a user. Raises OncewayError."""
        ...

    async def start_uplink(self) -> None: ...
    async def start_ingest(self, name: str = "ingest", checkpoint: Path | None = None) -> None: ...


class DeviceUnderTest(Protocol):
    """A board, and the wire between it and the gateway."""

    name: str
    counted: bool
    """Whether the device counts samples, so that a fault can be ordered for an exact place."""
    harmed: Counter[str]
    """Number of harms that the device's wire has caused, by kind."""
    opened: int
    """Number of times that the gateway has opened the device's port."""
    refused: list[tuple[int, int]]
    """Packet identifier and reason code of each publication that the gateway has refused."""

    @property
    def accepted(self) -> set[int]: ...
    @property
    def board(self) -> SimulatedBoard: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def waiting(self) -> int:
        """Return the number of publications that the board's journal still has to deliver."""
        ...

    @property
    def journalled(self) -> int: ...

    def look(self) -> int:
        """Read new entries of the ledger, and return the number of readings so far."""
        ...

    def next_interval(self) -> int:
        """Return the interval of the next command; it differs from the previous one."""
        ...

    async def arm(self, fault: Fault, command: str) -> bool:
        """Order a fault of the board in advance. Return False if the board cannot take orders."""
        ...

    async def samples(self) -> int:
        """Return the number of ADC conversions so far. A fault's place can be such a number."""
        ...

    async def strike_next(self, fault: str, command: str, after: int) -> bool:
        """Order the fault for the first conversion after number `after`. Return False if that
        conversion is over.
        """
        ...

    async def next_event(self, fault: str, event: str) -> Event:
        """Wait for the next `event` of a fault: `struck`, `cut`, `power` or `boot`."""
        ...

    async def reset(self, fault: str) -> Evidence | None:
        """Reset the board with an edge of DTR: at the place ordered by `arm`, or at once if the
        board accepts no orders. Return None if no start was seen in time.
        """
        ...

    async def switched_off(self, fault: str, seconds: float) -> Evidence | None:
        """Switch the power off for `seconds`: at the place ordered by `arm`, or at once if the
        board accepts no orders. Return None if no start was seen in time.
        """
        ...

    async def swap(self, fault: str, within: float) -> None: ...
    async def replug(self, fault: str, gateway: str, seconds: float, within: float) -> bool:
        """Remove the board from its gateway, and after `seconds` plug it in at `gateway`. Return
        whether that gateway had the board's MQTT session. Raises TimeoutError.
        """
        ...

    async def strike(
        self, fault: str, orders: Sequence[dict[str, Any]], within: float
    ) -> list[dict[str, Any]]: ...
    async def arm_line(self, fault: str, orders: Sequence[dict[str, Any]], at: int) -> None:
        """Order a fault of the wire in advance, for the board's `at`th new PUBLISH."""
        ...

    async def line_struck(self, fault: str) -> list[dict[str, Any]]:
        """Wait until each order was carried out. Return the wire's reports about the orders."""
        ...


class SensorUnderTest(Protocol):
    """A board with a simulated sensor."""

    @property
    def kind(self) -> str: ...
    async def put(self, state: str | int) -> int:
        """Put the sensor into a state: "well", the name of a fault, or the voltage of an analogue
        sensor in mV. Return the sequence of the board's newest publication, or 0.
        """
        ...

    async def says(self, number: int, after: int, within: float) -> int | None:
        """Wait at most `within` seconds for the first report of fault `number` after publication
        `after`. Return the sequence of the report, or None.
        """
        ...

    async def has_value(self, after: int, within: float) -> int | None:
        """Wait at most `within` seconds for the first value after publication `after`. Return its
        sequence, or None.
        """
        ...

    def values_between(self, after: int, before: int) -> list[int]: ...

    def contradict(self, text: str) -> None:
        """Record behaviour that no correct firmware shows."""
        ...


class RoamerUnderTest(Protocol):
    """A radio board that can be moved from one gateway to another."""

    async def met(self) -> None:
        """Wait until a gateway has a session of the board."""
        ...

    async def roam(self, gateway: str, within: float) -> bool:
        """Move the board to a place where only `gateway` hears it. When board and gateway have a
        connection, move the board to a place where the next gateway hears it, too. Return whether
        `gateway` had the board's MQTT session when the board connected. Raises TimeoutError if
        there is no connection within `within` seconds."""
        ...


class Publisher(Protocol):
    """A board, or a client over TCP."""

    sent: set[int]
    """Packet identifiers of all publications sent so far, also those not yet in the gateway's
    store."""
    gateway: str

    @property
    def accepted(self) -> set[int]:
        """Return the packet identifiers of the publications that the gateway has accepted, as far
        as the publisher has shown this, for example by a PUBREL.
        """
        ...

    @property
    def waiting(self) -> int: ...
    @property
    def journalled(self) -> int: ...
    def look(self) -> int: ...


class ClientUnderTest(Protocol):
    """A client that speaks MQTT over TCP and follows the standard."""

    gateway: str
    connections: int

    @property
    def done(self) -> bool:
        """Whether the client has published all messages, and all are acknowledged."""
        ...

    def move_at(self, message: int) -> None:
        """Order, before the start, that the client moves to the next gateway after the PUBREC of
        this message.
        """
        ...

    async def moved(self, message: int) -> dict[str, Any]:
        """Wait for the move that was ordered for this message. Return the new gateway (`gateway`),
        and whether it knew the session (`session_present`).
        """
        ...

    def move(self) -> None: ...


class Commander(Protocol):
    """Sends commands to the boards through the gateway."""

    def send(self, device: str, text: str) -> None: ...


class OtherBrokerUnderTest(Protocol):
    """The broker at the other end of the gateway's bridge."""

    async def start(self) -> None: ...
    async def stop(self) -> int:
        """Ask the broker to end, and return its exit code."""
        ...


class SystemUnderTest(Protocol):
    """The parts of a run that a fault may observe or break."""

    @property
    def counters(self) -> Counters: ...
    @property
    def history(self) -> History: ...
    @property
    def site(self) -> SiteUnderTest: ...
    @property
    def spool(self) -> SpoolHop: ...
    @property
    def landing(self) -> LandingHop: ...
    @property
    def progress(self) -> IngestProgress: ...
    @property
    def commander(self) -> Commander: ...
    @property
    def other_broker(self) -> OtherBrokerUnderTest | None: ...
    @property
    def publishers(self) -> Mapping[str, Publisher]:
        """Return, by name, the boards, and the clients whose messages must be acknowledged."""
        ...

    def look(self) -> int:
        """Read all commits and batches so far. Return the monotonic time of the read, in ns."""
        ...

    def is_at(self, window: int) -> bool:
        """Return whether a publication of this gateway is in the state that the window names."""
        ...

    def say(self, text: str) -> None: ...

    def at(self, fault: Fault) -> "SystemUnderTest":
        """Return this system, with `site` and `spool` of the gateway that the fault strikes now."""
        ...

    def gateway_of(self, publisher: str) -> str: ...

    @property
    def alive(self) -> Mapping[str, SiteUnderTest]:
        """Return all gateways except those that are dead for good."""
        ...

    @property
    def movers(self) -> Sequence[ClientUnderTest]:
        """Return the clients that can move from one gateway to the next."""
        ...

    def boards_at(self, gateway: str) -> Sequence[DeviceUnderTest]: ...

    def next_gateway(self, gateway: str) -> str:
        """Return the next live gateway after this one."""
        ...

    def client(self, name: str) -> ClientUnderTest: ...
    def roamer(self, name: str) -> RoamerUnderTest: ...
    def sensor(self, fault: Fault) -> SensorUnderTest: ...

    def device(self, fault: Fault) -> DeviceUnderTest:
        """Return the device that a fault of a board or line strikes."""
        ...
