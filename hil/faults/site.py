"""Faults of a site of several gateways: boards and clients that move to another gateway, and
gateways that do not hear each other. In: the run. Out: evidence: where boards and clients were,
whether the gateway there had their MQTT session, and the gateways' reports about each other.
"""

import asyncio
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind, Seconds, Unit
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import LinksUnderTest, SystemUnderTest
from hil.observe.counters import wait_until
from hil.observe.membership import members_in_contact, suspect_answers, wait_for_contact

THERE_WITHIN = 60.0  # s until the next gateway must have the board or client
HEARD_WITHIN = 120.0
"""Longest wait, in s, for contact with a radio board, which may have to notice a loss first."""
DOWN_S = 1.0  # s from a gateway's death until the cable is at another gateway
CLIENT = "client-"
"""First letters of a client's name."""
SESSION = {True: "its session is there", False: "its session is not there"}


class SiteFault(Kind):
    """A fault for a site of several gateways."""

    part: ClassVar[str] = "gateway"
    looked: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"


class BoardReplugged(SiteFault):
    """A board's cable is pulled at its gateway, and plugged in at the next one."""

    text: ClassVar[str] = "board replugged at another gateway"
    part: ClassVar[str] = "board"
    lane: ClassVar[str] = "cable"
    bounded: ClassVar[bool] = True
    kind: Literal["board-replugged"]
    seconds: Seconds = Field(default=0.3, gt=0, le=60)
    """Seconds for which the board is connected to no gateway."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        # a kill of a gateway in a window waits for publications of its boards
        async with system.site.process_lock:
            since = system.look()
            gateway = system.next_gateway(system.gateway_of(fault.target))
            try:
                present = await device.replug(fault.id, gateway, self.seconds, THERE_WITHIN)
            except TimeoutError:
                return None
        where = {"gateway": gateway, "session_present": present}
        return Evidence(f"at {gateway}; {SESSION[present]}", {"since": since, **where})


class BoardRoams(SiteFault):
    """At first, a radio board is heard by its gateway and by the next gateway. It moves to a place
    where only the next gateway hears it. When that gateway has a session of the board, the board
    moves to a place where two gateways hear it.
    """

    text: ClassVar[str] = "radio board carried to another gateway"
    part: ClassVar[str] = "board"
    lane: ClassVar[str] = "way"
    air: ClassVar[Literal["only"]] = "only"
    bounded: ClassVar[bool] = True
    needs_traffic: ClassVar[bool] = True
    kind: Literal["board-roams"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        board = system.roamer(fault.target)
        try:
            async with asyncio.timeout(HEARD_WITHIN):
                await board.met()
            async with system.site.process_lock:
                since = system.look()
                gateway = system.next_gateway(system.gateway_of(fault.target))
                present = await board.roam(gateway, HEARD_WITHIN)
        except TimeoutError:
            return None
        where = {"gateway": gateway, "session_present": present}
        return Evidence(f"at {gateway}; {SESSION[present]}", {"since": since, **where})


class BetweenGateways(SiteFault):
    """A fault of the links between one gateway and the others. The fault begins and ends when all
    gateways together have committed certain numbers of publications.
    """

    lane: ClassVar[str] = "between gateways"
    lasts: Annotated[float, Unit("share of the run")] = Field(default=0.4, gt=0, le=0.9)
    """Duration of the fault."""

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"until": min(at + round(total * self.lasts), total)}

    @abstractmethod
    async def begin(self, links: LinksUnderTest, name: str) -> None:
        """Begin the fault. name: name of the gateway."""

    @abstractmethod
    def met(self, name: str, counts: Mapping[str, int], doubts: int, alone: bool) -> str | None:
        """Return a sentence on the effect of the fault, or None if it had no effect. counts: number
        of bytes on the links during the fault: `passed` and `held`. doubts: number of answers to
        clients whose session was suspect. alone: whether the gateway reported at the end that it
        heard no other gateway.
        """

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        name, links, folders = system.site.name, system.site.links, data_of(system)
        since = system.look()
        before = await doubts_at(folders)
        await self.begin(links, name)
        await system.counters.reach("spooled", fault.detail["until"])
        alone = not await asyncio.to_thread(members_in_contact, folders[name])
        counts = await links.order("mend", name)
        doubts = await doubts_at(folders) - before
        text = self.met(name, counts, doubts, alone)
        if await wait_for_contact(folders) or not text:
            return None
        words = f"{text}; {doubts} answers were given to clients with a suspect session"
        return Evidence(words, {"since": since, "gateway": name, "doubts": doubts})


class Partition(BetweenGateways):
    """Between two counts of publications committed at all gateways, no byte passes between one
    gateway and the others. Meanwhile, a board or client must connect to a gateway that gets no
    answer about this board or client.
    """

    text: ClassVar[str] = "gateways cut off from each other"
    kind: Literal["partition"]

    async def begin(self, links: LinksUnderTest, name: str) -> None:
        await links.order("cut", name)

    def met(self, name: str, counts: Mapping[str, int], doubts: int, alone: bool) -> str | None:
        return f"{name} heard no other gateway" if alone and doubts and counts.get("held") else None


class MemberSlow(BetweenGateways):
    """From one count of committed publications to another, all bytes between one gateway and the
    others are late.
    """

    text: ClassVar[str] = "gateway slow to answer"
    kind: Literal["member-slow"]
    seconds: Seconds = Field(default=0.15, gt=0, le=10)
    """Delay in each direction, in seconds."""

    async def begin(self, links: LinksUnderTest, name: str) -> None:
        await links.order("slow", name, seconds=self.seconds)

    def met(self, name: str, counts: Mapping[str, int], doubts: int, alone: bool) -> str | None:
        count = counts.get("passed")
        return f"{count} bytes came {self.seconds:g} s late" if count else None


class RollingRestart(SiteFault):
    """Each gateway and its uplink end with SIGTERM, and restart, one gateway after the other, as
    for a new version. No session may be lost.
    """

    text: ClassVar[str] = "gateways restarted in turn"
    of_all: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    kind: Literal["rolling-restart"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        async with system.site.process_lock:
            since = system.look()
            folders = data_of(system)
            for member in system.alive.values():
                codes = [await member.running[kind].stop() for kind in ("uplink", "gateway")]
                await member.start_gateway()
                await member.start_uplink()
                if any(codes) or await wait_for_contact(folders):
                    return None
        text = f"{', '.join(folders)}: each stopped cleanly and started again"
        return Evidence(text, {"since": since, "excuses": False})


class GatewayDies(SiteFault):
    """A gateway and its uplink are gone for good. Its boards are plugged in at the next gateway;
    its clients find the next one by themselves. If the card is gone, too, only publications that
    were acknowledged and had not landed may be lost. If the card is there, a person lands these
    publications. With `copies = 2`, another gateway lands them. In both cases none is lost.
    """

    text: ClassVar[str] = "gateway dies for good"
    bounded: ClassVar[bool] = True
    kind: Literal["gateway-dies"]
    card: Literal["gone", "readable"] = "gone"
    """State of the SD card. If readable, `onceway spool land` lands the unlanded readings."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        site = system.site
        readable = self.card == "readable"
        async with site.process_lock:
            since = system.look()
            folder = await site.die(card_too=not readable)
            lost = not readable and not site.copied
            died = system.spool.bury(folder / site.folder.database.name, lost=lost)
            if readable:
                await site.land(folder)
            gateway = system.next_gateway(site.name)
            try:
                for device in system.boards_at(site.name):
                    await device.replug(fault.id, gateway, DOWN_S, THERE_WITHIN)
            except TimeoutError:
                return None
        fate = "landed from its card" if readable else "that had not landed"
        text = f"{site.name} is gone; publications {fate}: {died}"
        data = {"since": since, "gateway": site.name, "died": died if lost else 0}
        data |= {"copied": died} if site.copied and not readable else {}
        return Evidence(text, data) if died else None


