"""Faults of a site of several gateways: boards and clients that come back at another one, and
gateways that do not hear each other.

In: the run. Out: evidence of where they were and whether their MQTT session was there, too; of what
the gateways said of each other.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind, Seconds, Unit
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import wait_until
from hil.observe.membership import marked, sure_of

THERE_WITHIN = 60.0  # s in which the next gateway must have taken who comes
CONTACT_WITHIN = 60.0  # s in which gateways must have found each other again
DOWN_S = 1.0  # from a death to the cable at another gateway
LOOK_EVERY = 0.1  # s
CLIENT = "client-"
"""How the names of clients begin."""
SESSION = {True: "its session is there", False: "its session is not there"}


class BoardReplugged(Kind):
    """A board's cable is pulled at its gateway, and plugged in at the next one."""

    text: ClassVar[str] = "board replugged at another gateway"
    part: ClassVar[str] = "board"
    lane: ClassVar[str] = "cable"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
    kind: Literal["board-replugged"]
    seconds: Seconds = Field(default=0.3, gt=0, le=60)
    """For how long it is at none."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        # who kills a gateway in a window waits for what a board there says
        async with system.site.hands:
            since = system.look()
            gateway = system.next_gateway(system.gateway_of(fault.target))
            try:
                present = await device.replug(fault.id, gateway, self.seconds, THERE_WITHIN)
            except TimeoutError:
                return None
        where = {"gateway": gateway, "session_present": present}
        return Evidence(f"at {gateway}; {SESSION[present]}", {"since": since, **where})


class Partition(Kind):
    """From one place to another, counted in publications committed at all gateways, no byte passes
    between one gateway and the others. Somebody must have come to a gateway meanwhile that did not
    hear of whom it asked.
    """

    text: ClassVar[str] = "gateways cut off from each other"
    part: ClassVar[str] = "gateway"
    lane: ClassVar[str] = "between gateways"
    looked: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
    kind: Literal["partition"]
    lasts: Annotated[float, Unit("share of the run")] = Field(default=0.4, gt=0, le=0.9)
    """How long."""

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"until": min(at + round(total * self.lasts), total)}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        name, links, folders = system.site.name, system.site.links, data_of(system)
        since = system.look()
        before = await figures(folders)
        await links.order("cut", name)
        await system.counters.reach("spooled", fault.detail["until"])
        alone = not await asyncio.to_thread(sure_of, folders[name])
        doubts = await figures(folders) - before
        mended = await links.order("mend", name)
        if not await contact(folders) or not (alone and doubts and mended.get("held")):
            return None
        text = f"{name} heard nobody; {doubts} answers were given in doubt"
        return Evidence(text, {"since": since, "gateway": name, "doubts": doubts})


class MemberSlow(Kind):
    """From one place to another, all that passes between one gateway and the others is late."""

    text: ClassVar[str] = "gateway slow to answer"
    part: ClassVar[str] = "gateway"
    lane: ClassVar[str] = "between gateways"
    looked: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
    kind: Literal["member-slow"]
    lasts: Annotated[float, Unit("share of the run")] = Field(default=0.4, gt=0, le=0.9)
    """How long."""
    seconds: Seconds = Field(default=0.15, gt=0, le=10)
    """How late, each way."""

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"until": min(at + round(total * self.lasts), total)}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        name, links, folders = system.site.name, system.site.links, data_of(system)
        since = system.look()
        before = await figures(folders)
        await links.order("slow", name, seconds=self.seconds)
        await system.counters.reach("spooled", fault.detail["until"])
        passed = (await links.order("mend", name)).get("passed")
        doubts = await figures(folders) - before
        if not passed or not await contact(folders):
            return None
        text = f"{passed} bytes came {self.seconds:g} s late; {doubts} answers were given in doubt"
        return Evidence(text, {"since": since, "gateway": name, "doubts": doubts})


class RollingRestart(Kind):
    """Each gateway and its uplink end when they are asked to, and start again, one gateway after
    the other, as for a new version.
    """

    text: ClassVar[str] = "gateways restarted in turn"
    part: ClassVar[str] = "gateway"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
    kind: Literal["rolling-restart"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        async with system.site.hands:
            since = system.look()
            folders = data_of(system)
            for member in system.alive.values():
                codes = [await member.running[kind].stop() for kind in ("uplink", "gateway")]
                await member.start_gateway()
                await member.start_uplink()
                if any(codes) or not await contact(folders):
                    return None
        return Evidence(f"{', '.join(folders)}: each ended well and came back", {"since": since})


class GatewayDies(Kind):
    """A gateway and its uplink are gone, and their card with them. Its boards are plugged in at the
    next one; its clients find that one by themselves. What was acknowledged and had not landed is
    lost, and nothing else may be.
    """

    text: ClassVar[str] = "gateway dies for good"
    part: ClassVar[str] = "gateway"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
    kind: Literal["gateway-dies"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        site = system.site
        async with site.hands:
            since = system.look()
            left = await site.die()
            died = system.spool.bury(left / site.folder.database.name)
            gateway = system.next_gateway(site.name)
            try:
                for device in system.boards_at(site.name):
                    await device.replug(fault.id, gateway, DOWN_S, THERE_WITHIN)
            except TimeoutError:
                return None
        text = f"{site.name} is gone with {died} publications that had not landed"
        data = {"since": since, "gateway": site.name, "died": died}
        return Evidence(text, data) if died else None


class CrowdMoves(Kind):
    """All clients that keep to the standard go to the next gateway at once."""

    text: ClassVar[str] = "clients change gateway at once"
    part: ClassVar[str] = "gateway"
    lane: ClassVar[str] = "crowd"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
    kind: Literal["crowd-moves"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        since = system.look()
        crowd = [(client, client.connections) for client in system.movers if not client.done]
        for client, _ in crowd:
            client.move()
        try:
            async with asyncio.timeout(THERE_WITHIN):
                await wait_until(lambda: all(one.done or one.connections > n for one, n in crowd))
        except TimeoutError:
            return None
        moved = sum(client.connections > before for client, before in crowd)
        text = f"{moved} of them are at the next gateway"
        return Evidence(text, {"since": since, "moved": moved}) if moved > 1 else None


class ClientMoves(Kind):
    """A client that keeps to the standard loses its gateway behind a PUBREC, and sends the PUBREL
    to the next one.
    """

    text: ClassVar[str] = "client moves between PUBREC and PUBREL"
    part: ClassVar[str] = "client"
    gateways: ClassVar[Literal["any", "one", "several"]] = "several"
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
    """The data folders of the gateways that are alive."""
    return {name: one.folder.data for name, one in system.alive.items()}


async def figures(folders: Mapping[str, Path]) -> int:
    """How many answers all gateways have given in doubt."""
    return sum([await asyncio.to_thread(marked, folder) for folder in folders.values()])


async def contact(folders: Mapping[str, Path]) -> bool:
    """Wait until all gateways have promises of each other. Returns whether it came so far."""

    def all_there() -> bool:
        return all(folders.keys() <= sure_of(at) | {name} for name, at in folders.items())

    try:
        async with asyncio.timeout(CONTACT_WITHIN):
            while not await asyncio.to_thread(all_there):  # noqa: ASYNC110 - another process
                await asyncio.sleep(LOOK_EVERY)
    except TimeoutError:
        return False
    return True
