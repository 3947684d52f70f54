"""What faults reach: hands and eyes on a run, as protocols. The run fills them (hil/run/system.py).

A fault knows nothing else of devices, programs and the run, so that the arrows go one way.
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
        """Whether the kernel calls it stopped."""
        ...

    def check(self) -> None:
        """Raises OncewayError if it ended and no fault ended it."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def reload(self) -> None: ...
    async def kill(self) -> None: ...
    async def stop(self) -> int: ...
    async def finish(self, script: str, within: float) -> int | None:
        """Ask the Python program that runs `script` to end. Returns its exit code; None if it had
        to be killed.
        """
        ...


class LinksUnderTest(Protocol):
    """The network between the gateways of a site."""

    async def order(self, do: str, member: str, **more: float) -> dict[str, Any]:
        """`cut`, `slow` (seconds) or `mend` all links of a member. Returns how many bytes had
        passed on them since the order before, and how many were held.
        """
        ...


class SiteUnderTest(Protocol):
    """Gateway, uplink, ingest and landing place."""

    name: str
    """Of the gateway, if there are several."""
    folder: Folder
    disk: LoopDisk | None
    """Under the gateway's data, if the bench cuts the gateway's power."""
    landing_disk: LoopDisk | None
    """Under the landing place, if the bench cuts its power."""
    hands: asyncio.Lock
    """Held while a fault takes processes down and up again, or works on the gateway's disk."""
    landing: LandingPlace

    @property
    def copied(self) -> bool:
        """Whether what it acknowledges is on the disk of another gateway, too."""
        ...

    @property
    def links(self) -> LinksUnderTest:
        """Between the gateways of a site of several."""
        ...

    @property
    def running(self) -> Mapping[str, ProgramUnderTest]:
        """By name."""
        ...

    def machine(self, program: str) -> Machine:
        """The one that misbehaves under a program."""
        ...

    async def store(self, *words: str) -> None:
        """`onceway store …` for the gateway's store, as a user types it. Raises OncewayError."""
        ...

    async def start_gateway(self) -> None: ...
    async def die(self, *, card_too: bool) -> Path:
        """Gateway and uplink are killed, and never start again. card_too: nobody but the rig knows
        where its data are. Returns where that is.
        """
        ...

    async def land(self, data: Path) -> None:
        """`onceway spool land …` for a dead gateway's data, as a user types it. Raises
        OncewayError.
        """
        ...

    async def start_uplink(self) -> None: ...
    async def start_ingest(self, name: str = "ingest", checkpoint: Path | None = None) -> None: ...


class DeviceUnderTest(Protocol):
    """A board at the end of its wire."""

    name: str
    counted: bool
    """Whether a fault can strike it at a counted place."""
    harmed: Counter[str]
    """Harms done by its wire, by kind."""
    opened: int
    """How often the gateway has opened its port."""
    refused: list[tuple[int, int]]
    """Packet identifiers of publications that the gateway has refused, and why."""

    @property
    def taken(self) -> set[int]:
        """Packet identifiers of the publications that the gateway has taken."""
        ...

    @property
    def board(self) -> SimulatedBoard: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def waiting(self) -> int:
        """Publications that are journalled and not done."""
        ...

    @property
    def journalled(self) -> int:
        """Publications so far."""
        ...

    def look(self) -> int:
        """Read what is new in the ledger. Returns the number of readings so far."""
        ...

    def next_interval(self) -> int:
        """Of the next command: each tells another one."""
        ...

    async def arm(self, fault: Fault, command: str) -> bool:
        """Order the board ahead to do this to itself at the fault's place. False: it takes no
        orders.
        """
        ...

    async def samples(self) -> int:
        """Conversions so far, which are its places."""
        ...

    async def strike_next(self, fault: str, command: str, after: int) -> bool:
        """Order it for the conversion after the `after`th. False: that one is behind the board."""
        ...

    async def said(self, fault: str, event: str) -> Event:
        """What it says next of this name because of a fault: `struck`, `cut`, `power`, `boot`."""
        ...

    async def reset(self, fault: str) -> Evidence | None:
        """An edge of DTR, as ordered, or now if it takes no orders."""
        ...

    async def switched_off(self, fault: str, seconds: float) -> Evidence | None:
        """Its power is off for `seconds`, as ordered, or from now on if it takes no orders."""
        ...

    async def swap(self, fault: str, within: float) -> None: ...
    async def replug(self, fault: str, gateway: str, seconds: float, within: float) -> bool:
        """Take the board away from its gateway, and `seconds` later plug it in at another one.
        Returns whether its MQTT session was there. Raises TimeoutError.
        """
        ...

    async def strike(
        self, fault: str, orders: Sequence[dict[str, Any]], within: float
    ) -> list[dict[str, Any]]: ...
    async def arm_line(self, fault: str, orders: Sequence[dict[str, Any]], at: int) -> None:
        """Give the wire orders for a fault ahead: it carries them out at the board's `at`th new
        PUBLISH.
        """
        ...

    async def line_struck(self, fault: str) -> list[dict[str, Any]]:
        """What the wire says of them, when each has been carried out."""
        ...