class CrowdMoves(SiteFault):
    """All strict clients move to the next gateway at the same time."""

    text: ClassVar[str] = "clients change gateway at once"
    of_all: ClassVar[bool] = True
    lane: ClassVar[str] = "crowd"
    bounded: ClassVar[bool] = True
    kind: Literal["crowd-moves"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        since = system.look()
        clients = [(client, client.connections) for client in system.movers if not client.done]
        for client, _ in clients:
            client.move()
        try:
            async with asyncio.timeout(THERE_WITHIN):
                await wait_until(lambda: all(one.done or one.connections > n for one, n in clients))
        except TimeoutError:
            return None
        moved = sum(client.connections > before for client, before in clients)
        text = f"{moved} clients are at the next gateway"
        return Evidence(text, {"since": since, "moved": moved}) if moved > 1 else None


class ClientMoves(SiteFault):
    """A client changes its gateway after a PUBREC, and sends PUBREL to the new one."""

    text: ClassVar[str] = "client moves between PUBREC and PUBREL"
    part: ClassVar[str] = "client"
    looked: ClassVar[bool] = False
    kind: Literal["client-moves"]

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        for name, messages in readings.items():
            if name.startswith(CLIENT) and (not self.on or name in self.on):
                counter = f"messages {name}"
                yield from self._on(name, f"{name} client", counter, messages, seed, readings)

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"message": fault.at}

    async def arm(self, fault: Fault, system: SystemUnderTest) -> bool:
        system.client(fault.target).move_at(fault.at)
        return True

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        where = await system.client(fault.target).moved(fault.at)
        text = f"at {where['gateway']}; {SESSION[where['session_present']]}"
        return Evidence(text, {"hit": {"message": fault.at}, **where})


def data_of(system: SystemUnderTest) -> dict[str, Path]:
    """Return the data folders of the gateways that are alive."""
    return {name: one.folder.data for name, one in system.alive.items()}


async def doubts_at(folders: Mapping[str, Path]) -> int:
    """Return how often these gateways answered a client whose session was suspect."""
    return sum([await asyncio.to_thread(suspect_answers, folder) for folder in folders.values()])
