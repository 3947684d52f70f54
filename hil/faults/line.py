"""Faults of the line between a board and the gateway. The wire causes them (hil/wire). This module
chooses their places and collects the evidence.
"""

import asyncio
import random
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hil.faults.base import Bytes, Kind, Seconds, Shares, Unit
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import wait_until
from hil.wire.noise import kinds

# a fault happens within this many bytes after its publication: in an exchange, or between two
# exchanges
AFTER_BYTES = 200
OPENED_WITHIN = 60.0  # s until the gateway must have opened a port that is back


class LineWeather(Kind):
    """A fault of every line for the whole run. It has happened once each of its harms was seen."""

    part: ClassVar[str] = "line"
    no_place: ClassVar[str] = "lasts the whole run"
    whole_run: ClassVar[bool] = True
    between: Shares = (0, 0.01)

    @abstractmethod
    def harms(self) -> tuple[str, ...]:
        """Return the kinds of harm (names of `hil.wire`); `inject` waits for one of each kind."""

    @abstractmethod
    def options(self) -> list[str]:
        """Return the options with which `python -m hil.wire` makes this fault."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device, wanted = system.device(fault), self.harms()
        await wait_until(lambda: all(device.harmed[harm] for harm in wanted))
        return Evidence(
            f"seen on the line: {', '.join(wanted)}", {harm: device.harmed[harm] for harm in wanted}
        )


class LineNoise(LineWeather):
    """Bytes corrupted, lost and inserted, one by one."""

    text: ClassVar[str] = "line noise"
    lane: ClassVar[str] = "noise"
    kind: Literal["line-noise"]
    rate: Annotated[float, Unit("share of the bytes")] = Field(gt=0, le=0.1)
    """Share of harmed bytes, in each direction."""

    def harms(self) -> tuple[str, ...]:
        return kinds(self.table)

    def options(self) -> list[str]:
        return ["--noise", str(self.rate), "--noise-table", str(self.table)]


class LineBursts(LineWeather):
    """Bursts of interference. About half of the bytes in a burst are changed (Gilbert-Elliott)."""

    text: ClassVar[str] = "bursts on the line"
    lane: ClassVar[str] = "bursts"
    kind: Literal["line-bursts"]
    gap: Annotated[float, Unit("bytes")] = Field(default=1000, ge=10)
    """Mean distance between two bursts."""
    length: Annotated[float, Unit("bytes")] = Field(default=20, ge=1)
    """Mean length of a burst."""

    def harms(self) -> tuple[str, ...]:
        return ("burst",)

    def options(self) -> list[str]:
        return ["--burst-gap", str(self.gap), "--burst-length", str(self.length)]


class LineTrace(LineWeather):
    """Frames are lost as on a recorded link."""

    text: ClassVar[str] = "losses of a recorded link"
    lane: ClassVar[str] = "trace"
    kind: Literal["line-trace"]
    trace: str
    """A recording's file, or the name of one of the project's recordings, such as `bursts`."""
    pace: Literal["frames"] | Annotated[float, Field(gt=0, allow_inf_nan=False)] = "frames"
    """`frames`: each frame on the line has the fate of the recording's next frame. A number:
    seconds of the recording per second of the run.
    """
    longest_outage: Annotated[float, Unit("frames, or s with a pace")] = Field(
        default=20.0, ge=1, le=3600
    )
    """Length to which longer outages are shortened."""

    def harms(self) -> tuple[str, ...]:
        return ("fade",)

    def options(self) -> list[str]:
        pace = "0" if self.pace == "frames" else str(self.pace)
        options = ["--trace", self.trace, "--pace", pace]
        return [*options, "--longest-outage", str(self.longest_outage)]


class LineStrike(Kind):
    """A single fault of a line, a random number of bytes after a publication. It counts as happened
    when the wire has harmed bytes.
    """

    part: ClassVar[str] = "line"
    action: ClassVar[str]
    both_ways: ClassVar[bool] = False

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        directions = ["up", "down"] if self.both_ways else [rng.choice(("up", "down"))]
        return {"after": rng.randint(0, AFTER_BYTES), "directions": directions}

    def strength(self) -> dict[str, Any]:
        """Return the order's `length` (bytes) and `seconds`, as far as the kind has these keys."""
        return self.model_dump(include={"length", "seconds"})

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {
            f"{direction} {name}": value
            for direction in fault.detail["directions"]
            for name, value in (("publication", fault.at), ("after", fault.detail["after"]))
        }

    async def arm(self, fault: Fault, system: SystemUnderTest) -> bool:
        order = {
            "do": "strike",
            "action": self.action,
            "after": fault.detail["after"],
            **self.strength(),
        }
        orders = [{**order, "direction": direction} for direction in fault.detail["directions"]]
        await system.device(fault).arm_line(fault.id, orders, fault.at)
        return True

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        struck = await system.device(fault).line_struck(fault.id)
        places = [
            f"{one['bytes']} bytes {one['direction']} from byte {one['offset']} on"
            for one in struck
        ]
        behind = next((one["behind"] for one in struck if one["behind"]), None)
        hit = {
            f"{one['direction']} {name}": one[name]
            for one in struck
            for name in ("publication", "after")
        }
        over = {f"{one['direction']} publication": one["over"] for one in struck}
        data = {"struck": struck, "hit": hit, "behind": behind, "over": over}
        return Evidence(", ".join(places), data) if all(one["bytes"] for one in struck) else None