class RoamerUnderTest(Protocol):
    """A board by radio."""

    async def met(self) -> None:
        """Returns when a gateway has it."""
        ...

    async def roam(self, gateway: str, within: float) -> bool:
        """Carry it to where this gateway alone hears it; and when it has a connection there, to
        where the next one hears it, too. Returns whether its MQTT session was there. Raises
        TimeoutError.
        """
        ...


class Publisher(Protocol):
    """A board, or a client over TCP."""

    sent: set[int]
    """Packet identifiers of what has left it for the gateway's store."""
    gateway: str
    """At which of several gateways it is now."""

    @property
    def waiting(self) -> int: ...
    @property
    def journalled(self) -> int: ...
    def look(self) -> int: ...


class ClientUnderTest(Protocol):
    """A client over TCP that keeps to the standard."""

    gateway: str
    """Where it is."""
    connections: int
    """How many it has had."""

    @property
    def done(self) -> bool:
        """Whether it has published all, and everything was acknowledged."""
        ...

    def move_at(self, message: int) -> None:
        """Before it starts: let it go to the next gateway behind the PUBREC of this message."""
        ...

    async def moved(self, message: int) -> dict[str, Any]:
        """What is known of that move when it is there: gateway and session_present."""
        ...

    def move(self) -> None:
        """Let it go to the next gateway now."""
        ...


class Commander(Protocol):
    """Sends commands to the boards through the gateway."""

    def send(self, device: str, text: str) -> None: ...


class SystemUnderTest(Protocol):
    """The whole run, as a fault sees it."""

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
    def publishers(self) -> Mapping[str, Publisher]:
        """Boards, and clients whose messages the gateway must acknowledge, by name."""
        ...

    def look(self) -> int:
        """See all that has been committed and landed by now. Returns when that is, in ns."""
        ...

    def unstored(self) -> bool:
        """Whether something has left a board or a client that is not in the gateway's store."""
        ...

    def committing(self) -> bool:
        """Whether the commit behind which the gateway stands still holds a publication."""
        ...

    def say(self, text: str) -> None:
        """For the person who watches."""
        ...

    def at(self, fault: Fault) -> "SystemUnderTest":
        """With the gateway that the fault strikes now."""
        ...

    def gateway_of(self, publisher: str) -> str:
        """Where a board or a client is now."""
        ...

    @property
    def alive(self) -> Mapping[str, SiteUnderTest]:
        """All gateways but those that are dead for good."""
        ...

    @property
    def movers(self) -> Sequence[ClientUnderTest]:
        """The clients that can go from one gateway to the next."""
        ...

    def boards_at(self, gateway: str) -> Sequence[DeviceUnderTest]: ...

    def next_gateway(self, gateway: str) -> str:
        """Who comes after it, of those that are alive."""
        ...

    def client(self, name: str) -> ClientUnderTest: ...
    def roamer(self, name: str) -> RoamerUnderTest: ...

    def device(self, fault: Fault) -> DeviceUnderTest:
        """The device that a fault of a board or a line is for."""
        ...