class LineDuplicate(LineStrike):
    """Bytes that arrive twice."""

    text: ClassVar[str] = "bytes of the line duplicated"
    action: ClassVar[str] = "duplicate"
    kind: Literal["line-duplicate"]
    length: Bytes = Field(default=80, ge=1, le=2000)
    """Number of duplicated bytes."""


class LineDelay(LineStrike):
    """Bytes arrive late, and delay the bytes after them."""

    text: ClassVar[str] = "line late"
    action: ClassVar[str] = "delay"
    kind: Literal["line-delay"]
    length: Bytes = Field(default=200, ge=1, le=2000)
    """Number of late bytes."""
    seconds: Seconds = Field(default=1.0, gt=0, le=60)
    """Delay of the late bytes, in seconds."""


class LineStall(LineStrike):
    """The line carries no bytes for a while."""

    text: ClassVar[str] = "line stalled"
    action: ClassVar[str] = "stall"
    kind: Literal["line-stall"]
    seconds: Seconds = Field(default=2.0, gt=0, le=60)
    """Length of the stall."""


class LineHalfOpen(LineStrike):
    """One direction is dead until it has lost `length` bytes. The other direction works."""

    text: ClassVar[str] = "line half open"
    action: ClassVar[str] = "lose"
    kind: Literal["line-half-open"]
    length: Bytes = Field(default=200, ge=1, le=10_000)
    """Number of lost bytes."""


class LineCut(LineStrike):
    """Both directions are dead until each has lost `length` bytes."""

    text: ClassVar[str] = "line cut"
    action: ClassVar[str] = "lose"
    both_ways: ClassVar[bool] = True
    kind: Literal["line-cut"]
    length: Bytes = Field(default=80, ge=1, le=10_000)
    """Number of lost bytes, in each direction."""


class LineFlood(LineStrike):
    """Random bytes at line rate, in one direction."""

    text: ClassVar[str] = "noise flood"
    action: ClassVar[str] = "flood"
    kind: Literal["line-flood"]
    length: Bytes = Field(default=4000, ge=1, le=100_000)
    """Number of random bytes."""


class LineWrongBaud(LineStrike):
    """The receiver of each direction samples at half the sender's bit rate."""

    text: ClassVar[str] = "wrong bit rate"
    action: ClassVar[str] = "garble"
    both_ways: ClassVar[bool] = True
    kind: Literal["line-wrong-baud"]
    length: Bytes = Field(default=80, ge=1, le=10_000)
    """Number of misread bytes, in each direction."""


class LineForge(Kind):
    """Another program on the line greets as the board, from packets that it has heard, without the
    board's key. The gateway must refuse these greetings, and the board's session must continue.
    """

    text: ClassVar[str] = "greeting forged"
    part: ClassVar[str] = "line"
    kind: Literal["line-forge"]

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"publication": fault.at}

    async def arm(self, fault: Fault, system: SystemUnderTest) -> bool:
        await system.device(fault).arm_line(fault.id, [{"do": "forge"}], fault.at)
        return True

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        [struck] = await system.device(fault).line_struck(fault.id)
        if not struck["frames"] or not struck["refusals"]:
            return None
        text = f"{struck['frames']} frames forged, and the gateway refused {struck['refusals']}"
        hit = {"publication": struck["publication"]}
        return Evidence(text, {"hit": hit, "behind": None})


class PortUnplugged(Kind):
    """The gateway's port disappears for a time. Programs that have it open get a hang-up."""

    text: ClassVar[str] = "port unplugged"
    part: ClassVar[str] = "line"
    kind: Literal["port-unplugged"]
    seconds: Seconds = Field(default=2.0, gt=0, le=60)
    """Time without the port, in seconds."""

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"publication": fault.at}

    async def arm(self, fault: Fault, system: SystemUnderTest) -> bool:
        order = {"do": "unplug", "seconds": self.seconds}
        await system.device(fault).arm_line(fault.id, [order], fault.at)
        return True

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        [struck] = await device.line_struck(fault.id)
        opened = struck["opened"]
        try:
            async with asyncio.timeout(OPENED_WITHIN):
                await wait_until(lambda: device.opened > opened)
        except TimeoutError:
            return None
        text = f"the port was gone for {self.seconds:g} s, then the gateway opened it"
        hit = {"publication": struck["publication"]}
        return Evidence(text, {"hit": hit, "behind": None})
